"""ChatML for whole conversations: from messages to the turns of the models' public templates.

System messages stand where they are, every text of a person is a turn of its own, and results in a
row share one user turn in the order of their calls. Models that think are shown the thinking of the
replies after the last text of a person and of no others. ChatML has no form for an effort, which
therefore changes nothing; a reminder or a response format is refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.chat.chatml import END, START, ChatmlFormat
from engine.chat.conversation import (
    AssistantTurn,
    Conversation,
    HeadTurn,
    Message,
    OpeningTurn,
    SystemTurn,
    Turn,
    UserTurn,
)
from engine.chat.deepseek_v4_layout import arguments_of, as_json
from engine.chat.format import AssistantOpen, System, ToolResults, User
from engine.chat.segments import Control, Segment, join, split_marks
from engine.errors import ConversationError


@dataclass(frozen=True, slots=True)
class ChatmlLayout:
    """The PromptLayout of a ChatML model; ``chat`` renders what a live conversation has too."""

    chat: ChatmlFormat

    def turns(self, conversation: Conversation) -> list[Turn]:
        """Group the messages into turns.

        Raises:
            ConversationError: there is a reminder, a response format or a forced call.
        """
        _refuse_what_has_no_form(conversation)
        messages = list(conversation.messages)
        tools = conversation.tools if conversation.tool_choice != "none" else ()
        system = None
        if messages and messages[0].role == "system":
            system = messages.pop(0).content
        wants_thinking = conversation.thinking and conversation.effort != "none"
        thinking = wants_thinking and self.chat.can_think
        asked = [i for i, m in enumerate(messages) if m.role in ("user", "developer")]
        turns: list[Turn] = [HeadTurn(system, tools)]
        for index, message in enumerate(messages):
            match message.role:
                case "system":
                    turns.append(SystemTurn(message.content))
                case "tool":
                    if index == 0 or messages[index - 1].role != "tool":
                        turns.append(_results(messages, index))
                case "assistant":
                    is_shown = thinking and (not asked or index > asked[-1])
                    shown = (message.reasoning or None) if is_shown else None
                    turns.append(AssistantTurn(message, shown))
                case _:
                    turns.append(UserTurn(((False, message.content),)))
        if not (messages and messages[-1].is_prefix):
            turns.append(OpeningTurn(thinking))
        return turns

    def turn_segments(self, turn: Turn) -> list[Segment]:
        """Render one turn."""
        match turn:
            case HeadTurn(system, tools):
                if system is None and not tools:
                    return self.chat.start_segments()
                return self.chat.segments([System(system or "", tools)])
            case SystemTurn(text):
                return join([Control(START), "system\n", text, Control(END), "\n"])
            case UserTurn(parts) if parts[0][0]:
                return self.chat.segments([ToolResults(tuple(("", text) for _, text in parts))])
            case UserTurn(parts):
                return self.chat.segments([User(parts[0][1])])
            case AssistantTurn():
                return join(self._reply(turn))
            case OpeningTurn(thinking):
                return self.chat.segments([AssistantOpen(thinking)])
        raise ConversationError(f"chatml has no form for {type(turn).__name__}", "Leave it out.")

    def _reply(self, turn: AssistantTurn) -> Iterator[Segment]:
        message = turn.message
        yield from (Control(START), "assistant\n")
        content = message.content
        if turn.reasoning is not None:
            yield from (self.chat.tag("<think>"), "\n", turn.reasoning.strip("\n"))
            if message.is_prefix and not content:
                return
            yield from ("\n", self.chat.tag("</think>"), "\n\n")
            content = content.lstrip("\n")
        yield content
        if message.sampled_block:
            yield from self._sampled(message.sampled_block)
        else:
            for index, call in enumerate(message.calls):
                said = {"name": call.name, "arguments": arguments_of(call)}
                yield "\n" if content or index else ""
                yield from (self.chat.tag("<tool_call>"), "\n", as_json(said), "\n")
                yield self.chat.tag("</tool_call>")
        if not message.is_prefix:
            yield from (Control(END), "\n")

    def _sampled(self, block: str) -> Iterator[Segment]:
        tags = [self.chat.tag(text) for text in ("<tool_call>", "</tool_call>")]
        yield from split_marks(block, [tag.text for tag in tags if isinstance(tag, Control)])


def _refuse_what_has_no_form(conversation: Conversation) -> None:
    found = ""
    if any(message.role == "latest_reminder" for message in conversation.messages):
        found = "a latest_reminder message"
    elif conversation.response_format is not None:
        found = "a response_format"
    elif conversation.tool_choice == "required":
        found = "tool_choice required"
    if found:
        raise ConversationError(
            f"the conversation has {found}, which chatml has no form for", "Leave it out."
        )


def _results(messages: list[Message], start: int) -> UserTurn:
    """Return the turn of the results from ``start`` on, in the order of their calls."""
    end = start
    while end < len(messages) and messages[end].role == "tool":
        end += 1
    calls = messages[start - 1].calls if start else ()
    ranks = {call.call_id: rank for rank, call in reversed(list(enumerate(calls)))}
    ordered = sorted(messages[start:end], key=lambda m: ranks.get(m.call_id, len(calls)))
    return UserTurn(tuple((True, message.content) for message in ordered))
