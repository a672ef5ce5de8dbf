"""Calls that the model has made and whose results are not in the conversation yet.

When a call waits for the person's word, before one runs that may change something, and when one has
run, the answer that made it is brought to the disk with what is noted here. So the question comes
again when the program was ended meanwhile, a call that was running is said to be one that may have
run, and what ran before is not run a second time: the model reads its result then.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ds4agent.events import HistoryEntry
from engine.chat.format import ToolCall

_CALL_ERROR = "tool_call"  # the name under which the model is told of a call it wrote wrongly
_EVENT = "waiting"  # what the entry among a conversation's noted events is called
ASKED_AGAIN = "When the program was ended, this call had no result: it is asked about again."
RUNNING_ASKED_AGAIN = (
    "When the program was ended, this call was running and may have done its work: "
    "it is asked about again."
)
NOT_RUN = "not executed: the program was ended before this call had run"
MAY_HAVE_RUN = (
    "no result: the program was ended while this call ran, so it may have been carried out. "
    "See what is there before you make it again."
)
MAY_HAVE_RUN_BEFORE = (
    "\n(When the program was ended, this call was running: it may have been carried out then.)"
)
Result = tuple[str, str]  # name of the tool, text for the model


class LeftWaiting(Exception):
    """The program ends while a call waits for an answer; the question is on the disk."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """The calls of one answer, the first of them with their results."""

    calls: tuple[ToolCall, ...]
    done: tuple[Result, ...] = ()  # of the first calls
    malformed: tuple[str, ...] = ()  # why other calls of the answer could not be read
    is_started: bool = False  # the first open call was running, or about to

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls that have no result yet."""
        return self.calls[len(self.done) :]

    @property
    def not_run(self) -> list[tuple[ToolCall, str]]:
        """The open calls, with what the model is told instead of a result if they stay so."""
        first = MAY_HAVE_RUN if self.is_started else NOT_RUN
        return [(call, NOT_RUN if i else first) for i, call in enumerate(self.open_calls)]

    def results(self) -> list[Result]:
        """Return all results, those of the open calls as if they are not run any more."""
        skipped = ((call.name, reason) for call, reason in self.not_run)
        return [*self.done, *skipped, *told_of(self.malformed)]

    def event(self, n_tokens: int) -> dict[str, Any]:
        """Return what is noted of it in a conversation of so many tokens."""
        return {
            "event": _EVENT,
            "tokens": n_tokens,
            "calls": [{"name": c.name, "arguments": c.arguments} for c in self.calls],
            "done": [list(result) for result in self.done],
            "malformed": list(self.malformed),
            "started": self.is_started,
            "passing": True,  # it counts as long as nothing else was noted, see ``journal.lasting``
        }


def told_of(malformed: Iterable[str]) -> list[Result]:
    """Return what the model is told of calls that cannot be read, by their reasons."""
    return [(_CALL_ERROR, f"error: {reason}") for reason in malformed]


def waiting_in(events: Sequence[dict[str, Any]], n_tokens: int) -> Waiting | None:
    """Return the calls at the end of a conversation that it has no results of, None without any.

    Args:
        events: what was noted of it, oldest first; the file may hold anything.
        n_tokens: its length. A note of another length is of an earlier place.
    """
    noted = events[-1] if events else {}
    if noted.get("event") != _EVENT or noted.get("tokens") != n_tokens:
        return None
    try:
        calls = tuple(
            ToolCall(str(call["name"]), dict(call["arguments"]), "") for call in noted["calls"]
        )
        done = tuple((str(name), str(text)) for name, text in noted["done"])
        malformed = tuple(str(reason) for reason in noted["malformed"])
    except (KeyError, TypeError, ValueError):
        return None
    if not calls or len(done) > len(calls):
        return None
    return Waiting(calls, done, malformed, noted.get("started") is not False)


def without_waiting(
    history: Sequence[HistoryEntry], waiting: Waiting | None
) -> Sequence[HistoryEntry]:
    """Return a history without the calls at its end that will be shown again when they are run,
    and with the results that its tokens don't have yet."""
    if waiting is None:
        return history
    n_calls, end = len(waiting.calls), len(history)
    while n_calls and end and history[end - 1].role == "call":
        end, n_calls = end - 1, n_calls - 1
    if waiting.open_calls or n_calls:
        return history[:end]
    shown = list(history[:end])
    for call, (name, text) in zip(history[end:], waiting.done, strict=True):
        shown += [call, HistoryEntry("result", text, name)]
    return shown
