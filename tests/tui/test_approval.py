import pytest

from ds4agent.events import (
    ApprovalNeeded,
    Outcome,
    Phase,
    PhaseChanged,
    ToolCallReady,
    ToolFinished,
    TurnEnded,
    Usage,
)
from ds4agent.requests import Answer, EditPermissions
from ds4agent.tui.widgets import approval
from ds4agent.tui.widgets.approval import ApprovalPanel
from ds4agent.tui.widgets.composer import Composer
from tests.tui.screen import text, until, until_gone, until_shown

QUESTION = ApprovalNeeded(
    "call-1", "bash", "bash: make install", "make install\nin /home/ada/project", "", False
)
RISKY = ApprovalNeeded("call-2", "bash", "bash: rm -rf /", "rm -rf /", "", True)
CHANGE = ApprovalNeeded("call-3", "edit", "edit: a.py", "", "@@ -1 +1 @@\n-old\n+new\n", False)


@pytest.fixture
def no_guard(monkeypatch):
    monkeypatch.setattr(approval, "GUARD_S", 0.0)


def ask(worker, question: ApprovalNeeded) -> None:
    worker.emit(
        ToolCallReady(question.call_id, question.name, {}, question.title),
        PhaseChanged(Phase.APPROVAL),
        question,
    )


async def test_panel_shows_the_exact_command_and_folder(open_screen):
    async with open_screen() as (app, worker, pilot):
        ask(worker, QUESTION)
        await until_shown(pilot, "Allow bash: make install?", "make install", "in /home/ada/pro")


async def test_panel_shows_the_diff(open_screen):
    async with open_screen() as (app, worker, pilot):
        ask(worker, CHANGE)
        await until_shown(pilot, "Allow edit: a.py?", "-old", "+new")


async def test_panel_spells_out_control_characters(open_screen):
    hidden = ApprovalNeeded("call-4", "bash", "bash: ls", "ls\x1b[8m; rm x\u202e", "", False)
    async with open_screen() as (app, worker, pilot):
        ask(worker, hidden)
        await until_shown(pilot, r"ls\x1b[8m; rm x\u202e")


@pytest.mark.parametrize(
    ("key", "answer"),
    [
        ("y", Answer("call-1", True)),
        ("a", Answer("call-1", True, always=True)),
        ("enter", Answer("call-1", True)),
    ],
)
async def test_key_approves(open_screen, no_guard, key, answer):
    async with open_screen() as (app, worker, pilot):
        ask(worker, QUESTION)
        await until_shown(pilot, "Allow")
        await pilot.press(key)
        await until(pilot, lambda: worker.commands == [answer])
        await until_gone(pilot, "Allow")
        assert app.query_one(Composer).has_focus


async def test_no_takes_an_optional_reason(open_screen, no_guard):
    async with open_screen() as (app, worker, pilot):
        ask(worker, QUESTION)
        await until_shown(pilot, "Allow")
        await pilot.press("n", *"use pip", "enter")
        await until(pilot, lambda: worker.commands)
        assert worker.commands == [Answer("call-1", False, reason="use pip")]


async def test_a_rule_is_edited_before_it_is_remembered(open_screen, no_guard):
    question = ApprovalNeeded("c", "bash", "bash: make a", "make a", "", False, "bash(=make a)")
    async with open_screen() as (app, worker, pilot):
        ask(worker, question)
        await until_shown(pilot, "e edit the rule", "n no")
        await pilot.press("e")
        await until_shown(pilot, "bash(=make a)")
        await pilot.press(*["backspace"] * 8, *"make *)", "enter")
        await until(pilot, lambda: len(worker.commands) == 2)
        assert worker.commands == [EditPermissions("allow", "bash(make *)"), Answer("c", True)]


async def test_without_a_rule_there_is_none_to_edit(open_screen, no_guard):
    async with open_screen() as (app, worker, pilot):
        ask(worker, QUESTION)
        await until_shown(pilot, "Allow")
        assert "edit the rule" not in text(app)
        await pilot.press("e", "left", "enter", "enter")  # to the last choice: no
        await until(pilot, lambda: worker.commands == [Answer("call-1", False)])


async def test_the_rule_can_be_edited_where_its_choice_has_no_room(open_screen, no_guard):
    question = ApprovalNeeded("c", "bash", "bash: make", "make", "", False, "bash(=make)")
    async with open_screen(size=(40, 24)) as (app, worker, pilot):
        ask(worker, question)
        await until_shown(pilot, "› y yes")
        await pilot.press("e", "escape", "left", "enter", "enter")
        await until(pilot, lambda: worker.commands == [Answer("c", False)])


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
async def test_all_choices_are_there_on_any_screen(open_screen, columns):
    rule = "bash(=make install a very long target with many words)"
    question = ApprovalNeeded("c", "bash", "bash: make", "make", "", False, rule)
    async with open_screen(size=(columns, 24)) as (app, worker, pilot):
        ask(worker, question)
        await until_shown(
            pilot, "› y yes", " a always", " n no", *([" e "] if columns > 50 else [])
        )
        await until(pilot, lambda: app.query_one(ApprovalPanel).has_focus)


async def test_the_default_of_a_risky_call_is_no(open_screen, no_guard):
    async with open_screen() as (app, worker, pilot):
        ask(worker, RISKY)
        await until_shown(pilot, "! Allow", "› n no")
        await pilot.press("enter", "enter")
        await until(pilot, lambda: worker.commands == [Answer("call-2", False)])


async def test_arrows_move_the_choice(open_screen, no_guard):
    async with open_screen() as (app, worker, pilot):
        ask(worker, QUESTION)
        await until_shown(pilot, "› y yes, once")
        await pilot.press("right")
        await until_shown(pilot, "› a always")
        await pilot.press("enter")
        await until(pilot, lambda: worker.commands == [Answer("call-1", True, always=True)])


async def test_escape_interrupts_instead_of_answering(open_screen, no_guard):
    async with open_screen() as (app, worker, pilot):
        ask(worker, QUESTION)
        await until_shown(pilot, "Allow")
        await pilot.press("escape")
        await until(pilot, lambda: worker.interrupts == 1)
        assert worker.commands == []
        worker.emit(ToolFinished("call-1", "bash", False, "bash: make install", "not executed"))
        worker.emit(TurnEnded(Outcome.INTERRUPTED, Usage()))
        await until_gone(pilot, "Allow")


async def test_keys_typed_ahead_never_answer_and_are_not_lost(open_screen, monkeypatch):
    monkeypatch.setattr(approval, "GUARD_S", 30.0)
    async with open_screen() as (app, worker, pilot):
        await pilot.press(*"sa")
        ask(worker, QUESTION)
        await until_shown(pilot, "Allow")
        await pilot.press("y", "a", "enter", "escape")
        await until(pilot, lambda: app.query_one(Composer).text == "saya")
        assert worker.commands == []
        assert worker.interrupts == 0
        assert app.query_one(ApprovalPanel).is_asking


async def test_a_key_answers_once_the_guard_is_over(open_screen, monkeypatch):
    monkeypatch.setattr(approval, "GUARD_S", 0.05)
    async with open_screen() as (app, worker, pilot):
        ask(worker, QUESTION)
        await until_shown(pilot, "Allow")
        await until(pilot, lambda: not app.query_one(ApprovalPanel).is_guarded)
        await pilot.press("y")
        await until(pilot, lambda: worker.commands == [Answer("call-1", True)])


def test_the_guard_lasts_four_tenths_of_a_second():
    assert approval.GUARD_S == 0.4
