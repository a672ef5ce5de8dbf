"""Questions to the person in a real terminal, and the program killed while one is open."""

import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.fakes.terminal import Terminal

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

CALL = (
    '<tool_call>\n{"name": "write", "arguments": {"path": "a.txt", "content": "one"}}\n</tool_call>'
)
QUESTION = "yes, once"
DEADLINE_S = 30.0
TRUST = "Trust this folder?"


class Program:
    """The agent with a script, in one folder and one home."""

    def __init__(self, tmp_path: Path, home: Path) -> None:
        self.folder = tmp_path / "project"
        self.folder.mkdir()
        self._pid = tmp_path / "pid"
        self._script = tmp_path / "script.json"
        self.script(CALL, "It is written.")
        self._environment = {
            "HOME": str(home),
            "DS4_HOME": str(home / "ds4"),
            "PYTHONPATH": str(ROOT),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
        }

    def script(self, *replies: str) -> None:
        """Set what the model says."""
        self._script.write_text(json.dumps({"replies": replies}), encoding="utf-8")

    def open(self, *arguments: str) -> Terminal:
        agent = [sys.executable, "-m", "tests.fakes.scripted_agent", str(self._script), "--"]
        shell = ["/bin/sh", "-c", f'echo $$ > {self._pid}; exec "$@"', "sh"]
        return Terminal([*shell, *agent, *arguments], self.folder, self._environment)

    def kill(self) -> None:
        os.kill(int(self._pid.read_text()), signal.SIGKILL)


@pytest.fixture
def program(tmp_path: Path, isolated_home: Path) -> Program:
    return Program(tmp_path, isolated_home)


def test_killed_while_a_call_waits_it_asks_again(program: Program) -> None:
    with program.open() as terminal:
        terminal.wait_for("scripted")
        terminal.type("write a.txt")
        terminal.press("Enter")
        terminal.wait_for("Allow create a.txt?", QUESTION)
        program.kill()
        terminal.wait_for("exit=137")
    with program.open("--continue") as terminal:
        terminal.wait_for("write a.txt", "Allow create a.txt?", QUESTION)
        assert not (program.folder / "a.txt").exists()
        terminal.answer("y", QUESTION)
        terminal.wait_for("It is written.")
        assert (program.folder / "a.txt").read_text(encoding="utf-8") == "one"
        terminal.wait_for("tok/s")  # the turn has ended
        program.kill()
    with program.open("--continue") as terminal:
        screen = terminal.wait_for("write a.txt", "It is written.")
        assert QUESTION not in screen


def test_killed_between_yes_and_result_it_says_that_the_call_may_have_run(
    program: Program,
) -> None:
    began = program.folder / "began.txt"
    # Only the first time does it take long.
    arguments = {"command": "echo began >> began.txt; grep -c . began.txt | grep 2 || sleep 60"}
    body = json.dumps({"name": "bash", "arguments": arguments})
    program.script(f"<tool_call>\n{body}\n</tool_call>", "It has ended.")
    with program.open() as terminal:
        terminal.wait_for("scripted")
        terminal.type("begin")
        terminal.press("Enter")
        terminal.answer("y", QUESTION)
        deadline = time.monotonic() + DEADLINE_S
        while not began.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert began.exists()
        program.kill()
        terminal.wait_for("exit=137")
    with program.open("--continue") as terminal:
        terminal.wait_for("was running and may have done its", QUESTION)
        assert began.read_text(encoding="utf-8") == "began\n"  # not again unasked
        terminal.answer("y", QUESTION)
        terminal.wait_for("It has ended.")
    assert began.read_text(encoding="utf-8") == "began\nbegan\n"


def test_a_folder_is_asked_about_once(program: Program) -> None:
    (program.folder / "AGENTS.md").write_text("Use tabs.", encoding="utf-8")
    with program.open() as terminal:
        terminal.wait_for(TRUST, "AGENTS.md")
        terminal.answer("y", TRUST)  # what comes too early is text in the composer
        terminal.wait_for("scripted")
        program.kill()
    with program.open() as terminal:
        assert TRUST not in terminal.wait_for("scripted")
