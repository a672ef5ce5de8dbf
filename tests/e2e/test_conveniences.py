"""What only a real terminal shows: the editor takes it over, the clipboard gets what is copied."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.test_terminal import environment, scripted
from tests.fakes.terminal import Terminal

pytestmark = pytest.mark.skipif(shutil.which("tmux") is None, reason="needs tmux")


def test_files_editor_clipboard_export_and_history(tmp_path: Path, isolated_home: Path) -> None:
    work = tmp_path / "project"
    (work / "src").mkdir(parents=True)
    (work / "src" / "parser.py").write_text("x = 1\n", encoding="utf-8")
    editor = tmp_path / "editor.sh"
    lines = ["#!/bin/sh", 'echo "EDITOR RUNS"', "read answer", """printf ', quick' >>"$1" """]
    editor.write_text("\n".join(lines), encoding="utf-8")
    editor.chmod(0o755)
    settings = environment(isolated_home) | {"EDITOR": str(editor)}
    command = scripted(tmp_path, ["Take this:\n\n```sh\nls -l\n```\n", "Done."])
    with Terminal(command, work, settings) as terminal:
        terminal.wait_for("scripted")
        terminal.type("look at @pars")
        terminal.wait_for("src/parser.py")
        terminal.press("Tab", "C-g")
        screen = terminal.wait_for("EDITOR RUNS")
        assert "Ask for" not in screen
        terminal.press("C-c")  # the editor's business: it ends, the agent stays and keeps the text
        terminal.wait_for("look at @src/parser.py", "nothing taken")
        terminal.press("C-g")
        terminal.wait_for("EDITOR RUNS")
        terminal.press("Enter")
        terminal.wait_for("look at @src/parser.py , quick")
        terminal.press("Enter")
        terminal.wait_for("ls -l", "tokens")

        terminal._tmux("set-option", "-s", "set-clipboard", "on")
        terminal.type("/copy code")
        terminal.press("Enter")
        terminal.wait_for("Copied the block of code")
        assert terminal._tmux("show-buffer") == "ls -l\n"
        terminal.type("/export talk.html")
        terminal.press("Enter")
        terminal.wait_for("Wrote")
        assert "ls -l" in (work / "talk.html").read_text(encoding="utf-8")
        terminal.press("C-d")
        terminal.wait_for("exit=0")

    with Terminal(scripted(tmp_path, ["Again."]), work, settings) as terminal:
        terminal.wait_for("scripted")
        terminal.press("C-r")
        terminal.type("quick")
        terminal.wait_for("look at @src/parser.py , quick")
        terminal.press("Enter", "Enter")
        terminal.wait_for("Again.")
        terminal.press("C-d")
        terminal.wait_for("exit=0")
