"""The list of conversations with its preview, the rules, the queue, long questions."""

import pytest

from ds4agent.events import (
    ApprovalNeeded,
    HistoryEntry,
    PermissionEntry,
    PermissionList,
    Phase,
    QueueChanged,
    SessionList,
    SessionPreview,
    SessionsFound,
    TurnStarted,
)
from ds4agent.requests import EditPermissions, Load, PreviewSession, SearchSessions, TakeBackQueued
from ds4agent.tui.widgets.composer import Composer
from ds4agent.tui.widgets.permission_screen import PermissionScreen
from ds4agent.tui.widgets.queue_preview import QueuePreview
from ds4agent.tui.widgets.status_line import StatusLine
from tests.tui.fake_worker import ready
from tests.tui.screen import rows, text, until, until_gone, until_shown
from tests.tui.test_slash_commands import summary
from tests.tui.test_untrusted_text import NASTY

RULES = (
    PermissionEntry("allow", "edit", "/home/ada/permissions.toml"),
    PermissionEntry("deny", f"bash({NASTY})", "settings"),
)


def composer(app) -> Composer:
    return app.screen_stack[0].query_one(Composer)


# --- conversations ------------------------------------------------------------------------------


async def test_picker_shows_the_end_of_what_is_highlighted(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(SessionList((summary("a", "Apples"), summary("b", "Pears"))))
        await until(pilot, lambda: worker.commands == [PreviewSession("a" * 40)])
        worker.emit(SessionPreview("a" * 40, f"You: why?\nAssistant: {NASTY}"))
        await until_shown(pilot, "You: why?", "[/] [bold [red]x")
        await pilot.press("down")
        await until_gone(pilot, "You: why?")
        await until(pilot, lambda: worker.commands[-1] == PreviewSession("b" * 40))
        worker.emit(SessionPreview("a" * 40, "late"))
        worker.emit(SessionPreview("b" * 40, "You: pears?"))
        await until_shown(pilot, "You: pears?")
        await pilot.press("up")  # known already
        await until_shown(pilot, "late")
        assert len(worker.commands) == 2


async def test_picker_also_finds_by_what_was_said(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(SessionList((summary("a", "Apples"), summary("b", "Pears"))))
        await until_shown(pilot, "Apples")
        await pilot.press(*"lexer")
        await until_shown(pilot, "Nothing saved that matches")
        await until(pilot, lambda: SearchSessions("lexer") in worker.commands)
        worker.emit(SessionsFound("lex", ("a" * 40,)))  # of words that are no longer there
        worker.emit(SessionsFound("lexer", ("b" * 40,)))
        await until_shown(pilot, "Pears")
        assert "Apples" not in text(app)
        await pilot.press("enter")
        await until(pilot, lambda: Load("b" * 40) in worker.commands)


async def test_title_is_in_the_frame_and_follows_the_conversation(open_screen):
    async with open_screen(ready(title=NASTY, history=(HistoryEntry("user", "x"),))) as opened:
        app, worker, pilot = opened
        await until_shown(pilot, "[/] [bold [red]x[/red]")
        worker.emit(ready())
        await until_gone(pilot, "[red]x")
        worker.emit(TurnStarted("Fix the parser\nplease"))
        await until(pilot, lambda: any("Fix the parser ─" in row for row in rows(app)))


# --- rules --------------------------------------------------------------------------------------


async def test_rules_are_listed_removed_and_added(open_screen):
    async with open_screen(size=(120, 30)) as (app, worker, pilot):
        worker.emit(PermissionList(RULES))
        await until_shown(pilot, "allow  edit", "permissions.toml", r"\x1b[31mred")
        await pilot.press("delete")
        await until(pilot, lambda: worker.commands == [EditPermissions("remove", "edit")])
        worker.emit(PermissionList(RULES[1:]))
        await until_gone(pilot, "allow  edit")
        await pilot.press("d", *"bash(rm *)", "enter")
        await until(pilot, lambda: worker.commands[-1] == EditPermissions("deny", "bash(rm *)"))
        await pilot.press("a", "x", "escape")
        assert isinstance(app.screen, PermissionScreen)
        await pilot.press("escape")
        await until(pilot, lambda: not isinstance(app.screen, PermissionScreen))
        assert len(worker.commands) == 2


async def test_no_rules_says_so(open_screen):
    async with open_screen() as (app, worker, pilot):
        worker.emit(PermissionList(()))
        await until_shown(pilot, "no rules here")
        await pilot.press("delete")
        assert worker.commands == []


# --- the queue ----------------------------------------------------------------------------------


async def fill_queue(worker, pilot) -> None:
    worker.is_busy = True
    for message in ("one", "two", "three", "four"):
        await pilot.press(*message, "enter")
    await until_shown(pilot, "1 earlier message", "queued: four")


async def test_any_queued_message_is_edited_with_the_keyboard(open_screen):
    async with open_screen() as (app, worker, pilot):
        await fill_queue(worker, pilot)
        await pilot.press(*"draft", "alt+up", "up", "up", "up")
        await until_shown(pilot, "queued: one", "Enter edits")
        await pilot.press("enter")
        await until(pilot, lambda: composer(app).text == "one")
        assert worker.commands[-1] == TakeBackQueued("one")
        assert composer(app).has_focus
        await until_gone(pilot, "queued: one")
        await pilot.press("up")
        assert composer(app).text == "draft"


async def test_a_queued_message_is_dropped(open_screen):
    async with open_screen() as (app, worker, pilot):
        await fill_queue(worker, pilot)
        await pilot.press("alt+up", "up", "delete")
        await until_gone(pilot, "queued: three")
        assert composer(app).text == ""
        await pilot.press("escape", "x")
        assert composer(app).text == "x"
        worker.emit(QueueChanged(()))
        await until_gone(pilot, "queued")


async def test_a_click_takes_a_queued_message_back(open_screen):
    async with open_screen() as (app, worker, pilot):
        await fill_queue(worker, pilot)
        await pilot.click(QueuePreview, offset=(5, 1))
        await until(pilot, lambda: composer(app).text == "two")


# --- questions ----------------------------------------------------------------------------------


async def test_a_long_question_says_what_is_out_of_sight(open_screen, monkeypatch):
    monkeypatch.setattr("ds4agent.tui.widgets.approval.GUARD_S", 0.0)
    change = "--- a/x\n+++ b/x\n@@ -1 +1,40 @@\n" + "".join(f"+line {n}\n" for n in range(40))
    async with open_screen() as (app, worker, pilot):
        worker.emit(ApprovalNeeded("c", "edit", "edit: x", "", change, False))
        await until_shown(pilot, "more lines · Page Down", "+line 1", "› y yes, once")
        assert "+++ b/x" not in text(app)
        for _ in range(8):
            await pilot.press("pagedown")
        await until_shown(pilot, "+line 39", "▴ Page Up")
        worker.emit(ApprovalNeeded("d", "bash", "bash: ls", "ls", "", False))
        await until_gone(pilot, "▴ Page Up")


# --- the status line ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("done", "total", "rate", "says"),
    [(1000, 2000, 100.0, "10 s left"), (0, 60_000, 100.0, "10 min left"), (5, 5, 1.0, "")],
)
def test_a_prefill_says_how_long_it_still_takes(done, total, rate, says):
    line = StatusLine()
    status = line.status
    status.phase, status.done, status.total, status.tokens_per_s = Phase.PREFILL, done, total, rate
    shown = line.line(140).plain
    assert says in shown
    assert ("left" in shown) == bool(says)
