"""The settings on the screen, and the ones that are about the screen."""

import pytest

from ds4agent import paths
from ds4agent.config import Config, load_config
from ds4agent.events import ApprovalNeeded, Outcome, TurnEnded, TurnStarted, Usage
from ds4agent.tui.notify import Notifier, has_osc9
from ds4agent.tui.theme import HIGH_CONTRAST, LIGHT
from ds4agent.tui.widgets.settings_screen import SettingsScreen
from tests.tui.screen import text, until, until_gone, until_shown


def go_to(app, name: str) -> None:
    screen = app.screen
    names = [setting.name for setting in screen._settings]
    screen._list.highlighted = names.index(name)


async def open_settings(app, pilot) -> None:
    await pilot.press("f2")
    await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
    await until_shown(pilot, "Settings", "temperature")


async def test_f2_shows_the_settings_and_escape_closes(open_screen):
    async with open_screen() as (app, worker, pilot):
        await open_settings(app, pilot)
        await until_shown(pilot, "model", "Enter changes")
        await pilot.press("escape")
        await until_gone(pilot, "Enter changes")


async def test_enter_goes_through_the_choices_and_holds_at_once(open_screen, tmp_path):
    async with open_screen() as (app, worker, pilot):
        await open_settings(app, pilot)
        go_to(app, "theme")
        await pilot.press("enter", "enter")
        await until(pilot, lambda: app.theme == LIGHT)
        await pilot.press("left", "left", "left")
        await until(pilot, lambda: app.theme == HIGH_CONTRAST)
        assert load_config(tmp_path).theme == "high-contrast"
        await pilot.press("delete")
        await until(pilot, lambda: load_config(tmp_path).theme == "auto")


async def test_a_number_is_typed_and_a_wrong_one_refused(open_screen, tmp_path):
    async with open_screen() as (app, worker, pilot):
        await open_settings(app, pilot)
        go_to(app, "ctx")
        await pilot.press("enter", *"x", "enter")
        await until_shown(pilot, "expected a whole number")
        await pilot.press("backspace", "backspace", *"4096", "enter")
        await until_shown(pilot, "holds from the next start")
        assert load_config(tmp_path).ctx == 4096
        go_to(app, "allow")
        await pilot.press("enter")
        await until_shown(pilot, "A list")


async def test_escape_leaves_the_entry_before_the_screen(open_screen):
    async with open_screen() as (app, worker, pilot):
        await open_settings(app, pilot)
        go_to(app, "ctx")
        await pilot.press("enter", "5", "escape")
        assert isinstance(app.screen, SettingsScreen)
        await pilot.press("escape")
        assert not paths.config_file().exists()


async def test_what_something_else_decides_is_said(open_screen):
    config = Config().with_values({"theme": "dark"}, "environment variable DS4_THEME")
    async with open_screen(config=config) as (app, worker, pilot):
        await open_settings(app, pilot)
        go_to(app, "theme")
        await pilot.press("enter")
        await until_shown(pilot, "DS4_THEME decides here")
        assert "light" not in text(app).split("decides here")[0].split("theme")[1][:30]


async def test_settings_hold_from_the_start(open_screen):
    config = Config().with_values(
        {"theme": "high-contrast", "motion": False, "mouse": False, "notify": "off"}, "test"
    )
    async with open_screen(config=config) as (app, worker, pilot):
        assert app.theme == HIGH_CONTRAST
        assert app.animation_level == "none"
        assert not app.has_mouse
        assert app.notifier.way == "off"


# --- notifications ------------------------------------------------------------------------------


def told(way: str, **about) -> list[str]:
    written: list[str] = []
    notifier = Notifier(written.append, way, 20.0)
    title = "fix\x07 \x1b\\it"
    notifier.turn_ended(about.get("took_s", 30.0), about.get("has_focus", False), title)
    return written


def test_a_long_turn_is_told_by_the_bell_or_by_a_message(monkeypatch):
    assert told("bell") == ["\x07"]
    assert told("osc9") == ["\x1b]9;ds4-agent is done: fix it\x07"]
    assert told("off") == []
    monkeypatch.delenv("TMUX", raising=False)
    monkeypatch.setenv("TERM_PROGRAM", "WezTerm")
    assert told("auto")[0].startswith("\x1b]9;")
    monkeypatch.setenv("TMUX", "/tmp/x")
    assert told("auto") == ["\x07"]


def test_nothing_is_told_of_short_turns_or_to_who_looks():
    assert told("bell", took_s=19.0) == []
    assert told("bell", has_focus=True) == []


def test_osc9_only_where_it_is_known():
    assert not has_osc9({"TERM_PROGRAM": "Apple_Terminal"})
    assert has_osc9({"KITTY_WINDOW_ID": "1"})


@pytest.mark.parametrize("has_focus", [True, False])
async def test_a_question_and_a_long_turn_are_told_to_who_looks_elsewhere(open_screen, has_focus):
    config = Config().with_values({"notify": "bell", "notify_after": 0.0}, "test")
    async with open_screen(config=config) as (app, worker, pilot):
        written: list[str] = []
        app.notifier._write = written.append
        app.app_focus = has_focus
        worker.emit(TurnStarted("go"), ApprovalNeeded("c", "bash", "bash: ls", "ls", "", False))
        await until_shown(pilot, "Allow")
        worker.emit(TurnEnded(Outcome.DONE, Usage()))
        await until_gone(pilot, "Allow")
        if not has_focus:
            await until(pilot, lambda: len(written) == 2, "both bells")
        assert written == ([] if has_focus else ["\x07", "\x07"])
