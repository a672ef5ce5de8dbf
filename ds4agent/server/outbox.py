"""What a request's answer travels through: from the engine's thread to the event loop.

The engine's thread never waits for a reader. It puts and goes on; where a reader has left more
unread than it may, the request is given up.
"""

import asyncio
import threading
from collections import deque
from typing import Any

MAX_PENDING = 1 << 20  # bytes that a reader may be behind; an answer is rarely a tenth of that


class Unread(Exception):
    """The reader has taken nothing for too long, or is too far behind."""


class Outbox:
    """Items of one answer, in order. One thread puts, one task takes.

    Attributes:
        cancel: Set when the engine is to stop: nobody waits any more, or the server ends.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, max_pending: int = MAX_PENDING) -> None:
        self.cancel = threading.Event()
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
            is_news = not self._items
            self._items.append(item)
            self._pending += n_bytes
            if self._pending > self._max_pending:
                self._close()
                is_news = True
        if is_news:
            try:
                self._loop.call_soon_threadsafe(self._ready.set)
            except RuntimeError:  # the loop has ended: there is no reader
                self.close()

    async def take(self, timeout_s: float | None = None) -> list[Any]:
        """Wait for items and return all that are there; none after the timeout.

        Raises:
            Unread: it is closed; more was left in it than may be, unless ``close`` was called.
        """
        try:
            # Not wait_for: that of Python 3.11 may swallow a cancellation.
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            return []
        with self._lock:
            if self._is_closed:
                raise Unread
            self._ready.clear()
            items = list(self._items)
            self._items.clear()
            self._pending = 0
        return items

    def close(self) -> None:
        """Nobody will take any more: what is put from now on is dropped."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        self._is_closed = True
        self.cancel.set()
        self._items.clear()
        self._pending = 0
