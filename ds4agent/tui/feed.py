"""From the worker's queue to batches of events on the screen's event loop.

A thread waits on the queue, so that nothing polls while the worker is quiet. What has arrived
is handed over at most ten times a second; neighbouring pieces of one text become one event.
"""

import asyncio
import contextlib
import queue
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from ds4agent.events import (
    Closed,
    Event,
    GenerationProgress,
    LoadProgress,
    PrefillProgress,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolOutput,
)
from ds4agent.requests import Command

REPAINT_S = 0.1  # at most ten repaints a second while text streams
REMOTE_REPAINT_S = 0.2  # over ssh each repaint also costs bandwidth
# A growing block of code costs more with every piece. Resting in proportion bounds the share of
# the processor that the screen takes; the limit keeps a question from coming late.
_REST_PER_WORK = 3.0
_LONGEST_REST_S = 0.3

_PROGRESS = (LoadProgress, PrefillProgress, GenerationProgress)


def coalesce(events: list[Event]) -> list[Event]:
    """Join neighbouring text pieces and keep only the newest of neighbouring progress events."""
    joined: list[Event] = []
    pieces: list[str] = []

    def flush() -> None:
        if len(pieces) > 1:
            joined[-1] = replace(joined[-1], text="".join(pieces))
        pieces.clear()

    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, _PROGRESS) and type(event) is type(last):
            joined[-1] = event
        elif pieces and _continues(last, event):
            pieces.append(event.text)
        else:
            flush()
            joined.append(event)
            if isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta | ToolOutput):
                pieces.append(event.text)
    flush()
    return joined


def _continues(last: Event | None, event: Event) -> bool:
    if type(last) is not type(event):
        return False
    if isinstance(event, TextDelta | ThinkingDelta):
        return True
    return isinstance(event, ToolCallDelta | ToolOutput) and last.call_id == event.call_id


class Worker(Protocol):
    """What the screen needs of ``ds4agent.agent.worker.AgentWorker``."""

    events: "queue.Queue[Event]"

    def start(self) -> None: ...

    def send(self, command: Command) -> None: ...

    def interrupt(self) -> None: ...

    def join(self, timeout: float | None = None) -> bool: ...


class EventFeed:
    """Waits for worker events in a thread and applies them, in order, on the event loop."""

    def __init__(
        self,
        events: "queue.Queue[Event]",
        apply: Callable[[list[Event]], Awaitable[None]],
        repaint_s: float = REPAINT_S,
    ) -> None:
        """Prepare a feed; nothing runs yet.

        Args:
            events: the worker's queue. The feed is its only reader.
            apply: shows one batch; awaited before the next batch is taken.
            repaint_s: least time between two batches, in seconds.
        """
        self._events = events
        self._apply = apply
        self._repaint_s = repaint_s
        self._arrived: list[Event] = []
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Apply events until ``Closed`` was applied or the task is cancelled."""
        loop = asyncio.get_running_loop()
        stopping = threading.Event()
        reader = threading.Thread(
            target=self._read, args=(loop, stopping), name="event-feed", daemon=True
        )
        reader.start()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                batch, self._arrived = self._arrived, []
                started = time.monotonic()
                await self._apply(coalesce(batch))
                if any(isinstance(event, Closed) for event in batch):
                    return
                worked_s = time.monotonic() - started
                rest_s = min(worked_s * _REST_PER_WORK, _LONGEST_REST_S)
                await asyncio.sleep(max(self._repaint_s - worked_s, rest_s))
        finally:
            stopping.set()
            if reader.is_alive():
                with contextlib.suppress(queue.Full):  # a full queue wakes the reader as well
                    self._events.put_nowait(Closed())  # lets the reader out of its blocking wait
                reader.join(timeout=1.0)

    def _read(self, loop: asyncio.AbstractEventLoop, stopping: threading.Event) -> None:
        while True:
            batch = [self._events.get()]
            while not self._events.empty():
                batch.append(self._events.get_nowait())
            if stopping.is_set():
                return
            try:
                loop.call_soon_threadsafe(self._deliver, batch)
            except RuntimeError:  # the loop was closed while this thread waited
                return
            if isinstance(batch[-1], Closed):
                return

    def _deliver(self, batch: list[Event]) -> None:
        self._arrived.extend(batch)
        self._wake.set()
