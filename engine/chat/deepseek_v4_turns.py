"""From the messages of a conversation to the turns that DeepSeek V4 was trained on.

Three rules decide what a turn holds. System messages are lifted to the top (V4) or stand where they
are (V4.1). Texts of a person and results of tools in a row share one turn, results in the order of
the calls they answer. Past thinking is shown while the conversation declares tools; without tools
only that of a reply which the model is to continue.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.chat.conversation import (
    AssistantTurn,
    Conversation,
    HeadTurn,
    Message,
    OpeningTurn,
    ReminderTurn,
    SystemTurn,
    Turn,
    UserTurn,
)
from engine.chat.deepseek_v4_dialect import Dialect
from engine.chat.deepseek_v4_layout import TurnWriter
from engine.chat.segments import Segment

_USER_ROLES = ("user", "developer", "tool")


@dataclass(frozen=True, slots=True)
class DeepseekV4Layout:
    """The PromptLayout of one generation of checkpoints.

    Attributes:
        dialect: The generation.
        escapes_closing_tags: See ``TurnWriter``.
        keeps_thinking_of_tool_history: Show all past thinking also where the conversation declares
            no tools but has calls or results in its history.
    """

    dialect: Dialect
    escapes_closing_tags: bool = False
    keeps_thinking_of_tool_history: bool = False

    def turn_segments(self, turn: Turn) -> list[Segment]:
        """Render one turn."""
        return TurnWriter(self.dialect, self.escapes_closing_tags).segments(turn)

    def turns(self, conversation: Conversation) -> list[Turn]:
        """Group the messages into turns.

        Raises:
            ConversationError: the checkpoint knows no such effort.
        """
        thinking = conversation.thinking and conversation.effort != "none"
        tools = conversation.tools if conversation.tool_choice != "none" else ()
        system, messages = self._lift_system(conversation.messages)
        head = HeadTurn(
            system,
            tools,
            self.dialect.efforts.preamble(conversation.effort) if thinking else "",
            conversation.response_format,
        )
        shows_from = len(messages)
        if thinking:
            shows_from = self._thinking_shown_from(messages, bool(tools))
        opens_block = bool(tools) and conversation.tool_choice == "required"
        turns: list[Turn] = [head]
        at = 0
        while at < len(messages):
            message = messages[at]
            if message.role in _USER_ROLES:
                end = self._end_of_user_turn(messages, at)
                turns.append(UserTurn(_parts(messages, at, end, self.dialect.merges_results)))
                at = end
                continue
            match message.role:
                case "system":
                    turns.append(SystemTurn(message.content))
                case "latest_reminder":
                    turns.append(ReminderTurn(message.content))
                case _:
                    reasoning = (message.reasoning or "") if at >= shows_from else None
                    if message.is_prefix and message.content and not message.reasoning:
                        reasoning = None
                    turns.append(
                        AssistantTurn(message, reasoning, message.is_prefix and opens_block)
                    )
            at += 1
        if not (messages and messages[-1].is_prefix):
            turns.append(OpeningTurn(thinking, opens_block))
        return turns

    def _lift_system(self, messages: Sequence[Message]) -> tuple[str | None, list[Message]]:
        """Return the system text of the head, and the messages without those it is made of."""
        if self.dialect.marks_system:
            if messages and messages[0].role == "system":
                return messages[0].content, list(messages[1:])
            return None, list(messages)
        texts = [m.content for m in messages if m.role == "system" and m.content]
        others = [m for m in messages if m.role != "system"]
        return ("\n\n".join(texts) if texts else None), others

    def _thinking_shown_from(self, messages: Sequence[Message], has_tools: bool) -> int:
        if self.keeps_thinking_of_tool_history:
            has_tools = has_tools or any(m.calls or m.role == "tool" for m in messages)
        if has_tools:
            return 0
        is_open = bool(messages) and messages[-1].is_prefix
        return len(messages) - is_open

    def _end_of_user_turn(self, messages: Sequence[Message], start: int) -> int:
        for at in range(start, len(messages)):
            if messages[at].role not in _USER_ROLES:
                return at
            follows_text = at > start and messages[at - 1].role != "tool"
            if follows_text and messages[at].role == "tool" and not self.dialect.merges_results:
                return at
        return len(messages)


def _parts(
    messages: Sequence[Message], start: int, end: int, sorts_all: bool
) -> tuple[tuple[bool, str], ...]:
    """Return the parts of a user turn, results in the order of their calls.

    Texts stay where they are. Where ``sorts_all`` is false, only the first results of the turn are
    sorted, as many as there were calls right before them, and one that answers no call comes last;
    otherwise all are, and one that answers no call counts as an answer to the first.
    """
    results = [i for i in range(start, end) if messages[i].role == "tool"]
    caller = None
    if results:  # else a long conversation without calls would be gone through at each turn
        caller = next((i for i in range(start - 1, -1, -1) if messages[i].calls), None)
    order = list(range(start, end))
    if caller is not None and (sorts_all or caller == start - 1):
        calls = messages[caller].calls
        ranks = {call.call_id: rank for rank, call in reversed(list(enumerate(calls)))}
        unknown = 0 if sorts_all else len(calls)
        if not sorts_all:
            leading = [i for n, i in enumerate(results) if i == start + n]
            results = leading[: len(calls)]
        in_order = sorted(results, key=lambda i: ranks.get(messages[i].call_id, unknown))
        for place, index in zip(results, in_order, strict=True):
            order[place - start] = index
    parts = [(messages[i].role == "tool", messages[i].content) for i in order]
    return tuple(parts if sorts_all else _without_empty_texts(parts))


def _without_empty_texts(parts: Sequence[tuple[bool, str]]) -> Iterator[tuple[bool, str]]:
    """Leave out empty texts beside other texts: V4 puts no empty lines around them."""
    for is_result, group in itertools.groupby(parts, key=lambda part: part[0]):
        run = list(group)
        if is_result:
            yield from run
        else:
            yield from [part for part in run if part[1]] or run[:1]
