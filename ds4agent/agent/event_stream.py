"""The worker's side of the event queue: order kept, small texts joined, everything plain."""

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from ds4agent.events import Event, TextDelta, ThinkingDelta, ToolCallDelta, ToolOutput
from ds4agent.plain import PlainStream, plain_event

_INTERVAL_S = 0.05  # at most 20 text events a second reach the screen


@dataclass(slots=True)
class _Pending:
    """Text of one kind that has not been handed over yet."""

    key: tuple[str, str]  # event kind, call id
    make: Callable[[str], Event]
    text: str
    plain: PlainStream


class EventStream:
    """Puts events into a queue, from any thread.

    Pieces of text that belong together are joined for up to 50 ms. They are handed over before
    any other event, so that a reader sees everything in the order in which it happened.
    """

    def __init__(
        self, events: "queue.Queue[Event]", listener: Callable[[Event], None] | None = None
    ) -> None:
        """Begin.

        Args:
            events: where they go.
            listener: also gets every event of ``emit``, in the thread that emits it.
        """
        self._events = events
        self._listener = listener
        self._lock = threading.Lock()
        self._pending: _Pending | None = None
        self._last_flush = 0.0
        self._has_text = threading.Event()
        self._is_closed = False
        self._flusher = threading.Thread(target=self._flush_late, name="ds4-events", daemon=True)
        self._flusher.start()

    def emit(self, event: Event) -> None:
        """Hand over one event, after all text before it."""
        if self._listener is not None:
            self._listener(event)
        with self._lock:
            # Not ended: a control sequence may go on after an event that only tells progress.
            self._flush()
            self._events.put(plain_event(event))

    def text(self, text: str) -> None:
        """Add to the answer."""
        self._add(("text", ""), TextDelta, text)

    def thinking(self, text: str) -> None:
        """Add to what the model thinks."""
        self._add(("thinking", ""), ThinkingDelta, text)

    def call_text(self, call_id: str, text: str) -> None:
        """Add to a call that is being written."""
        self._add(("call", call_id), lambda joined: ToolCallDelta(call_id, joined), text)

    def tool_output(self, call_id: str, text: str) -> None:
        """Add to the output of a running command."""
        self._add(("output", call_id), lambda joined: ToolOutput(call_id, joined), text)

    def close(self) -> None:
        """Hand over what is left and end the thread that does it."""
        with self._lock:
            self._end_text()
            self._is_closed = True
        self._has_text.set()

    def _add(self, key: tuple[str, str], make: Callable[[str], Event], text: str) -> None:
        with self._lock:
            if self._pending is not None and self._pending.key != key:
                self._end_text()
            if self._pending is None:
                self._pending = _Pending(key, make, "", PlainStream())
            self._pending.text += self._pending.plain.feed(text)
            if time.monotonic() - self._last_flush >= _INTERVAL_S:
                self._flush()
        self._has_text.set()

    def _flush(self) -> None:
        if self._pending is not None and self._pending.text:
            self._events.put(self._pending.make(self._pending.text))
            self._pending.text = ""
            self._last_flush = time.monotonic()

    def _end_text(self) -> None:
        if self._pending is not None:
            self._pending.text += self._pending.plain.finish()
            self._flush()
            self._pending = None

    def _flush_late(self) -> None:
        """Hand over text whose successor does not come, such as the last line of a slow command."""
        while not self._is_closed:
            self._has_text.wait()
            self._has_text.clear()
            if not self._is_closed:
                time.sleep(_INTERVAL_S)
            with self._lock:
                self._flush()
