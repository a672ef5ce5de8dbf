"""The real program in a real terminal: type, approve, interrupt, save, quit, continue."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.fakes.terminal import Terminal

ROOT = Path(__file__).parent.parent.parent

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")

CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "echo out-$((40+2))"}}\n</tool_call>'
QUESTION = "yes, once"
LONG = "counting " + " ".join(str(n) for n in range(3000))


def environment(home: Path) -> dict[str, str]:
    return {
        "HOME": str(home),
        "DS4_HOME": str(home / "ds4"),
        "PYTHONPATH": str(ROOT),
        "PATH": os.environ["PATH"],
        "LANG": "C.UTF-8",
    }


def scripted(
    tmp_path: Path, replies: list[str], *arguments: str, delay_s: float = 0.0
) -> list[str]:
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": replies, "delay_s": delay_s}), encoding="utf-8")
    return [sys.executable, "-m", "tests.fakes.scripted_agent", str(script), "--", *arguments]


@pytest.mark.sandbox
def test_a_whole_working_day_in_a_terminal(
    tmp_path: Path, isolated_home: Path, sandbox: None
) -> None:
    work = tmp_path / "project"
    work.mkdir()
    replies = ["Hello, I am **here**.", CALL, "It printed out-42.", LONG, "After the break."]
    command = scripted(tmp_path, replies, delay_s=0.002)
    with Terminal(command, work, environment(isolated_home)) as terminal:
        terminal.wait_for("scripted")
        terminal.type("say hello")
        terminal.press("Enter")
        terminal.wait_for("say hello", "Hello, I am here.")

        terminal.type("run it")
        terminal.press("Enter")
        terminal.wait_for("echo out-$((40+2))", QUESTION)
        terminal.answer("y", QUESTION)
        terminal.wait_for("It printed out-42.")

        terminal.type("now count")
        terminal.press("Enter")
        terminal.wait_for("counting 0 1 2")
        terminal.press("C-c")
        terminal.wait_for("Interrupted")
        terminal.type("and go on")
        terminal.press("Enter")
        terminal.wait_for("After the break.")

        terminal.type("/save")
        terminal.press("Enter")
        terminal.wait_for("aved")
        terminal.type("/quit")
        terminal.press("Enter")
        screen = terminal.wait_for("exit=0", "--resume")
    assert "Traceback" not in screen

    command = scripted(tmp_path, [*replies, "Welcome back."], "--continue")
    with Terminal(command, work, environment(isolated_home), size=(100, 50)) as terminal:
        terminal.wait_for(
            "say hello", "Hello, I am here.", "It printed out-42.", "After the break."
        )
        terminal.type("still there?")
        terminal.press("Enter")
        terminal.wait_for("Welcome back.")
        terminal.press("C-d")
        terminal.wait_for("exit=0")


@pytest.mark.model
def test_a_real_model_in_a_terminal(
    tmp_path: Path, isolated_home: Path, smollm2_path: Path
) -> None:
    command = [sys.executable, "-m", "ds4agent", "-m", str(smollm2_path), "--device", "cpu"]
    with Terminal(command, tmp_path, environment(isolated_home)) as terminal:
        terminal.wait_for("ready", timeout_s=120)
        terminal.type("Write a very long story about a lighthouse.")
        terminal.press("Enter")
        terminal.wait_for("tok/s", timeout_s=120)
        terminal.press("C-c")
        terminal.wait_for("Interrupted")
        terminal.type("/quit")
        terminal.press("Enter")
        terminal.wait_for("exit=0", "--resume")
    with Terminal([*command, "--continue"], tmp_path, environment(isolated_home)) as terminal:
        terminal.wait_for("a very long story about a lighthouse", timeout_s=60)
        terminal.press("C-d")
        terminal.wait_for("exit=0")
