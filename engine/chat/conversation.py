"""A whole conversation as data: what a client sends, or what a file holds, before it is a prompt.

``Conversation`` has the vocabulary of the public chat interfaces. A format turns it into *turns*,
the units that a prompt consists of. Every turn begins with a control token, and text is never
encoded across a control token, so the tokens of a prompt are the tokens of its turns, one after
the other. That is what lets ``engine.chat.incremental`` encode only the turns that are new.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from engine.chat.format import ToolSpec
from engine.chat.segments import Segment

Effort = str | int | None  # a level, a number of the V4.1 scale, or nothing said


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of a past reply. ``arguments`` is JSON text, as the interfaces carry it."""

    call_id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message.

    Attributes:
        role: ``system``, ``user``, ``developer``, ``assistant``, ``tool`` or ``latest_reminder``.
        content: Its text.
        reasoning: Thinking of an assistant message; None where nothing is known of it.
        calls: Tool calls of an assistant message.
        call_id: The call that a tool message answers.
        is_prefix: An assistant message that the model is to continue; only the last may be one.
        sampled_block: The tool calls exactly as the model sampled them, if known: they stand in
            place of ``calls``. Only the program that sampled them may set this, since the marks in
            it become control tokens.
    """

    role: str
    content: str = ""
    reasoning: str | None = None
    calls: tuple[Call, ...] = ()
    call_id: str = ""
    is_prefix: bool = False
    sampled_block: str = ""


@dataclass(frozen=True, slots=True)
class ResponseFormat:
    """What the answer must look like: ``schema`` is None for any JSON object."""

    schema: Any = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages and everything else that a prompt depends on."""

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    thinking: bool = False
    effort: Effort = None
    tool_choice: str = "auto"  # or "none", "required"
    response_format: ResponseFormat | None = None


# --- the turns of a prompt ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeadTurn:
    """What stands before the first message; in every prompt, though it may be empty."""

    system: str | None
    tools: tuple[ToolSpec, ...] = ()
    preamble: str = ""  # what the effort adds
    response_format: ResponseFormat | None = None


@dataclass(frozen=True, slots=True)
class SystemTurn:
    """A later system message, where it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class UserTurn:
    """Texts of a person and results of tools: (is a result, text)."""

    parts: tuple[tuple[bool, str], ...]


@dataclass(frozen=True, slots=True)
class ReminderTurn:
    """A reminder, where it stands."""

    text: str


@dataclass(frozen=True, slots=True)
class AssistantTurn:
    """A past reply, or the beginning of the next one.

    Attributes:
        message: What was said.
        reasoning: The thinking to show, None to show none. Differs from that of the message where
            past thinking is dropped.
        opens_block: A prefix after which a tool call has to follow.
    """

    message: Message
    reasoning: str | None
    opens_block: bool = False


@dataclass(frozen=True, slots=True)
class OpeningTurn:
    """The generation prefix."""

    thinking: bool
    opens_block: bool = False


Turn = HeadTurn | SystemTurn | UserTurn | ReminderTurn | AssistantTurn | OpeningTurn


class PromptLayout(Protocol):
    """How one family of models was trained to see a conversation."""

    def turns(self, conversation: Conversation) -> list[Turn]:
        """Group the messages into turns. Renders nothing.

        Raises:
            ConversationError: the conversation has something that the format has no form for.
        """

    def turn_segments(self, turn: Turn) -> list[Segment]:
        """Render one turn; the result depends on nothing else."""


def render_whole(conversation: Conversation, layout: PromptLayout) -> list[Segment]:
    """Render a conversation from its first to its last token."""
    turns = layout.turns(conversation)
    return [segment for turn in turns for segment in layout.turn_segments(turn)]
