"""Every text of the screen can be read in every theme: contrast as WCAG 2.2 counts it."""

import pytest
from rich.color import Color

from ds4agent.config import Config
from ds4agent.events import (
    ApprovalNeeded,
    Notice,
    PermissionEntry,
    PermissionList,
    Phase,
    PhaseChanged,
    QueueChanged,
    SessionList,
    TextDelta,
    ThinkingDelta,
    ToolCallReady,
    ToolFinished,
    TurnStarted,
)
from tests.tui.fake_worker import ready
from tests.tui.screen import text, until_shown
from tests.tui.test_slash_commands import summary

CHANGE = "@@ -1,3 +1,3 @@\n import os\n-def f(a): return a + 1\n+def f(a): return a - 1\n"
# What is read has 4.5 to 1 (level AA); high contrast 7 to 1 (AAA). Dim notes may have less, but
# never less than 3 to 1, the least for large text and parts of the interface.
LEAST = {"dark": 3.0, "light": 3.0, "high-contrast": 7.0}


def luminance(color: Color) -> float:
    parts = [part / 255 for part in color.get_truecolor()]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: Color, other: Color) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def inner(app):
    """The box of the open dialog; all of the screen without one: behind a dialog it is dimmed."""
    boxes = [box for box in app.screen.query(".dialog-box, #picker") if box.display]
    return boxes[0].region if boxes else app.screen.region


def faint_texts(app, least: float) -> list[tuple[float, str]]:
    """Return what has less contrast; frames, bars and blanks are no text."""
    found = []
    box = inner(app)
    strips = app.screen._compositor.render_strips(app.size)
    for strip in strips[box.y : box.bottom]:
        for segment in strip.crop(box.x, box.right):
            style = segment.style
            words = "".join(char for char in segment.text if char.isalnum())
            if not words or style is None or style.color is None or style.bgcolor is None:
                continue
            ratio = contrast(style.color, style.bgcolor)
            if ratio < least:
                found.append((round(ratio, 2), segment.text))
    return found


async def fill(worker, pilot) -> None:
    worker.emit(
        TurnStarted("Fix it"),
        ThinkingDelta("Hm, so"),
        TextDelta("# Head\n\nSome `code` and **bold**\n\n- item\n\n"),
        TextDelta("```python\nx = 'a'  # why\n```\n\n"),
        ToolCallReady("c", "edit", {"path": "a"}, "edit: a.py", CHANGE),
        ToolFinished("c", "edit", True, "edit: a.py", "ok", CHANGE),
        ToolCallReady("d", "bash", {"command": "ls"}, "bash: ls"),
        ToolFinished("d", "bash", False, "bash: ls", "no such file", exit_code=1),
        Notice("look", "warning"),
        Notice("wrong", "error"),
        QueueChanged(("later",)),
        PhaseChanged(Phase.APPROVAL),
        ApprovalNeeded("e", "edit", "edit: b.py", "", CHANGE, True, "edit"),
    )
    await until_shown(pilot, "Allow edit: b.py", "queued: later", "look")


@pytest.mark.parametrize("name", [*LEAST, "ansi"])
async def test_everything_can_be_read(open_screen, name):
    config = Config().with_values({"theme": name}, "test")
    async with open_screen(ready(), size=(100, 60), config=config) as (app, worker, pilot):
        await fill(worker, pilot)
        seen = [("conversation", text(app), faint_texts(app, LEAST.get(name, 0.0)))]
        worker.emit(PhaseChanged(Phase.IDLE))
        for key in ("f1", "f2"):
            await pilot.press(key)
            await until_shown(pilot, "Esc closes")
            seen.append((key, text(app), faint_texts(app, LEAST.get(name, 0.0))))
            await pilot.press("escape")
        worker.emit(SessionList((summary("a", "First"), summary("b", "Other", resumable=False))))
        await until_shown(pilot, "First", "Esc closes")
        seen.append(("list", text(app), faint_texts(app, LEAST.get(name, 0.0))))
        await pilot.press("escape")
        worker.emit(PermissionList((PermissionEntry("allow", "edit", "settings"),)))
        await until_shown(pilot, "Rules about calls")
        seen.append(("rules", text(app), faint_texts(app, LEAST.get(name, 0.0))))
        await pilot.press("escape")
        await pilot.press("/")
        await until_shown(pilot, "show commands and keys")
        seen.append(("suggestions", text(app), faint_texts(app, LEAST.get(name, 0.0))))
        assert {where: faint for where, _, faint in seen if faint} == {}
