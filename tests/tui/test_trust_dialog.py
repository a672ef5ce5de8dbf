"""The question whether a folder is trusted, on the screen."""

import pytest

from ds4agent.commands import COMMANDS, CommandTable, SlashCommand
from ds4agent.events import Phase, PhaseChanged, TrustDecided, TrustNeeded
from ds4agent.requests import Submit, Trust
from ds4agent.tui.widgets import trust_dialog
from ds4agent.tui.widgets.composer import Composer
from tests.tui.screen import text, until, until_gone, until_shown

QUESTION = TrustNeeded("/home/ada/project", ("AGENTS.md", ".ds4/\x1b[8mconfig.toml"))
OPENING = (PhaseChanged(Phase.LOADING), QUESTION)


@pytest.fixture
def no_guard(monkeypatch):
    monkeypatch.setattr(trust_dialog, "GUARD_S", 0.0)


async def test_it_names_the_folder_and_what_it_brings(open_screen):
    async with open_screen(*OPENING) as (app, worker, pilot):
        await until_shown(pilot, "Trust this folder?", "/home/ada/project", "AGENTS.md")
        assert "\x1b" not in text(app)


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (("y",), Trust(True)),
        (("n",), Trust(False)),
        (("escape",), Trust(False, is_remembered=False)),
        (("ctrl+c",), Trust(False, is_remembered=False)),
        (("enter",), Trust(False, is_remembered=False)),
        (("down", "enter"), Trust(True)),
    ],
)
async def test_each_key_has_its_answer(open_screen, no_guard, keys, answer):
    async with open_screen(*OPENING) as (app, worker, pilot):
        await until_shown(pilot, "Trust this folder?")
        await pilot.press(*keys)
        await until(pilot, lambda: worker.commands == [answer])
        await until_gone(pilot, "Trust this folder?")


async def test_what_was_typed_before_goes_to_the_composer_and_answers_nothing(
    open_screen, monkeypatch
):
    monkeypatch.setattr(trust_dialog, "GUARD_S", 60.0)
    async with open_screen(*OPENING) as (app, worker, pilot):
        await until_shown(pilot, "Trust this folder?")
        await pilot.press("y", "e", "s", "enter")
        await pilot.pause(0.05)
        assert not worker.commands
        assert app.screen_stack[0].query_one(Composer).text == "yes"


async def test_commands_of_the_project_are_there_once_it_is_trusted(open_screen, no_guard):
    table = CommandTable()
    own = SlashCommand("fix", "fix it", lambda _: Submit("Fix it."))

    def trusted() -> list[str]:
        table.replace_added([own])
        return ["left out: /quit"]

    async with open_screen(*OPENING, commands=table, on_trusted=trusted) as (app, worker, pilot):
        await until_shown(pilot, "Trust this folder?")
        await pilot.press("y")
        worker.emit(TrustDecided("/home/ada/project", True))
        await until_shown(pilot, "left out: /quit")
        assert table.commands == (*COMMANDS, own)
