"""What a reply has said so far."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import groupby

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.output import CallClosed, CallOpened, Finish, Piece
from engine.chat.format import CallArguments, Text, Thinking


@dataclass
class GatheredCall:
    """A call and the pieces of its arguments."""

    call_id: str
    name: str
    parts: list[str] = field(default_factory=list)
    is_whole: bool = False

    @property
    def arguments(self) -> str:
        return "".join(self.parts)


@dataclass
class Gathered:
    """The pieces of a reply, put together."""

    thoughts: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    calls: list[GatheredCall] = field(default_factory=list)

    @property
    def thinking(self) -> str:
        return "".join(self.thoughts)

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, piece: Piece) -> None:
        """Take the next piece."""
        match piece:
            case Thinking(text):
                self.thoughts.append(text)
            case Text(text):
                self.texts.append(text)
            case CallOpened(_, call_id, name):
                self.calls.append(GatheredCall(call_id, name))
            case CallArguments(index, text):
                self.calls[index].parts.append(text)
            case CallClosed(index, is_whole):
                self.calls[index].is_whole = is_whole

    def whole_calls(self, finish: Finish) -> list[GatheredCall]:
        """Return the calls that a client may run: none of a reply that did not end as calls."""
        if finish not in (Finish.TOOL_CALLS, Finish.LENGTH):
            return []
        return [call for call in self.calls if call.is_whole]


def joined(pieces: Iterable[Piece]) -> list[Piece]:
    """Join neighbouring texts of one kind: every cut means the same, and fewer events cost less."""
    together: list[Piece] = []
    for (kind, index), group in groupby(pieces, _kind):
        if kind is CallArguments:
            together.append(CallArguments(index, "".join(piece.text for piece in group)))
        elif kind in (Text, Thinking):
            together.append(kind("".join(piece.text for piece in group)))
        else:
            together += group
    return together


def _kind(piece: Piece) -> tuple[type[Piece], int]:
    return type(piece), getattr(piece, "index", -1)


def unfinished() -> ApiError:
    """Return the error of a reply that could not be finished."""
    return ApiError("The reply could not be finished. Send the request again.", 500)
