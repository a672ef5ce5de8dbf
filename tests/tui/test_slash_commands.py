import time

import pytest

from ds4agent.commands import COMMANDS, CommandTable
from ds4agent.errors import UsageError
from ds4agent.events import (
    Outcome,
    SessionList,
    SessionSummary,
    TextDelta,
    TurnEnded,
    TurnStarted,
    Usage,
)
from ds4agent.extensions.markdown_commands import read_commands
from ds4agent.requests import (
    Compact,
    EditPermissions,
    Fork,
    ListSessions,
    Load,
    Mode,
    New,
    Quit,
    Redo,
    Rewind,
    Save,
    SetMode,
    ShowDiff,
    Submit,
    Trust,
    Undo,
)
from ds4agent.tui.keys import KEYS
from ds4agent.tui.slash import interpret
from ds4agent.tui.theme import theme_name
from ds4agent.tui.widgets.composer import Composer
from ds4agent.tui.widgets.session_picker import SessionPicker
from ds4agent.tui.widgets.suggestions import Suggestions
from tests.tui.fake_worker import ready
from tests.tui.screen import text, until, until_gone, until_shown


def summary(letter: str, title: str, **changes) -> SessionSummary:
    values = {
        "id": letter * 40,
        "title": title,
        "cwd": "/home/ada/project",
        "model": "tiny-coder",
        "tokens": 12_345,
        "file_bytes": 5_300_000,
        "created_at": 0,
        "last_used": int(time.time()) - 3600,
        "resumable": True,
    }
    return SessionSummary(**(values | changes))


# One line of each command, and what it asks of the worker or shows by itself.
EACH = {
    "help": ("/help", "Esc closes"),
    "save": ("/save", Save()),
    "load": ("/load ab12 copy", Load("ab12", "copy")),
    "fork": ("/fork other way", Fork("other way")),
    "rewind": ("/rewind 2 files", Rewind(2, with_files=True)),
    "list": ("/resume", ListSessions()),
    "new": ("/new", New()),
    "mode": ("/mode auto", SetMode(Mode.AUTO)),
    "undo": ("/undo", Undo()),
    "redo": ("/redo", Redo()),
    "diff": ("/diff all", ShowDiff(True)),
    "compact": ("/compact the plan", Compact("the plan")),
    "permissions": ("/permissions deny bash(rm *)", EditPermissions("deny", "bash(rm *)")),
    "copy": ("/copy", "no answer to copy"),
    "export": ("/export", "nothing to export"),
    "settings": ("/settings", "Enter changes"),
    "theme": ("/theme", "The theme is auto"),
    "mouse": ("/mouse off", "belongs to the terminal"),
    "trust": ("/trust no", Trust(False)),
    "quit": ("/exit", Quit()),
}


def test_each_command_has_a_line_here():
    assert set(EACH) == {entry.name for entry in COMMANDS}


@pytest.mark.parametrize("name", EACH)
async def test_each_command_does_what_it_says(open_screen, name):
    typed, expected = EACH[name]
    async with open_screen() as (app, worker, pilot):
        app.query_one(Composer).set_text(typed)
        await pilot.press("enter")
        if isinstance(expected, str):
            await until_shown(pilot, expected)
            assert worker.commands == []
        else:
            await until(pilot, lambda: worker.commands == [expected])
        assert app.screen_stack[0].query_one(Composer).text == ""


async def test_help_lists_every_command_and_key(open_screen):
    async with open_screen(size=(120, 80)) as (app, worker, pilot):
        await pilot.press(*"/help", "enter")
        await until_shown(pilot, *(entry.usage for entry in COMMANDS))
        await until_shown(pilot, *(says[:40] for _, says in KEYS))
        await pilot.press("escape", "x")
        assert app.query_one(Composer).text == "x"
        assert worker.commands == []


