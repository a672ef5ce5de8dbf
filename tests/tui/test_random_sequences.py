"""Whatever is pressed and whatever arrives: no exception, and afterwards the screen still works."""

import random
import time

import pytest
from textual.events import Paste

from ds4agent.events import (
    ApprovalNeeded,
    Compacted,
    DiffShown,
    HistoryEntry,
    LoadProgress,
    MalformedCall,
    MessageDelivered,
    Notice,
    Outcome,
    PermissionEntry,
    PermissionList,
    Phase,
    PhaseChanged,
    PrefillProgress,
    QueueChanged,
    SessionList,
    SessionPreview,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    ToolFinished,
    ToolOutput,
    TurnEnded,
    TurnStarted,
    Usage,
)
from ds4agent.requests import Submit
from ds4agent.tui.widgets.composer import Composer
from tests.tui.fake_worker import ready
from tests.tui.screen import until
from tests.tui.test_slash_commands import summary
from tests.tui.test_untrusted_text import NASTY

KEYS = (
    *"abc /@[]\\",
    *"enter escape tab up down left right home end pageup pagedown backspace delete".split(),
    *"shift+tab ctrl+j ctrl+o ctrl+r ctrl+w ctrl+u ctrl+k ctrl+up ctrl+end alt+up f1 f2 f6".split(),
    *"y n space shift+left ctrl+underscore".split(),
)
TEXTS = (
    NASTY,
    "日本語 e\u0301 שלום 👍🏽\n",
    "```python\nx = 1\n",
    "| a | b |\n|--|--|\n",
    "- x\n\n",
)
ROLES = ("user", "assistant", "thinking", "call", "result")
SIZES = ((80, 24), (120, 40), (40, 12), (20, 8), (200, 60))


def event(dice: random.Random):
    text = dice.choice(TEXTS)
    call = f"call-{dice.randrange(4)}"
    return dice.choice(
        (
            TextDelta(text),
            TextDelta(text),
            ThinkingDelta(text),
            PhaseChanged(dice.choice([p for p in Phase if p is not Phase.CLOSED]), text),
            TurnStarted(text),
            MessageDelivered(text),
            PrefillProgress(dice.randrange(9), 9, 3.0),
            LoadProgress(1, dice.randrange(3)),
            ToolCallStarted(call, "bash"),
            ToolCallDelta(call, text),
            ToolCallReady(call, "edit", {"path": text}, text, f"@@ -1 +1 @@\n-{text}\n+{text}"),
            ToolOutput(call, text),
            ToolFinished(call, "bash", dice.random() < 0.5, text, text, "", 1),
            ApprovalNeeded(call, "bash", text, text, "", dice.random() < 0.5, text),
            MalformedCall(text, text),
            Notice(text, "warning"),
            TurnEnded(dice.choice(list(Outcome)), Usage(), error=text),
            QueueChanged(tuple(dice.choices(TEXTS, k=dice.randrange(4)))),
            SessionList((summary("a", text), summary("b", text, resumable=False))),
            SessionPreview("a" * 40, text),
            PermissionList((PermissionEntry("allow", text, text),)),
            Compacted(text, 9, 3),
            DiffShown(f"--- a\n+++ b\n@@ -1 +1 @@\n-{text}\n+x"),
            ready(
                title=text, history=(HistoryEntry("user", text), HistoryEntry("assistant", text))
            ),
        )
    )


async def until_taken(pilot, worker, seed: int) -> None:
    """Wait until the events are taken: the feed still lives. A busy machine may need its time."""
    deadline = time.monotonic() + 60.0
    while not worker.events.empty():
        assert time.monotonic() < deadline, f"seed {seed}: events are no longer taken"
        await pilot.pause(0.005)


async def run(open_screen, seed: int, n_steps: int) -> None:
    dice = random.Random(seed)
    async with open_screen() as (app, worker, pilot):
        for _ in range(n_steps):
            match dice.randrange(10):
                case 0 | 1 | 2:
                    worker.emit(*(event(dice) for _ in range(dice.randrange(1, 4))))
                    await until_taken(pilot, worker, seed)
                case 3:
                    await pilot.resize_terminal(*dice.choice(SIZES))
                case 4:
                    app.query_one(Composer).post_message(Paste(dice.choice(TEXTS) * 9))
                case _:
                    await pilot.press(*dice.choices(KEYS, k=dice.randrange(1, 5)))
        # Whatever was open closes, and then a message goes out.
        await pilot.resize_terminal(80, 24)
        worker.emit(ready(), QueueChanged(()), PhaseChanged(Phase.IDLE))
        await until_taken(pilot, worker, seed)
        for _ in range(8):
            await pilot.pause(0.02)
            await pilot.press("escape")
        composer = app.screen_stack[0].query_one(Composer)
        assert len(app.screen_stack) == 1, f"seed {seed}: {app.screen} stays open"
        composer.focus()
        composer.set_text("still here")
        await pilot.press("escape", "enter")
        await until(pilot, lambda: Submit("still here") in worker.commands, f"seed {seed}")


async def test_some_random_steps(open_screen):
    await run(open_screen, 1, 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
async def test_ten_thousand_random_steps(open_screen, seed):
    await run(open_screen, 100 + seed, 500)
