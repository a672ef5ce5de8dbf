"""What the composer adds to typing: files, arguments, pastes, history, the editor."""

import contextlib
import stat
import sys
from pathlib import Path

import pytest
from textual.events import Key, Paste

from ds4agent import paths
from ds4agent.config import Config
from ds4agent.events import HistoryEntry
from ds4agent.requests import ListSessions, SetMode, Submit
from ds4agent.tui.input_history import InputHistory
from ds4agent.tui.widgets.composer import Composer
from ds4agent.tui.widgets.suggestions import Suggestions
from tests.tui.fake_worker import ready
from tests.tui.screen import text, until, until_shown

LONG = "\n".join(f"line {number}" for number in range(30))


def composer(app) -> Composer:
    return app.screen_stack[0].query_one(Composer)


def suggestions(app) -> Suggestions:
    return app.screen_stack[0].query_one(Suggestions)


def put(text: str) -> Paste:
    return Paste(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    top = tmp_path / "work"
    (top / "src").mkdir(parents=True)
    for name in ("src/parser.py", "src/a name.py", "README.md", "src/日本.txt"):
        (top / name).write_text("x", encoding="utf-8")
    return top


# --- files --------------------------------------------------------------------------------------


async def test_at_lists_files_and_tab_takes_one(open_screen, folder):
    async with open_screen(ready(cwd=str(folder))) as (app, worker, pilot):
        await pilot.press(*"see @par")
        await until_shown(pilot, "src/parser.py")
        await pilot.press("tab", *"now", "enter")
        await until(pilot, lambda: worker.commands == [Submit("see @src/parser.py now")])


async def test_enter_takes_the_file_and_does_not_send(open_screen, folder):
    async with open_screen(ready(cwd=str(folder))) as (app, worker, pilot):
        await pilot.press(*"@name")
        await until_shown(pilot, "src/a name.py")
        await pilot.press("enter")
        assert composer(app).text == '@"src/a name.py" '
        assert worker.commands == []
        await pilot.press("enter")
        await until(pilot, lambda: len(worker.commands) == 1)


async def test_a_folder_goes_on_with_what_is_inside(open_screen, folder):
    async with open_screen(ready(cwd=str(folder))) as (app, worker, pilot):
        await pilot.press(*"@src")
        await until_shown(pilot, "src/")
        await pilot.press("tab")
        assert composer(app).text == "@src/"
        await until_shown(pilot, "src/日本.txt", "src/parser.py")
        await pilot.press("escape")
        assert not suggestions(app).is_open
        assert composer(app).text == "@src/"


async def test_files_are_completed_in_the_middle_of_a_text(open_screen, folder):
    async with open_screen(ready(cwd=str(folder))) as (app, worker, pilot):
        composer(app).set_text("look at  please")
        await pilot.press(*["left"] * 7, *"@read")
        await until_shown(pilot, "README.md")
        await pilot.press("tab")
        assert composer(app).text == "look at @README.md  please"


async def test_an_address_is_no_mention(open_screen, folder):
    async with open_screen(ready(cwd=str(folder))) as (app, worker, pilot):
        await pilot.press(*"ada@par")
        await pilot.pause(0.05)
        assert not suggestions(app).is_open


# --- commands -----------------------------------------------------------------------------------


async def test_arguments_are_completed(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"/mode p")
        await until_shown(pilot, "plan")
        await pilot.press("enter")
        await until(pilot, lambda: [type(c) for c in worker.commands] == [SetMode])


async def test_a_command_is_found_by_some_of_its_letters(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"/xprt")
        await until_shown(pilot, "/export")
        await pilot.press("tab")
        assert composer(app).text == "/export "


async def test_enter_runs_the_command_that_was_chosen(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"/li", "enter")
        await until(pilot, lambda: worker.commands == [ListSessions()])
        await pilot.press(*"/m", "down", "enter")
        await until_shown(pilot, "belongs to the terminal")


async def test_enter_right_behind_the_last_letters_takes_no_older_suggestion(open_screen):
    """Keys that come before the screen heard of what the ones before changed."""
    async with open_screen() as (app, worker, pilot):
        composer = app.query_one(Composer)
        await pilot.press(*"/cop")
        await until_shown(pilot, "/copy")
        composer.insert("y code")
        composer._takes(Key("enter", "\r"))
        assert composer.text == "/copy code"
        await until_shown(pilot, "/copy code", "no block of code")


async def test_enter_on_a_command_that_needs_more_waits_for_it(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"/loa", "enter")
        assert composer(app).text == "/load "
        assert worker.commands == []


async def test_a_click_takes_a_suggestion(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"/ex")
        await until_shown(pilot, "/export")
        await pilot.click(Suggestions, offset=(3, 0))
        await until(pilot, lambda: composer(app).text == "/export ")
        assert composer(app).has_focus


# --- pastes -------------------------------------------------------------------------------------


async def test_a_large_paste_is_one_mark_and_is_sent_whole(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"this ")
        composer(app).post_message(put(LONG))
        await until_shown(pilot, "this [pasted text 1: 30 lines]")
        await pilot.press(*" ok", "enter")
        await until(pilot, lambda: worker.commands == [Submit(f"this {LONG} ok")])
        await pilot.press("up")
        assert composer(app).text == f"this {LONG} ok"


async def test_ctrl_o_unfolds_a_paste(open_screen):
    async with open_screen() as (app, worker, pilot):
        composer(app).post_message(put(LONG))
        await until_shown(pilot, "[pasted text 1")
        await pilot.press("ctrl+o")
        assert composer(app).text == LONG


@pytest.mark.parametrize("keys", ["backspace", "ctrl+w", "home delete", "left delete"])
async def test_a_mark_is_deleted_as_a_whole(open_screen, keys):
    async with open_screen() as (app, worker, pilot):
        composer(app).post_message(put(LONG))
        await until_shown(pilot, "[pasted text 1")
        await pilot.press(*keys.split())
        assert composer(app).text == ""


async def test_nothing_is_typed_into_a_mark(open_screen):
    async with open_screen() as (app, worker, pilot):
        composer(app).post_message(put(LONG))
        await until_shown(pilot, "[pasted text 1")
        await pilot.press("left", "left", "x", "enter")
        await until(pilot, lambda: worker.commands == [Submit(f"{LONG}x")])


async def test_a_mark_inside_a_paste_is_no_mark(open_screen):
    async with open_screen() as (app, worker, pilot):
        composer(app).post_message(put(LONG))
        composer(app).post_message(put(f"[pasted text 1: 30 lines]\n{LONG}"))
        await until_shown(pilot, "[pasted text 2")
        await pilot.press("enter")
        expected = f"{LONG}[pasted text 1: 30 lines]\n{LONG}"
        await until(pilot, lambda: worker.commands == [Submit(expected)])


# --- history ------------------------------------------------------------------------------------


async def test_what_was_sent_is_there_in_the_next_run(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"first", "enter", *"/mode", "enter")
        await until(pilot, lambda: InputHistory().read() == ["first"])
    async with open_screen() as (app, worker, pilot):
        await until(pilot, lambda: composer(app)._sent)
        await pilot.press("up")
        assert composer(app).text == "first"
    assert stat.S_IMODE(paths.input_history_file().stat().st_mode) == 0o600


async def test_nothing_is_kept_where_the_person_wants_none(open_screen):
    config = Config().with_values({"history": False}, "--no-save")
    async with open_screen(config=config) as (app, worker, pilot):
        await pilot.press(*"secret", "enter", "up")
        assert composer(app).text == "secret"  # in this run it is there
    assert not paths.input_history_file().exists()


async def test_ctrl_r_searches_in_what_was_sent(open_screen):
    async with open_screen() as (app, worker, pilot):
        for sent in ("fix the parser", "write a test", "fix the lexer"):
            composer(app).remember(sent)
        await pilot.press("ctrl+r", *"fix")
        await until_shown(pilot, "fix the parser", "fix the lexer")
        assert "write a test" not in text(app)
        await pilot.press("ctrl+r", "enter")
        assert composer(app).text == "fix the parser"
        assert worker.commands == []


async def test_escape_ends_the_search(open_screen):
    async with open_screen() as (app, worker, pilot):
        composer(app).remember("fix the parser")
        await pilot.press("ctrl+r", *"nothing like it", "escape", "!", "escape")
        assert composer(app).text == "nothing like it!"
        assert worker.interrupts == 0


async def test_words_that_find_nothing_are_not_sent(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press("ctrl+r", *"no such", "enter")
        assert worker.commands == []
        await pilot.press("enter")
        await until(pilot, lambda: worker.commands == [Submit("no such")])


async def test_a_recalled_command_does_not_catch_the_arrows(open_screen):
    async with open_screen() as (app, worker, pilot):
        composer(app).remember("older")
        composer(app).remember("/list")
        await pilot.press("up", "up")
        assert composer(app).text == "older"


# --- the editor ---------------------------------------------------------------------------------


@pytest.fixture
def free_terminal(monkeypatch):
    monkeypatch.setattr("ds4agent.tui.app.AgentApp.suspend", lambda self: contextlib.nullcontext())


async def test_ctrl_g_writes_in_the_editor(open_screen, monkeypatch, tmp_path, free_terminal):
    script = tmp_path / "editor.py"
    script.write_text(
        "import pathlib, sys\npath = pathlib.Path(sys.argv[1])\n"
        "path.write_text(path.read_text() + ' world\\n')\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("EDITOR", f"{sys.executable} {script}")
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"hello", "ctrl+g")
        assert composer(app).text == "hello world"
        assert worker.commands == []


async def test_an_editor_that_fails_changes_nothing(open_screen, monkeypatch, free_terminal):
    monkeypatch.setenv("EDITOR", "false")
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"hello", "ctrl+g")
        await until_shown(pilot, "false ended with 1")
        assert composer(app).text == "hello"


async def test_no_editor_says_so(open_screen, monkeypatch, free_terminal):
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("PATH", "")
    async with open_screen() as (app, worker, pilot):
        await pilot.press("ctrl+g")
        await until_shown(pilot, "no editor")


async def test_what_is_recalled_of_a_conversation_is_inert(open_screen):
    history = (HistoryEntry("user", "a\x1b[31mb\u202ec\u200b\x07"),)
    async with open_screen(ready(history=history)) as (app, worker, pilot):
        await until_shown(pilot, "Opened")
        await pilot.press("up")
        assert composer(app).text == "abc"
        await pilot.press("ctrl+r")
        await until_shown(pilot, "abc")


# --- letters of all kinds -----------------------------------------------------------------------


@pytest.mark.parametrize("word", ["日本語", "e\u0301te\u0301", "שלום", "👍🏽 ok", "مرحبا"])
async def test_the_cursor_steps_through_letters_of_all_kinds(open_screen, word):
    async with open_screen() as (app, worker, pilot):
        composer(app).post_message(put(word))
        await until(pilot, lambda: composer(app).text == word)
        await pilot.press("home", "x", "end", "y", "enter")
        await until(pilot, lambda: worker.commands == [Submit(f"x{word}y")])


async def test_ctrl_underscore_takes_an_edit_back(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"one", "ctrl+u", "ctrl+underscore")
        assert composer(app).text == "one"
