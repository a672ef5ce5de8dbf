"""What the view of a past conversation shows and its tokens don't tell: how calls and turns ended.

They are kept with the conversation as small JSON objects, one for each finished call and turn.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from ds4agent.events import Event, HistoryEntry, Outcome, ToolFinished

_MAX_DIFF = 20_000  # characters kept of a change


class PastEvents:
    """Collects them until they are on the disk."""

    def __init__(self) -> None:
        self._waiting: list[dict[str, Any]] = []

    def see(self, event: Event) -> None:
        """Take note of a call that was dealt with; other events are passed over."""
        if isinstance(event, ToolFinished):
            self._waiting.append(
                {
                    "event": "call",
                    "name": event.name,
                    "ok": event.ok,
                    "title": event.title,
                    "diff": event.diff[:_MAX_DIFF],
                    "exit_code": event.exit_code,
                    "seconds": round(event.seconds, 3),
                }
            )

    def ended(self, outcome: Outcome) -> None:
        """Take note of how a turn ended."""
        entry = {"event": "turn", "outcome": outcome.value, "at": int(time.time())}
        self._waiting.append(entry)

    def note(self, event: dict[str, Any]) -> None:
        """Take note of something that is no event of the stream."""
        self._waiting.append(event)

    @property
    def waiting(self) -> tuple[dict[str, Any], ...]:
        """What is not on the disk yet, oldest first."""
        return tuple(self._waiting)

    def kept(self, n: int) -> None:
        """The first ``n`` are on the disk."""
        del self._waiting[:n]

    def clear(self) -> None:
        """Another conversation begins."""
        self._waiting.clear()


def joined(
    history: Sequence[HistoryEntry], events: Sequence[dict[str, Any]]
) -> tuple[HistoryEntry, ...]:
    """Return a history whose results tell how their calls went, as far as that was kept.

    From the newest back, since what was taken back or forgotten is missing in front. A result that
    has no event (of a call that could not be read) is passed over; from the first event that fits
    no result on, nothing is told.
    """
    entries = list(history)
    calls = [event for event in events if event.get("event") == "call"]
    for i in range(len(entries) - 1, -1, -1):
        if entries[i].role != "result" or not calls:
            continue
        if entries[i].name == calls[-1].get("name"):
            entries[i] = _told(entries[i], calls.pop())
    return tuple(entries)


def _told(entry: HistoryEntry, event: dict[str, Any]) -> HistoryEntry:
    """Return a result with what an event says; the file may hold anything."""
    ok, exit_code = event.get("ok"), event.get("exit_code")
    title, diff = event.get("title"), event.get("diff")
    return dataclasses.replace(
        entry,
        ok=ok if isinstance(ok, bool) else None,
        title=title if isinstance(title, str) else "",
        diff=diff if isinstance(diff, str) else "",
        exit_code=exit_code if type(exit_code) is int else None,
    )
