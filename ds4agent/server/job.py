"""One request on its way through the engine, and what it is told on the way."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from ds4agent.server.api.errors import ApiError
from ds4agent.server.api.output import Finish, Piece, Usage
from ds4agent.server.api.request import ApiRequest
from ds4agent.server.outbox import Outbox
from ds4agent.server.prompt_tokens import Prompt
from engine.chat.conversation import Conversation, Message
from engine.grammar import GrammarState


@dataclass(slots=True)
class Job:
    """A request that can be answered.

    Attributes:
        request: What was asked.
        conversation: Its conversation with past calls as they were sampled.
        prompt: The conversation as tokens; None where only the live state can be gone on with.
        results: The tool results that it consists of, where ``prompt`` is None.
        outbox: Where the answer goes.
        grammar: What the answer must be, at its beginning; None leaves it free.
        queued_at: On the monotonic clock, s.
    """

    request: ApiRequest
    conversation: Conversation
    prompt: Prompt | None
    results: Sequence[Message]
    outbox: Outbox
    grammar: GrammarState | None = None
    queued_at: float = field(default_factory=time.monotonic)


# --- what the outbox holds, in this order: Began Pieces* Ended, or Failed at any time -------------


@dataclass(frozen=True, slots=True)
class Began:
    """The prompt was read: sampling starts."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class Pieces:
    """The next pieces of the answer."""

    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The answer is complete."""

    finish: Finish
    usage: Usage
    stop_sequence: str = ""


@dataclass(frozen=True, slots=True)
class Failed:
    """There is no answer, or no more of it."""

    error: ApiError
