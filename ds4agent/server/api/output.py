"""What a model answers, as a stream of pieces that every interface is written from.

    Thinking*  Text*  { CallOpened CallArguments* CallClosed }*   then a Finish and a Usage

Pieces of one kind follow each other in any number and cut; thinking comes before text, calls come
last, one at a time. ``reading.ReplyReader`` makes pieces from what a chat parser reports. A
``Reply`` of each interface turns pieces into events, and remembers them for the whole answer.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from ds4agent.server.api.errors import ApiError
from engine.chat.format import CallArguments, Text, Thinking

__all__ = [
    "KEEP_ALIVE",
    "CallArguments",
    "CallClosed",
    "CallOpened",
    "Finish",
    "Piece",
    "Reply",
    "Text",
    "Thinking",
    "Usage",
]

KEEP_ALIVE = b": prefill\n\n"  # a comment: no client takes it for an event


@dataclass(frozen=True, slots=True)
class CallOpened:
    """A tool call begins; its id is final."""

    index: int  # 0 for the first call of the reply
    call_id: str
    name: str  # as the model is shown it


@dataclass(frozen=True, slots=True)
class CallClosed:
    """A tool call ends. Its pieces joined are a JSON object, unless it was broken off."""

    index: int
    is_whole: bool = True  # False: cut off or malformed; not to be run


Piece = Text | Thinking | CallOpened | CallArguments | CallClosed


class Finish(StrEnum):
    """Why a reply ended."""

    STOP = "stop"  # the model ended its turn
    STOP_SEQUENCE = "stop_sequence"  # a text that the client named came
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"  # the limit, or the context is full
    ERROR = "error"  # the engine failed, the server stops, or a call was broken after it began


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request.

    Attributes:
        prompt: Of the whole prompt.
        cached: Of these, not evaluated now because a state had them.
        completion: Sampled, thinking and calls included.
        thinking: Of these, thinking.
    """

    prompt: int
    cached: int = 0
    completion: int = 0
    thinking: int = 0


class Reply(Protocol):
    """The answer to one request, in the shape of its interface.

    For a stream: ``start`` once, ``piece`` for each, then ``finish`` or ``error``; every call
    returns the bytes to send, often none. For a whole answer: ``piece`` for each, the bytes left
    aside, then ``whole``. Used by one thread at a time.
    """

    def start(self, usage: Usage) -> list[bytes]:
        """Return the events that open a stream; ``usage`` has what is known before sampling."""

    def piece(self, piece: Piece) -> list[bytes]:
        """Take the next piece and return its events."""

    def finish(self, finish: Finish, usage: Usage, stop_sequence: str = "") -> list[bytes]:
        """Return the events that end the stream. ``stop_sequence`` is the text that ended it."""

    def whole(self, finish: Finish, usage: Usage, stop_sequence: str = "") -> dict[str, Any]:
        """Return the answer as one JSON object.

        Raises:
            ApiError: ``finish`` is ERROR.
        """

    def error(self, error: ApiError) -> list[bytes]:
        """Return the events that end a stream that can't go on."""
