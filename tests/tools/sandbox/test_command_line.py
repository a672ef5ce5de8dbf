"""``ds4-agent sandbox``: a command under the agent's policy, with our own standard streams."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tools.sandbox.commands import alive
from tools.sandbox.mechanism import Mechanism

pytestmark = pytest.mark.sandbox
PROGRAM = [sys.executable, "-m", "ds4agent", "sandbox"]
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture
def confined(root: Path, mechanism: Mechanism, sandbox: None) -> list[str]:
    return [*PROGRAM, "--workspace", str(root), "--mechanism", mechanism.key, "--"]


def run(arguments: list[str], text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        arguments, input=text, capture_output=True, text=True, cwd=REPOSITORY, check=False
    )


def test_streams_and_exit_code_are_passed_through(confined: list[str]) -> None:
    done = run([*confined, "sh", "-c", "cat; echo wrong >&2; exit 7"], "said\n")
    assert (done.stdout, done.stderr, done.returncode) == ("said\n", "wrong\n", 7)


def test_signal_of_the_command_is_128_and_its_number(confined: list[str]) -> None:
    assert run([*confined, "sh", "-c", "kill -TERM $$"]).returncode == 128 + signal.SIGTERM


def test_arguments_arrive_as_they_are(confined: list[str]) -> None:
    nasty = ["a b", "$HOME", "'\"", "*", "--workspace"]
    assert run([*confined, "printf", "%s\\n", *nasty]).stdout.splitlines() == nasty


def test_policy_is_the_agents(confined: list[str], root: Path, tmp_path: Path) -> None:
    (root / ".env").write_text("SECRET", encoding="utf-8")
    done = run([*confined, "sh", "-c", f"cat .env; echo x > {tmp_path}/planted; pwd; env"])
    assert "SECRET" not in done.stdout and not (tmp_path / "planted").exists()
    assert str(root) in done.stdout and "PYTEST" not in done.stdout


def test_interrupt_ends_all_processes(confined: list[str], mechanism: Mechanism) -> None:
    mark = f"87{os.getpid()}{len(mechanism.key)}"
    command = f"(setsid sleep {mark} &); echo up; sleep {mark}"
    process = subprocess.Popen(
        [*confined, "sh", "-c", command], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )
    assert process.stdout is not None and process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    deadline = time.monotonic() + 5
    while alive(mark) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert alive(mark) == []


def test_unknown_mechanism_and_missing_command_are_told(root: Path) -> None:
    done = run([*PROGRAM, "--workspace", str(root), "--mechanism", "jail", "--", "true"])
    assert done.returncode == 125 and "bwrap and landlock" in done.stderr
    done = run([*PROGRAM, "--workspace", str(root)])
    assert done.returncode == 2 and "no command" in done.stderr
