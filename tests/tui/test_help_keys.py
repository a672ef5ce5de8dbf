"""Every key that the help shows does what the help says: a key without a row here fails.

One short check a key; what else keys do in which state has tests of its own (``test_keys.py``).
"""

import inspect

import pytest

from ds4agent.events import Phase, PhaseChanged, ToolFinished, TurnStarted
from ds4agent.requests import Mode, Quit, SetMode, Submit, TakeBackQueued
from ds4agent.tui.app import AgentApp
from ds4agent.tui.keys import KEYS
from ds4agent.tui.widgets.composer import Composer
from ds4agent.tui.widgets.help_screen import HelpScreen
from ds4agent.tui.widgets.settings_screen import SettingsScreen
from ds4agent.tui.widgets.tool_card import ToolCard
from ds4agent.tui.widgets.transcript import Transcript
from tests.tui.fake_worker import ready
from tests.tui.screen import until, until_gone, until_shown

LONG = "\n\n".join(f"paragraph {n}" for n in range(60))


def _composer(app) -> Composer:
    return app.screen_stack[0].query_one(Composer)


def _transcript(app) -> Transcript:
    return app.query_one(Transcript)


async def _queue(worker, pilot, *texts: str) -> None:
    worker.is_busy = True
    worker.emit(TurnStarted("go"), PhaseChanged(Phase.GENERATING))
    for text in texts:
        worker.send(Submit(text))
    await until_shown(pilot, f"queued: {texts[-1]}")


async def enter(app, worker, pilot):
    await pilot.press(*"hi", "enter")
    await until(pilot, lambda: worker.commands == [Submit("hi")])


async def ctrl_j(app, worker, pilot):
    await pilot.press("a", "ctrl+j", "b", "shift+enter", "c", "backslash", "enter", "d")
    assert _composer(app).text == "a\nb\nc\nd" and not worker.commands


async def up(app, worker, pilot):
    await _queue(worker, pilot, "one", "two")
    await pilot.press("up")
    await until(pilot, lambda: _composer(app).text == "two")
    assert worker.commands[-1] == TakeBackQueued()


async def down(app, worker, pilot):
    await pilot.press(*"sent", "enter", *"draft", "up")
    await until(pilot, lambda: _composer(app).text == "sent")
    await pilot.press("down")
    assert _composer(app).text == "draft"


async def alt_up(app, worker, pilot):
    await _queue(worker, pilot, "one", "two")
    await pilot.press("alt+up", "up", "enter")
    await until(pilot, lambda: _composer(app).text == "one")
    await pilot.press("alt+up", "delete")
    await until_gone(pilot, "queued: two")


async def tab(app, worker, pilot):
    await pilot.press(*"/sav")
    await until_shown(pilot, "save the conversation now")
    await pilot.press("tab")
    await until(pilot, lambda: _composer(app).text == "/save")


async def ctrl_r(app, worker, pilot):
    await pilot.press(*"the pear", "enter", *"the lexer", "enter", "ctrl+r", *"pear", "enter")
    await until(pilot, lambda: _composer(app).text == "the pear")


async def ctrl_g(app, worker, pilot):
    await pilot.press("ctrl+g")
    await until_shown(pilot, "no editor works here")  # a screen without a terminal can't lend it


async def own_command(app, worker, pilot):
    worker.emit(ready(cwd="/"))
    await until(pilot, lambda: app.record.cwd == "/")
    await pilot.press(*"!echo $((40+2))", "enter")
    await until_shown(pilot, "$ echo $((40+2))", "   42")
    await pilot.press(*"!!echo $((40+3))", "enter")
    await until(pilot, lambda: "43" in _composer(app).whole_text)
    assert not worker.commands


async def esc(app, worker, pilot):
    await pilot.press("f1")
    await until(pilot, lambda: isinstance(app.screen, HelpScreen))
    await pilot.press("escape")
    await until(pilot, lambda: len(app.screen_stack) == 1)
    worker.emit(TurnStarted("go"), PhaseChanged(Phase.GENERATING))
    await until(pilot, lambda: app.controller.is_running)
    await pilot.press("escape")
    assert worker.interrupts == 1


async def ctrl_c(app, worker, pilot):
    await pilot.press(*"text", "ctrl+c")
    assert _composer(app).text == ""
    await pilot.press("ctrl+c")
    await until_shown(pilot, "Ctrl+C again to quit")
    await pilot.press("ctrl+c")
    await until(pilot, lambda: worker.commands == [Quit()])


