"""What goes wrong every day: one clear line and a hint, no traceback, nothing lost."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.tiny_gguf import write_tiny_gguf

NOBODY = 65534  # uid and gid of an account without rights
ROOT = Path(__file__).parent.parent.parent


def agent(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ds4agent", *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        **{"cwd": ROOT, **options},
    )


def assert_one_clear_line(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode in (1, 2), (done.stdout, done.stderr)
    assert "Traceback" not in done.stderr + done.stdout
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, lines
    for word in words:
        assert word in lines[0]


def test_missing_model(tmp_path: Path) -> None:
    done = agent("-m", tmp_path / "none.gguf", "-p", "hi")
    assert_one_clear_line(done, "none.gguf", "models")


@pytest.mark.parametrize("keep", [0.001, 0.2, 0.9, 0.9999])
def test_truncated_model(tmp_path: Path, keep: float) -> None:
    path = write_tiny_gguf(tmp_path / "cut.gguf")
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])
    assert_one_clear_line(agent("-m", path, "-p", "hi"), "cut.gguf")


def test_model_of_another_architecture(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "odd.gguf", architecture="llama")
    # Same length, so that the file stays whole: only the name of the architecture changes.
    path.write_bytes(path.read_bytes().replace(b"llama", b"gizmo"))
    assert_one_clear_line(agent("-m", path, "-p", "hi"), "gizmo", "llama", "qwen2")


def test_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<!DOCTYPE html><html>not found</html>", encoding="utf-8")
    assert_one_clear_line(agent("-m", path, "-p", "hi"), "page.gguf")


def test_session_folder_that_is_a_file_keeps_the_answer(
    tmp_path: Path, scripted: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "ds4").mkdir()
    (tmp_path / "ds4" / "kvcache").write_text("in the way", encoding="utf-8")
    done = scripted(["The answer."], "-p", "hi", DS4_HOME=str(tmp_path / "ds4"))
    assert done.returncode == 0 and "The answer." in done.stdout
    assert "kvcache" in done.stderr and "Traceback" not in done.stderr
    assert (tmp_path / "ds4" / "kvcache").read_text(encoding="utf-8") == "in the way"
    arguments = ["-p", "hi", "--output-format", "json"]
    result = json.loads(scripted(["Again."], *arguments, DS4_HOME=str(tmp_path / "ds4")).stdout)
    assert result["result"] == "Again." and "kvcache" in result["warnings"][0]


def test_damaged_conversation_is_refused_and_kept(
    tmp_path: Path, scripted: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    home = str(tmp_path / "ds4")
    assert scripted(["One."], "-p", "hi", DS4_HOME=home).returncode == 0
    (saved,) = [path for path in (tmp_path / "ds4").rglob("*.kv") if "sysprompt" not in path.name]
    whole = saved.read_bytes()
    saved.write_bytes(whole[: len(whole) // 2])
    done = scripted(["One."], "--resume", saved.stem, "-p", "again", DS4_HOME=home)
    assert_one_clear_line(done, saved.stem[:8])
    assert saved.read_bytes() == whole[: len(whole) // 2]


# Permissions do not bind root, so root gives its rights up, once all that is needed is imported.
AS_NOBODY = f"""
import importlib.metadata, os, sys
import ds4agent.agent.worker, ds4agent.headless, ds4agent.models, email.parser
from ds4agent.cli import main
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
sys.exit(main(sys.argv[1:]))
"""


def test_folder_without_permission() -> None:
    with tempfile.TemporaryDirectory() as folder:
        home, locked = Path(folder) / "home", Path(folder) / "locked"
        home.mkdir(mode=0o777)
        locked.mkdir(mode=0)
        Path(folder).chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, "--chdir", str(locked), "-m", "none", "-p", "hi"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
            env={**os.environ, "HOME": str(home)},
        )
        assert_one_clear_line(done, "locked", "permission")
        model = str(locked / "model.gguf")
        done = subprocess.run(
            [sys.executable, "-c", AS_NOBODY, "--chdir", folder, "-m", model, "-p", "hi"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            timeout=120,
            env={**os.environ, "HOME": str(home)},
        )
        assert_one_clear_line(done, "model.gguf", "may not be read")


def call(name: str, **arguments: object) -> str:
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def test_huge_and_binary_files_are_answered(
    tmp_path: Path, scripted: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with (work / "huge.log").open("wb") as file:
        for _ in range(50):
            file.write(b"a line of a log file, again and again\n" * (2**20 // 38))
    (work / "picture.bin").write_bytes(bytes(range(256)) * 64)
    replies = [call("read", path="huge.log"), call("read", path="picture.bin"), "Done."]
    done = scripted(
        replies, "-p", "read them", "--output-format", "json", "--chdir", str(work), ctx=60000
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert [entry["ok"] for entry in result["tool_calls"]] == [True, False]


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(replies: list[str], *arguments: str, ctx: int = 16384, **environment: str):
        script = tmp_path / "script.json"
        script.write_text(json.dumps({"replies": replies, "ctx": ctx}), encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-m", "tests.fakes.scripted_agent", str(script), "--", *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=120,
            cwd=ROOT,
            env={**os.environ, **environment},
        )

    return run
