"""Each example runs, says what it promises, and stays short."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(name: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) < 60


@pytest.mark.model
def test_hello_engine_answers(smollm2_path: Path) -> None:
    assert "prefilled" in run("hello_engine.py", str(smollm2_path))


@pytest.mark.model
def test_moved_conversation_continues_identically(smollm2_path: Path) -> None:
    output = run("move_a_conversation.py", str(smollm2_path))
    assert "the restored session continues identically: True" in output


@pytest.mark.sandbox
def test_sandboxed_command_sees_no_home(tmp_path: Path, sandbox: None) -> None:
    output = run("sandboxed_command.py", str(tmp_path), "ls ~/.ssh || echo out")
    assert "sandbox: bubblewrap" in output and "out\n" in output
