"""The protocol of chat formats: how a conversation becomes tokens, and sampled bytes events.

A format renders *only what is new*. The caller appends the tokens to the live state and never
renders a past turn again, so a conversation is exactly the tokens that the state has consumed.
Text from people, files and tools is always encoded as plain text: it can never become a control
token, whatever it contains.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from engine.chat.syntax import Syntax


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; ``parameters`` is a JSON schema object."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A complete call. ``raw`` is the sampled text it was read from, newlines before it included;
    calls of one block share it."""

    name: str
    arguments: dict[str, Any]
    raw: str


# --- what can be rendered -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class System:
    """The head of a conversation: once, first.

    ``effort`` is how thoroughly to think, for models that can be told; None says nothing.
    """

    text: str
    tools: tuple[ToolSpec, ...] = ()
    effort: str | int | None = None


@dataclass(frozen=True, slots=True)
class User:
    text: str


@dataclass(frozen=True, slots=True)
class ToolResults:
    """Results of the calls of the last assistant turn, in the order of the calls."""

    results: tuple[tuple[str, str], ...]  # (tool name, text)


@dataclass(frozen=True, slots=True)
class AssistantOpen:
    """The generation prefix: everything up to the first sampled token."""

    thinking: bool = False


@dataclass(frozen=True, slots=True)
class AssistantClose:
    """What must follow the sampled tokens so that the next turn starts on a legal boundary."""

    stopped: bool  # the model sampled its own end-of-turn token
    in_thinking: bool = False  # generation ended inside unclosed thinking


Item = System | User | ToolResults | AssistantOpen | AssistantClose


# --- what a stream parser reports ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    text: str


@dataclass(frozen=True, slots=True)
class Thinking:
    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments as the model writes them, for display only."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallComplete:
    index: int
    call: ToolCall
    repaired: bool = False  # the model ended its turn before the last closing tags


@dataclass(frozen=True, slots=True)
class CallMalformed:
    """Something that was meant as a call and cannot be run."""

    reason: str  # one line that tells the model what to write instead
    raw: str


ParserEvent = Text | Thinking | CallStarted | CallArguments | CallComplete | CallMalformed


class StreamParser(Protocol):
    """Turns sampled bytes, cut anywhere, into events. The same bytes give the same events
    (texts joined) at every cut."""

    finished: bool  # the calls are complete: stop sampling, nothing after them counts
    in_thinking: bool
    syntax: Syntax  # what the next token belongs to

    def feed(self, data: bytes) -> list[ParserEvent]: ...

    def finish(self, stopped: bool = False) -> list[ParserEvent]:
        """Flush what was held back at the end of the generation. ``stopped``: the model ended
        its turn itself, so what is missing was forgotten and not cut off."""


# --- reading a conversation back ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One part of a past conversation, for display. ``role`` is one of ``system``, ``user``,
    ``assistant``, ``thinking``, ``call``, ``result``."""

    role: str
    text: str
    name: str = ""  # tool name of a call or a result
    arguments: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class TurnStart:
    """Where a turn begins. ``role`` is ``system``, ``user``, ``result`` or ``assistant``."""

    position: int  # index of its first token
    role: str


class ChatFormat(Protocol):
    name: str  # "chatml", "deepseek_v4"
    stop_ids: frozenset[int]
    can_think: bool

    def render(self, items: Sequence[Item]) -> list[int]: ...

    def parser(
        self, tools: Sequence[ToolSpec], thinking: bool, *, is_forced: bool = False
    ) -> StreamParser:
        """Return a parser for one reply. ``is_forced``: it follows a grammar, in which a call has
        its tags and JSON without them is the answer."""

    def call_beginnings(self) -> tuple[int, ...]:
        """Token ids by which an answer may begin that turns out to be a call: an answer that
        must be words begins with any other one."""

    def history(self, tokens: Sequence[int], tools: Sequence[ToolSpec]) -> list[HistoryItem]:
        """Read a whole conversation back from its token ids. Control tokens are told from text
        by id, so a user's text can't forge a turn."""

    def turns(self, tokens: Sequence[int]) -> list[TurnStart]:
        """Return where the turns of a conversation begin, by the ids of control tokens. Between
        an assistant's turn and the ``result`` that follows it nothing may be cut."""
