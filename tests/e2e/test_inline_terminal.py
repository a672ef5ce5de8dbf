"""The inline mode of the real program in a real terminal, with an editor and on a dumb one."""

import shutil
import time
from pathlib import Path

import pytest

from tests.e2e.test_terminal import CALL, LONG, environment, scripted
from tests.fakes.terminal import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


@pytest.mark.sandbox
@pytest.mark.parametrize("term", ["tmux-256color", "dumb"])
def test_type_approve_interrupt_resume(
    tmp_path: Path, isolated_home: Path, sandbox: None, term: str
) -> None:
    work = tmp_path / "project"
    work.mkdir()
    replies = ["Hello, I am here.", CALL, "It printed out-42.", LONG, "After the break."]
    command = scripted(tmp_path, replies, "--inline", delay_s=0.002)
    home = environment(isolated_home) | {"TERM": term}
    with Terminal(command, work, home) as terminal:
        terminal.wait_for("type a message")
        terminal.type("say hello")
        terminal.press("Enter")
        terminal.wait_for("Hello, I am here.", "tok/s")
        terminal.type("run it")
        terminal.press("Enter")
        terminal.wait_for("Allow bash: echo out-$((40+2))?", "[y]es")
        time.sleep(0.6)  # a line within 0.4 s of the question is no answer
        terminal.type("y")
        terminal.press("Enter")
        terminal.wait_for("It printed out-42.")
        terminal.type("now count")
        terminal.press("Enter")
        terminal.wait_for("counting 0 1 2" if term == "dumb" else "generating")
        terminal.press("C-c")
        terminal.wait_for("Interrupted")
        terminal.press("C-d")
        screen = terminal.wait_for("exit=0", "--resume")
    assert "Traceback" not in screen
    command = scripted(tmp_path, replies, "--inline", "--continue")
    with Terminal(command, work, home, size=(100, 50)) as terminal:
        terminal.wait_for("Opened", "It printed out-42.")
        terminal.type("/quit")
        terminal.press("Enter")
        terminal.wait_for("exit=0")


def test_tab_finds_a_file_and_up_takes_a_queued_message_back(
    tmp_path: Path, isolated_home: Path
) -> None:
    work = tmp_path / "project"
    work.mkdir()
    (work / "parser.py").write_text("x = 1\n", encoding="utf-8")
    command = scripted(tmp_path, [LONG, "Done."], "--inline", delay_s=0.005)
    with Terminal(command, work, environment(isolated_home)) as terminal:
        terminal.wait_for("type a message")
        terminal.type("look at @pars")
        terminal.press("Tab")
        terminal.wait_for("> look at @parser.py")
        terminal.press("Enter")
        terminal.wait_for("generating")
        terminal.type("and then")
        terminal.press("Enter")
        terminal.wait_for("queued: and then", "1 queued")
        terminal.press("Up")
        terminal.wait_for("taken back: and then", "> and then")
        terminal.wait_gone("1 queued")
        terminal.press("C-c")
        terminal.wait_for("Interrupted")
        terminal.press("C-c")  # clears the line
        terminal.press("C-d")
        terminal.wait_for("exit=0", "--resume")
