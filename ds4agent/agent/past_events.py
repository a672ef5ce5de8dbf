"""What the view of a past conversation shows and its tokens don't tell: how calls and turns ended.

They are kept with the conversation as small JSON objects, one for each finished call and turn.
"""

import time
from typing import Any

from ds4agent.events import Event, Outcome, ToolFinished

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
