"""A saved conversation as blocks for the transcript."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from ds4agent.events import HistoryEntry
from ds4agent.plain import one_line
from ds4agent.tui.plain import printable
from ds4agent.tui.widgets.answer import Answer
from ds4agent.tui.widgets.thinking import ThinkingBlock
from ds4agent.tui.widgets.tool_card import Call, CallState, ToolCard, describe
from ds4agent.tui.widgets.transcript import Recipe
from ds4agent.tui.widgets.user_message import UserMessage


def recipes(history: Sequence[HistoryEntry]) -> list[Recipe]:
    """Return one recipe a block, oldest first; a result joins the card of its call.

    Results follow their calls in the order of the calls. The system prompt is not shown.
    """
    blocks: list[Recipe] = []
    unanswered: list[Call] = []
    for number, entry in enumerate(history):
        match entry.role:
            case "user" if entry.text.strip():
                blocks.append(partial(UserMessage, entry.text))
            case "assistant" if entry.text.strip():
                blocks.append(partial(Answer, entry.text.strip("\n")))
            case "thinking" if entry.text.strip():
                blocks.append(partial(ThinkingBlock, entry.text, is_done=True))
            case "call":
                call = _restored_call(f"history-{number}", entry.name, entry.arguments, entry.text)
                unanswered.append(call)
                blocks.append(partial(ToolCard, call))
            case "result":
                if unanswered:
                    call = unanswered.pop(0)
                else:
                    call = _restored_call(f"history-{number}", entry.name, None, "")
                    blocks.append(partial(ToolCard, call))
                call.output = printable(entry.text)
                if entry.ok is not None:
                    call.state = CallState.OK if entry.ok else CallState.FAILED
                    call.title = one_line(entry.title) or call.title
                    call.diff, call.exit_code = printable(entry.diff), entry.exit_code
    return blocks


def _restored_call(call_id: str, name: str, arguments: dict[str, Any] | None, raw: str) -> Call:
    return Call(
        call_id=call_id,
        name=name or "call",
        title=describe(name or "call", arguments),
        arguments=printable(raw),
        state=CallState.DONE,
    )
