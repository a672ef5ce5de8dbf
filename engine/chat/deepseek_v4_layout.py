"""How DeepSeek V4 was trained to see a turn: text and control tokens, turn by turn.

    BOS  effort  system text  tools section  format section
    { <｜User｜> text | <｜Assistant｜> reply EOS }
    <｜Assistant｜> <think> | </think>

Facts as published with the checkpoints. Control tokens are what this file writes and nothing else;
every text that is passed in stays text.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from engine.chat.conversation import (
    AssistantTurn,
    Call,
    HeadTurn,
    OpeningTurn,
    ReminderTurn,
    SystemTurn,
    Turn,
    UserTurn,
)
from engine.chat.deepseek_v4_dialect import (
    ASSISTANT,
    BOS,
    EOS,
    REMINDER,
    SYSTEM,
    THINK,
    THINK_END,
    USER,
    Dialect,
)
from engine.chat.dsml_tags import MARK
from engine.chat.format import ToolSpec
from engine.chat.segments import Control, Segment, join, split_marks

RESULT_OPEN, RESULT_CLOSE = "<tool_result>", "</tool_result>"
ESCAPED_RESULT_CLOSE = "&lt;/tool_result>"
TOOLS_TITLE = "\n\n## Tools\n\n"
_TOOLS_HEAD = """\
You have access to a set of tools to help answer the user's question. \
You can invoke tools by writing a "<{mark}{block}>" block like the following:

<{mark}{block}>
<{mark}invoke name="$TOOL_NAME">
<{mark}parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</{mark}parameter>
...
</{mark}invoke>
<{mark}invoke name="$TOOL_NAME2">
...
</{mark}invoke>
</{mark}{block}>

String parameters should be specified as is and set `string="true"`. \
For all other types (numbers, booleans, arrays, objects), pass the value in JSON format and set \
`string="false"`.

If thinking_mode is enabled (triggered by <think>), you MUST output your complete reasoning inside \
<think>...</think> BEFORE any tool calls or final response.

Otherwise, output directly after </think> with tool calls or final response.

### Available Tool Schemas

"""
_TOOLS_TAIL = """

You MUST strictly follow the above defined tool name and parameter schemas to invoke tool calls.
"""


@dataclass(frozen=True, slots=True)
class TurnWriter:
    """Renders turns in one dialect.

    Attributes:
        dialect: The generation of the checkpoint.
        escapes_closing_tags: Write the exact closing tag of an argument or a result inside one as
            ``&lt;/...`` (``\\u003c/...`` in JSON), so that no content ends its own frame. The
            trained layout has no escape; a history without it can be read in two ways.
    """

    dialect: Dialect
    escapes_closing_tags: bool = False

    def segments(self, turn: Turn) -> list[Segment]:
        """Render one turn."""
        return join(self._turn(turn))

    def block(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[Segment]:
        """Render a block of calls, given as names and arguments."""
        return join(self._block(calls))

    def _turn(self, turn: Turn) -> Iterator[Segment]:
        match turn:
            case HeadTurn():
                yield Control(BOS)
                yield from self._head(turn)
            case SystemTurn(text):
                yield from (Control(SYSTEM), text)
            case UserTurn(parts):
                yield Control(USER)
                yield "\n\n".join(self._result(text) if result else text for result, text in parts)
            case ReminderTurn(text):
                yield from (Control(REMINDER), text)
            case AssistantTurn():
                yield Control(ASSISTANT)
                yield from self._reply(turn)
            case OpeningTurn(thinking, opens_block):
                yield from (Control(ASSISTANT), Control(THINK if thinking else THINK_END))
                if opens_block:
                    yield from self._block_open()
            case _:
                assert_never(turn)

    def _head(self, head: HeadTurn) -> Iterator[Segment]:
        has_sections = head.system is not None or head.tools or head.response_format
        if self.dialect.marks_system and (head.preamble or has_sections):
            yield Control(SYSTEM)
        yield head.preamble
        yield head.system or ""
        if head.tools:
            yield from self._tools(head.tools)
        if head.response_format is not None:
            yield self.dialect.response_format(head.response_format.schema, as_json)

    def _tools(self, tools: Sequence[ToolSpec]) -> Iterator[Segment]:
        tags = self.dialect.tags
        yield TOOLS_TITLE
        yield from split_marks(
            _TOOLS_HEAD.format(mark=tags.mark, block=tags.block), (MARK, THINK, THINK_END)
        )
        # One JSON object a line; whatever it says stays text.
        yield "\n".join(as_json(tool_schema(tool)) for tool in tools)
        yield _TOOLS_TAIL

    def _reply(self, turn: AssistantTurn) -> Iterator[Segment]:
        message = turn.message
        is_open_thought = message.is_prefix and not message.content
        if turn.reasoning is not None:
            yield from (Control(THINK), turn.reasoning)
        if turn.reasoning is None or not is_open_thought:
            yield Control(THINK_END)
        yield message.content
        if message.sampled_block:
            yield from split_marks(message.sampled_block, (MARK,))
        elif message.calls:
            yield from self._block([(call.name, arguments_of(call)) for call in message.calls])
        if turn.opens_block:
            yield from self._block_open()
        if not message.is_prefix:
            yield Control(EOS)

    def _block_open(self) -> Iterator[Segment]:
        yield "\n\n"
        yield from self._tag(self.dialect.tags.block_open + "\n")

    def _block(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> Iterator[Segment]:
        tags = self.dialect.tags
        yield from self._block_open()
        for name, arguments in calls:
            yield from self._tag(tags.open)
            yield f'invoke name="{name}">\n'
            for key, value in arguments.items():
                yield from self._parameter(key, value)
            if not arguments:
                yield self.dialect.empty_call
            yield from self._tag(tags.call_close + "\n")
        yield from self._tag(tags.block_close)

    def _parameter(self, key: str, value: Any) -> Iterator[Segment]:
        tags = self.dialect.tags
        is_string = isinstance(value, str)
        written = value if is_string else as_json(value)
        if self.escapes_closing_tags:
            escaped = tags.escaped_value_close if is_string else "\\u003c" + tags.value_close[1:]
            written = written.replace(tags.value_close, escaped)
        yield from self._tag(tags.open)
        yield f'parameter name="{key}" string="{"true" if is_string else "false"}">'
        yield written
        yield from self._tag(tags.value_close + "\n")

    def _result(self, text: str) -> str:
        if self.escapes_closing_tags:
            text = text.replace(RESULT_CLOSE, ESCAPED_RESULT_CLOSE)
        return RESULT_OPEN + text + RESULT_CLOSE

    @staticmethod
    def _tag(text: str) -> Iterator[Segment]:
        return split_marks(text, (MARK,))


def as_json(value: Any) -> str:
    """Write JSON as Python's encoder does by default, with non-ASCII characters as they are: what
    the models were trained on."""
    return json.dumps(value, ensure_ascii=False)


def tool_schema(tool: ToolSpec) -> dict[str, Any]:
    """Return the object that a model is shown of a tool."""
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
    }


def arguments_of(call: Call) -> dict[str, Any]:
    """Read the arguments of a past call.

    What is no JSON object, or holds a value that JSON or UTF-8 can't carry, becomes one argument
    named ``arguments`` that is the text itself, as trained.
    """
    try:
        value = json.loads(call.arguments, parse_constant=_refuse)
        if isinstance(value, dict):
            json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
            return value
    except (ValueError, RecursionError):
        pass
    return {"arguments": call.arguments}


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")
