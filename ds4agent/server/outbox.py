"""What a request's answer travels through: from the engine's thread to the event loop.

The engine's thread never waits for a reader. It puts and goes on; where a reader has left more
unread than it may, the request is given up.
"""

import asyncio
import threading
from collections import deque
from typing import Any

MAX_PENDING = 1 << 20  # bytes that a reader may be behind; an answer is rarely a tenth of that


class Outbox:
    """Items of one answer, in order. One thread puts, one task takes.

    Attributes:
        cancel: Set when the engine is to stop: nobody waits any more, or the server ends.
        why: A line for the log: why it was given up; "" where the client went away.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_pending: int = MAX_PENDING) -> None:
        self.cancel = threading.Event()
        self.why = ""
        self._loop = loop
        self._max_pending = max_pending
        self._items: deque[Any] = deque()
        self._pending = 0
        self._is_closed = False
        self._lock = threading.Lock()
        self._ready = asyncio.Event()

    def put(self, item: Any, n_bytes: int = 64) -> None:
        """Add an item; from any thread. Never waits."""
        with self._lock:
            if self._is_closed:
                return
            was_empty = not self._items
            self._items.append(item)
            self._pending += n_bytes
            if self._pending > self._max_pending:
                self.why = f"the client is {self._pending} bytes behind"
                self._close()
        if was_empty:
            try:
                self._loop.call_soon_threadsafe(self._ready.set)
            except RuntimeError:  # the loop has ended: there is no reader
                self.close()

    async def take(self, timeout_s: float | None = None) -> list[Any]:
        """Wait for items and return all that are there; none after the timeout."""
        try:
            await asyncio.wait_for(self._ready.wait(), timeout_s)
        except TimeoutError:
            return []
        with self._lock:
            self._ready.clear()
            items = list(self._items)
            self._items.clear()
            self._pending = 0
        return items

    def close(self) -> None:
        """Nobody will take any more: what is put from now on is dropped."""
        with self._lock:
            self._close()

    @property
    def is_closed(self) -> bool:
        """Whether nobody takes any more."""
        return self._is_closed

    def _close(self) -> None:
        self._is_closed = True
        self.cancel.set()
        self._items.clear()
        self._pending = 0
