"""``! command``: the person's own shell."""

import time
from pathlib import Path

from ds4agent.requests import Submit
from ds4agent.tui.own_shell import OwnShell, ShellResult
from ds4agent.tui.widgets.composer import Composer
from tests.tui.fake_worker import ready
from tests.tui.screen import until, until_shown


def run(command: str, folder: Path) -> ShellResult:
    results: list[ShellResult] = []
    shell = OwnShell()
    shell.run(command, folder, results.append)
    shell._thread.join(20.0)
    return results[0]


def composer(app) -> Composer:
    return app.screen_stack[0].query_one(Composer)


def test_output_and_exit_code_are_told(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("", encoding="utf-8")
    assert run("ls", tmp_path).text.startswith("$ ls\na.txt\n")
    assert run("echo no >&2; exit 3", tmp_path).text.endswith("no\n(exit 3)")
    assert run("cat", tmp_path).text == "$ cat"  # its input is empty


def test_control_sequences_are_dropped_and_long_output_is_cut(tmp_path: Path) -> None:
    assert run("printf '\\033[31mred\\033[0m'", tmp_path).output == "red"
    text = run("seq 1000", tmp_path).text
    assert "(800 lines before)\n801\n" in text and text.endswith("\n1000")


def test_a_child_in_the_background_does_not_hold_it_up(tmp_path: Path) -> None:
    began = time.monotonic()
    assert run("sleep 30 & echo done", tmp_path).output == "done\n"
    assert time.monotonic() - began < 15.0


def test_what_cannot_be_run_says_why(tmp_path: Path, monkeypatch) -> None:
    assert "cannot run it" in run("ls", tmp_path / "gone").text
    monkeypatch.setenv("SHELL", "/no/such/shell")
    assert "cannot run it" in run("ls", tmp_path).text


async def test_a_command_runs_in_the_agents_folder_and_is_not_sent(open_screen, tmp_path):
    (tmp_path / "here.txt").write_text("", encoding="utf-8")
    async with open_screen(ready(cwd=str(tmp_path))) as (app, worker, pilot):
        await pilot.press(*"!ls here*", "enter")
        await until_shown(pilot, "$ ls here*", "here.txt")
        assert worker.commands == []
        assert composer(app).text == ""


async def test_two_marks_put_the_output_into_the_message(open_screen, tmp_path):
    async with open_screen(ready(cwd=str(tmp_path))) as (app, worker, pilot):
        await pilot.press(*"!!seq 30", "enter")
        await until_shown(pilot, "[pasted text 1: 31 lines]")
        await pilot.press(*"why?", "enter")
        sent = "$ seq 30\n" + "".join(f"{n}\n" for n in range(1, 31)) + "why?"
        await until(pilot, lambda: worker.commands == [Submit(sent)])


async def test_escape_ends_a_running_command(open_screen, tmp_path):
    async with open_screen(ready(cwd=str(tmp_path))) as (app, worker, pilot):
        await pilot.press(*"!sleep 60", "enter")
        await until_shown(pilot, "running sleep 60")
        await pilot.press(*"!ls", "enter")
        await until_shown(pilot, "One command at a time")
        await pilot.press("escape")
        await until_shown(pilot, "(stopped)")
        assert worker.interrupts == 0
