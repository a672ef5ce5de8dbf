from ds4agent.events import (
    ApprovalNeeded,
    HistoryEntry,
    Notice,
    QueueChanged,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    ToolFinished,
    ToolOutput,
    TurnStarted,
)
from ds4agent.tui.plain import one_line, printable, visible
from ds4agent.tui.widgets.answer import Answer
from tests.tui.fake_worker import ready
from tests.tui.screen import text, until, until_shown

NASTY = "[/] [bold [red]x[/red] [@click=app.quit]y[/] \x1b[31mred\x1b]0;title\x07 \x00end"
SHOWN = "[/] [bold [red]x[/red] [@click=app.quit]y[/] red end"


EVENTS = (
    TurnStarted(NASTY),
    ThinkingDelta(NASTY),
    ToolOutput("call-1", NASTY),
    ToolCallDelta("call-2", NASTY),
    ToolCallStarted("call-3", NASTY),
    ToolCallReady("call-4", "bash", {"command": NASTY}, NASTY, NASTY),
    ToolFinished("call-5", "bash", True, NASTY, NASTY),
    ToolFinished("call-6", "edit", True, "edit", "ok", f"@@ -1 +1 @@\n+{NASTY}"),
    Notice(NASTY, "error"),
    QueueChanged((NASTY,)),
)


async def test_nasty_text_is_shown_as_text(open_screen):
    async with open_screen(size=(120, 24)) as (app, worker, pilot):
        for event in EVENTS:
            worker.emit(ready(), QueueChanged(()))  # an empty screen again
            await until(pilot, lambda: SHOWN not in text(app))
            worker.emit(event)
            await until(pilot, lambda: SHOWN in text(app), f"{event}")


async def test_nasty_history_is_shown_as_text(open_screen):
    history = (HistoryEntry("user", NASTY),)
    async with open_screen(ready(title=NASTY, history=history), size=(120, 24)) as opened:
        app, _, pilot = opened
        await until(pilot, lambda: text(app).count(SHOWN) == 2)


async def test_nasty_markdown_is_shown_as_text(open_screen):
    async with open_screen(size=(120, 24)) as (app, worker, pilot):
        worker.emit(TextDelta(f"see {NASTY} and vector<int> <b>bold</b>"))
        await until_shown(pilot, "[/] [bold [red]x", "red end", "vector<int> <b>bold</b>")


async def test_nasty_question_is_shown_as_text(open_screen):
    async with open_screen(size=(120, 24)) as (app, worker, pilot):
        worker.emit(ApprovalNeeded("call-1", "bash", "bash: [/] [bold", "[/] [bold", "", False))
        await until_shown(pilot, "Allow bash: [/] [bold?")


async def test_a_link_opens_nothing_and_shows_where_it_leads(open_screen, monkeypatch):
    opened = []
    async with open_screen() as (app, worker, pilot):
        monkeypatch.setattr(app, "open_url", lambda *arguments, **_: opened.append(arguments))
        worker.emit(TextDelta("[click me](https://evil.example/x'y)"))
        await until_shown(pilot, "click me")
        await pilot.click(Answer, offset=(4, 0))
        await until_shown(pilot, "The link leads to https://evil.example/x'y")
        assert opened == []


async def test_odd_line_separators_do_not_disturb_streamed_markdown(open_screen):
    line = "\u2028\u0085\x0b\x0c\x1c"
    async with open_screen() as (app, worker, pilot):
        for piece in (f"one{line}two\n\n", "# Head\n\n", f"three{line}\n\n", "four\n"):
            await app.controller.apply([TextDelta(piece)])
        await until_shown(pilot, "onetwo", "Head", "three", "four")
        assert text(app).count("four") == 1


def test_printable_removes_sequences_and_keeps_text():
    assert printable("a\x1b[1;31mb\x1b]8;;http://x\x1b\\c\r\nd\te") == "abc\nd    e"
    assert printable("\ud800x\u202ey") == "\N{REPLACEMENT CHARACTER}xy"
    assert printable("日本語 é 👍") == "日本語 é 👍"


def test_visible_spells_out_what_printable_removes():
    assert visible("a\x1b[0m\u202eb\x9b") == "a\\x1b[0m\\u202eb\\x9b"


def test_one_line_joins_lines():
    assert one_line(" a\n\tb ") == "a b"
