"""The real screen in tmux: resized, left and looked at again while it streams, and resumed."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.test_terminal import CALL, LONG, QUESTION, environment, scripted
from tests.fakes.terminal import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


@pytest.mark.sandbox
def test_resize_detach_attach_and_resume(
    tmp_path: Path, isolated_home: Path, sandbox: None
) -> None:
    work = tmp_path / "project"
    work.mkdir()
    replies = [LONG, CALL, "It printed out-42."]
    command = scripted(tmp_path, replies, delay_s=0.005)
    with Terminal(command, work, environment(isolated_home), size=(120, 40)) as terminal:
        terminal.wait_for("ready")
        terminal.type("count")
        terminal.press("Enter")
        terminal.wait_for("counting 0 1 2")
        for size in ((60, 15), (30, 8), (160, 50), (80, 24)):
            terminal.resize(*size)
        terminal.wait_for("Ask for something", "tok/s")
        terminal.attach_and_detach()
        terminal.type("typed meanwhile")
        terminal.wait_for("typed meanwhile", "tok/s")
        terminal.press("C-c")
        screen = terminal.wait_for("Interrupted", "typed meanwhile")
        assert "Traceback" not in screen

        terminal.press("Enter")  # the text stayed in the composer
        terminal.wait_for("echo out-$((40+2))", QUESTION)
        terminal.resize(100, 30)
        terminal.attach_and_detach()
        terminal.answer("y", QUESTION)
        terminal.wait_for("It printed out-42.")
        terminal.press("C-d")
        terminal.wait_for("exit=0", "--resume")

    command = scripted(tmp_path, replies, "--continue")
    with Terminal(command, work, environment(isolated_home)) as terminal:
        terminal.wait_for("typed meanwhile", "It printed out-42.", "nothing read again")
        terminal.press("C-d")
        terminal.wait_for("exit=0")
