"""What a person sees, and waiting for it without sleeping."""

import time
from collections.abc import Callable

from textual.pilot import Pilot

from ds4agent.tui.app import AgentApp

DEADLINE_S = 5.0


def rows(app: AgentApp) -> list[str]:
    """The screen's rows as plain text."""
    strips = app.screen._compositor.render_strips(app.size)
    return [strip.text.rstrip() for strip in strips]


def text(app: AgentApp) -> str:
    return "\n".join(rows(app))


async def until(pilot: Pilot, condition: Callable[[], object], what: str = "") -> None:
    """Let the screen work until the condition holds; fail with the screen's text otherwise."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"waited in vain for {what or condition}:\n{text(pilot.app)}")
        await pilot.pause(0.01)


async def until_shown(pilot: Pilot, *parts: str) -> None:
    await until(pilot, lambda: all(part in text(pilot.app) for part in parts), str(parts))


async def until_gone(pilot: Pilot, part: str) -> None:
    await until(pilot, lambda: part not in text(pilot.app), f"{part} to go")