async def test_f1_opens_the_help_and_closes_it(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press("f1")
        await until_shown(pilot, "show commands and keys")
        await pilot.press("f1")
        await until_gone(pilot, "show commands and keys")


async def test_copy_takes_the_answer_its_code_or_all(open_screen):
    async with open_screen() as (app, worker, pilot):
        answer = "Use\n\n```sh\nls -l\n```\nnow"
        worker.emit(TurnStarted("how?"), TextDelta(answer), TurnEnded(Outcome.DONE, Usage()))
        await until_shown(pilot, "now")
        for typed, copied in (("/copy", answer), ("/copy code", "ls -l\n")):
            app.query_one(Composer).set_text(typed)
            await pilot.press("enter")
            await until(pilot, lambda copied=copied: app.clipboard == copied)
        app.query_one(Composer).set_text("/copy all")
        await pilot.press("enter")
        await until(pilot, lambda: "## You" in app.clipboard)
        await until_shown(pilot, "Copied the conversation")


async def test_copy_without_an_answer_says_so(open_screen):
    async with open_screen() as (app, worker, pilot):
        app.query_one(Composer).set_text("/copy code")
        await pilot.press("enter")
        await until_shown(pilot, "no block of code to copy")


async def test_export_writes_a_file_into_the_agents_folder(open_screen, tmp_path):
    async with open_screen(ready(cwd=str(tmp_path))) as (app, worker, pilot):
        worker.emit(TurnStarted("how?"), TextDelta("like this"), TurnEnded(Outcome.DONE, Usage()))
        await until_shown(pilot, "like this", "0 tokens")
        for _ in range(2):
            app.query_one(Composer).set_text("/export talk.html")
            await pilot.press("enter")
        await until_shown(pilot, "Wrote", "exists already")
        assert "like this" in (tmp_path / "talk.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["light", "ansi", "high-contrast", "dark"])
async def test_theme_changes_the_colours(open_screen, name):
    async with open_screen() as (app, worker, pilot):
        before = app.theme
        app.query_one(Composer).set_text(f"/theme {name}")
        await pilot.press("enter")
        await until(pilot, lambda: app.theme == theme_name(name, {}))
        assert (app.theme == before) == (name == "dark")
        await until_shown(pilot, "ask")


async def test_mouse_goes_to_the_terminal_and_comes_back(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press("f6")
        await until_shown(pilot, "belongs to the terminal")
        app.query_one(Composer).set_text("/mouse on")
        await pilot.press("enter")
        await until(pilot, lambda: app.has_mouse)


async def test_unknown_command_is_never_sent_and_names_the_nearest(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"/sawe now", "enter")
        await until_shown(pilot, "there is no command /sawe", "/save")
        assert worker.commands == []
        assert app.query_one(Composer).text == "/sawe now"


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("/mode yolo", "plan, ask, auto"),
        ("/save now", "takes no argument"),
        ("/load", "needs ID"),
        ("/", "no command"),
        ("/s", "/save"),
    ],
)
def test_wrong_argument_says_what_was_expected(typed, says):
    with pytest.raises(UsageError) as caught:
        interpret(typed, CommandTable())
    assert says in f"{caught.value} {caught.value.hint}"


def test_unfinished_word_counts_when_it_is_unique():
    assert interpret("/q", CommandTable()) == Quit()


async def test_mode_without_an_argument_tells_the_mode(open_screen):
    async with open_screen() as (app, worker, pilot):
        app.query_one(Composer).set_text("/mode")
        await pilot.press("enter")
        await until_shown(pilot, "The mode is ask.")
        assert worker.commands == []


async def test_new_has_to_wait_for_the_end_of_a_turn(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(TurnStarted("go"))
        await until_shown(pilot, "▌ go")
        app.query_one(Composer).set_text("/new")
        await pilot.press("enter")
        await until_shown(pilot, "has to wait")
        assert worker.commands == []


async def test_suggestions_open_while_typing_and_tab_completes(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press("/")
        await until_shown(pilot, "/help", "show commands and keys", "/save")
        await pilot.press("l")
        await until(pilot, lambda: "/save" not in text(app))
        await pilot.press("down", "up", "tab")
        assert app.query_one(Composer).text == "/load "
        await until(pilot, lambda: not app.query_one(Suggestions).is_open)


async def test_escape_closes_the_suggestions_and_keeps_the_text(open_screen):
    async with open_screen() as (app, worker, pilot):
        await pilot.press("/", "escape")
        assert not app.query_one(Suggestions).is_open
        assert app.query_one(Composer).text == "/"


async def test_picker_shows_sessions_and_enter_loads(open_screen):
    async with open_screen(size=(110, 24)) as (app, worker, pilot):
        worker.emit(SessionList((summary("a", "First"), summary("b", "Second [/] one"))))
        await until_shown(pilot, "First", "Second [/] one", "1h", "12.3k tok", "5.3 MB", "project")
        await pilot.press("down", "enter")
        await until(pilot, lambda: Load("b" * 40) in worker.commands)


async def test_picker_filters_and_escape_closes(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(SessionList((summary("a", "Apples"), summary("b", "Pears"))))
        await until_shown(pilot, "Apples")
        await pilot.press(*"pear")
        await until(pilot, lambda: "Apples" not in text(app))
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, SessionPicker))
        assert not any(isinstance(command, Load) for command in worker.commands)


async def test_picker_does_not_load_a_session_of_another_model(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(SessionList((summary("a", "Old", resumable=False, model="other-7b"),)))
        await until_shown(pilot, "Old")
        await pilot.press("enter")
        await until_shown(pilot, "was made with the model other-7b")
        assert not any(isinstance(command, Load) for command in worker.commands)


async def test_picker_says_when_there_is_nothing(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(SessionList(()))
        await until_shown(pilot, "Nothing saved")
        await pilot.press("enter", "escape")
        await until(pilot, lambda: not isinstance(app.screen, SessionPicker))


def test_command_of_a_markdown_file_is_completed_and_sent_as_a_message(tmp_path) -> None:
    (tmp_path / "review.md").write_text("# Look twice\nReview $ARGUMENTS.", encoding="utf-8")
    commands, problems = read_commands([tmp_path])
    assert not problems
    table = CommandTable(command.entry() for command in commands)
    assert "Look twice" in table.help_text()
    assert interpret("/rev a.py", table) == Submit("Review a.py.")