async def ctrl_d(app, worker, pilot):
    await pilot.press("a", "ctrl+d")
    assert not worker.commands
    await pilot.press("backspace", "ctrl+d")
    await until(pilot, lambda: worker.commands == [Quit()])


async def shift_tab(app, worker, pilot):
    for mode in (Mode.AUTO, Mode.PLAN, Mode.ASK):
        await pilot.press("shift+tab")
        await until(pilot, lambda mode=mode: worker.commands[-1:] == [SetMode(mode)])
        await until_shown(pilot, f"  {mode.value} · tiny")


async def ctrl_o(app, worker, pilot):
    worker.emit(TurnStarted("go"), ToolFinished("1", "bash", True, "bash: ls", "one\ntwo\nthree"))
    await until_shown(pilot, "3 lines")
    await pilot.press("ctrl+o")
    await until_shown(pilot, "three")
    assert app.query_one(ToolCard).is_open
    await pilot.press("ctrl+o")
    await until_gone(pilot, "three")


async def page_up(app, worker, pilot):
    await app.controller.say(LONG)
    await until_shown(pilot, "paragraph 59")
    await pilot.press("pageup")
    await until_gone(pilot, "paragraph 59")
    await pilot.press("end")
    await until_shown(pilot, "paragraph 59")


async def page_down(app, worker, pilot):
    await page_up(app, worker, pilot)
    await pilot.press("pageup", "pageup")
    top = _transcript(app).scroll_y
    await pilot.press("pagedown")
    await until(pilot, lambda: _transcript(app).scroll_y > top)


async def ctrl_up(app, worker, pilot):
    for n in range(400):
        await app.controller.say(f"line {n}.")
    await _transcript(app).trim()
    await until_shown(pilot, "line 399.")
    before = _transcript(app).n_older
    await pilot.press("ctrl+up")
    await until(pilot, lambda: _transcript(app).n_older < before)


async def f1(app, worker, pilot):
    await pilot.press("f1")
    await until(pilot, lambda: isinstance(app.screen, HelpScreen))
    await pilot.press("f1")
    await until(pilot, lambda: len(app.screen_stack) == 1)


async def f2(app, worker, pilot):
    await pilot.press("f2")
    await until(pilot, lambda: isinstance(app.screen, SettingsScreen))
    await pilot.press("f2")
    await until(pilot, lambda: len(app.screen_stack) == 1)


async def f6(app, worker, pilot):
    await pilot.press("f6")
    await until_shown(pilot, "The mouse belongs to the terminal now")
    await pilot.press("f6")
    await until_shown(pilot, "The mouse works here")


CHECKS = {
    "Enter": enter,
    "Ctrl+J": ctrl_j,
    "Up": up,
    "Down": down,
    "Alt+Up": alt_up,
    "Tab": tab,
    "Ctrl+R": ctrl_r,
    "Ctrl+G": ctrl_g,
    "! command": own_command,
    "Esc": esc,
    "Ctrl+C": ctrl_c,
    "Ctrl+D": ctrl_d,
    "Shift+Tab": shift_tab,
    "Ctrl+O": ctrl_o,
    "Page Up": page_up,
    "Page Down": page_down,
    "Ctrl+Up": ctrl_up,
    "F1": f1,
    "F2": f2,
    "F6": f6,
}
UNTOLD = {"ctrl+q", "ctrl+end", "ctrl+z"}  # beside Ctrl+D, End and what every program does


def _keys_of_help() -> set[str]:
    labels = ", ".join(label for label, _ in KEYS).replace("Page Up/Down", "Page Up, Page Down")
    return set(labels.split(", "))


def test_every_key_of_the_help_has_a_check_and_every_check_is_of_the_help():
    assert set(CHECKS) == _keys_of_help()
    assert all(inspect.iscoroutinefunction(check) for check in CHECKS.values())


def test_every_binding_of_the_app_is_in_the_help():
    bound = {
        binding.key
        for kind in AgentApp.__mro__
        for binding in vars(kind).get("BINDINGS", ())
        if kind.__module__.startswith("ds4agent")
    }
    told = {key.lower().replace("page ", "page") for key in _keys_of_help()}
    told = {"escape" if key == "esc" else key for key in told}
    assert bound - UNTOLD <= told, bound - UNTOLD - told


@pytest.mark.parametrize("key", CHECKS)
async def test_a_key_does_what_the_help_says(open_screen, key):
    async with open_screen(size=(100, 30)) as (app, worker, pilot):
        await CHECKS[key](app, worker, pilot)
