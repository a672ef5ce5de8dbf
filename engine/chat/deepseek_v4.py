"""The chat format of DeepSeek V4: turn tokens, DSML tools, thinking.

    BOS  system text  tools section  { <｜User｜> text | <｜Assistant｜> reply EOS }

Plain conversations with tools only: effort preambles, reminders and response formats are not
rendered. Consecutive user texts and tool results that are rendered together share one user turn,
joined by an empty line, as trained.

One thing differs from the trained layout: inside a tool's output the exact text ``</tool_result>``
is written ``&lt;/tool_result>``, and inside an argument the closing parameter tag likewise, so
that no content ends its own frame.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from engine.chat.dsml_parser import MARK, DsmlParser
from engine.chat.format import (
    AssistantClose,
    AssistantOpen,
    CallComplete,
    CallMalformed,
    HistoryItem,
    Item,
    System,
    Text,
    Thinking,
    ToolResults,
    ToolSpec,
    User,
)
from engine.chat.segments import Control, Segment, encode, join
from engine.tokenizer import Tokenizer

BOS, EOS = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, THINK_END = "<think>", "</think>"
CONTROL_TOKENS = (BOS, EOS, USER, ASSISTANT, THINK, THINK_END, MARK)
_RESULT_OPEN, _RESULT_CLOSE = "<tool_result>", "</tool_result>"
_ESCAPED_CLOSE = "&lt;/tool_result>"
_TOOLS_HEAD = """\


## Tools

You have access to a set of tools to help answer the user's question. \
You can invoke tools by writing a "<｜DSML｜tool_calls>" block like the following:

<｜DSML｜tool_calls>
<｜DSML｜invoke name="$TOOL_NAME">
<｜DSML｜parameter name="$PARAMETER_NAME" string="true|false">$PARAMETER_VALUE</｜DSML｜parameter>
...
</｜DSML｜invoke>
<｜DSML｜invoke name="$TOOL_NAME2">
...
</｜DSML｜invoke>
</｜DSML｜tool_calls>

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
_CALL_OPENERS = b"<"


class DeepseekV4Format:
    """The ChatFormat of models whose vocabulary has all of ``CONTROL_TOKENS``."""

    name = "deepseek_v4"
    can_think = True

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Look the control tokens up.

        Raises:
            ModelFileError: one is missing.
        """
        self._tokenizer = tokenizer
        self._call_beginnings: tuple[int, ...] | None = None  # of the vocabulary, when asked for
        ids = {text: tokenizer.control_id(text) for text in CONTROL_TOKENS}
        self._bos_id, self._eos_id = ids[BOS], ids[EOS]
        self._user_id, self._assistant_id = ids[USER], ids[ASSISTANT]
        self._thought_ids = (ids[THINK], ids[THINK_END])
        self.stop_ids = frozenset({*tokenizer.eos_ids, self._eos_id})

    def render(self, items: Sequence[Item]) -> list[int]:
        """Encode the next part of a conversation."""
        return encode(self.segments(items), self._tokenizer)

    def segments(self, items: Sequence[Item]) -> list[Segment]:
        """Render the next part of a conversation as text and control tokens."""
        return join(_render(items))

    def parser(self, tools: Sequence[ToolSpec], thinking: bool) -> DsmlParser:
        """Return a parser for one reply that was opened with or without thinking."""
        return DsmlParser(tools, thinking)

    def call_beginnings(self) -> tuple[int, ...]:
        """Token ids by which a call may begin."""
        if self._call_beginnings is None:
            self._call_beginnings = self._tokenizer.ids_beginning_with(_CALL_OPENERS)
        return self._call_beginnings

    def history(self, tokens: Sequence[int], tools: Sequence[ToolSpec]) -> list[HistoryItem]:
        """Read a conversation back, turn by turn, from its token ids."""
        items: list[HistoryItem] = []
        pending: list[str] = []  # names of the calls that have no result yet
        for opener, body in self._turns(tokens):
            if opener == self._assistant_id:
                parts, pending = self._read_reply(body, tools)
                items += parts
                continue
            text = self._decode(body)
            if opener == self._user_id and pending and text.startswith(_RESULT_OPEN):
                items += _read_results(text, pending)
                pending = []
            elif opener == self._user_id:
                items.append(HistoryItem("user", text))
            elif text:
                items.append(HistoryItem("system", text.rpartition(_TOOLS_HEAD)[0] or text))
        return items

    def _decode(self, ids: Sequence[int]) -> str:
        raw = b"".join(self._tokenizer.token_bytes(token_id) for token_id in ids)
        return raw.decode("utf-8", "replace")

    def _turns(self, tokens: Sequence[int]) -> Iterator[tuple[int, list[int]]]:
        """Yield each turn: the token that opened it, and the ids up to the next."""
        opener: int | None = None
        body: list[int] = []
        for token_id in tokens:
            if token_id in (self._bos_id, self._user_id, self._assistant_id, self._eos_id):
                if opener is not None:
                    yield opener, body
                opener, body = (None if token_id == self._eos_id else token_id), []
            elif opener is not None:
                body.append(token_id)
        if opener is not None:
            yield opener, body

    def _read_reply(
        self, body: Sequence[int], tools: Sequence[ToolSpec]
    ) -> tuple[list[HistoryItem], list[str]]:
        is_thinking = bool(body) and body[0] == self._thought_ids[0]
        if body and body[0] in self._thought_ids:
            body = body[1:]
        parser = DsmlParser(tools, is_thinking)
        events = parser.feed(b"".join(self._tokenizer.token_bytes(i) for i in body))
        events += parser.finish()
        items: list[HistoryItem] = []
        called: list[str] = []
        for role, kind in (("thinking", Thinking), ("assistant", Text)):
            text = "".join(event.text for event in events if isinstance(event, kind))
            if text:
                items.append(HistoryItem(role, text))
        for event in events:
            if isinstance(event, CallComplete):
                call = event.call
                items.append(HistoryItem("call", call.raw, call.name, call.arguments))
                called.append(call.name)
            elif isinstance(event, CallMalformed):
                items.append(HistoryItem("assistant", event.raw))
                called.append("")
        return items, called


def assistant_segments(
    text: str, calls: Sequence[tuple[str, dict[str, Any]]] = (), thinking: str | None = None
) -> list[Segment]:
    """Render a finished reply, up to and without EOS, as it follows ``<｜Assistant｜>``.

    For replies that are known only as text, such as those of a conversation that is read in again.
    ``thinking`` is None outside thinking mode.
    """
    segments: list[Segment] = []
    if thinking is not None:
        segments += [Control(THINK), thinking]
    segments += [Control(THINK_END), text]
    if calls:
        segments += ["\n\n<", Control(MARK), "tool_calls>\n"]
        for name, arguments in calls:
            segments += ["<", Control(MARK), f'invoke name="{name}">\n']
            for key, value in arguments.items():
                segments += _parameter(key, value)
            segments += ["</", Control(MARK), "invoke>\n"]
        segments += ["</", Control(MARK), "tool_calls>"]
    return join(segments)


def _parameter(key: str, value: Any) -> Iterator[Segment]:
    is_string = isinstance(value, str)
    written = value if is_string else json.dumps(value, ensure_ascii=False)
    close = f"</{MARK}parameter>"
    escaped = ("&lt;" if is_string else "\\u003c") + close[1:]
    yield from ("<", Control(MARK))
    yield f'parameter name="{key}" string="{str(is_string).lower()}">'
    yield written.replace(close, escaped)
    yield from ("</", Control(MARK), "parameter>\n")


def _render(items: Sequence[Item]) -> Iterator[Segment]:
    before: Item | None = None
    for item in items:
        match item:
            case System(text, tools):
                yield from (Control(BOS), text)
                if tools:
                    yield from _tools(tools)
            case User() | ToolResults():
                # A result that follows a text opens a turn of its own.
                joins = User | ToolResults if isinstance(item, User) else ToolResults
                yield "\n\n" if isinstance(before, joins) else Control(USER)
                yield item.text if isinstance(item, User) else _results(item)
            case AssistantOpen(thinking):
                yield from (Control(ASSISTANT), Control(THINK if thinking else THINK_END))
            case AssistantClose(stopped, in_thinking) if not stopped:
                if in_thinking:
                    yield Control(THINK_END)
                yield Control(EOS)
        before = item


def _results(item: ToolResults) -> str:
    return "\n\n".join(
        _RESULT_OPEN + text.replace(_RESULT_CLOSE, _ESCAPED_CLOSE) + _RESULT_CLOSE
        for _, text in item.results
    )


def _tools(tools: Sequence[ToolSpec]) -> Iterator[Segment]:
    yield from _with_marks(_TOOLS_HEAD)
    lines = []
    for tool in tools:
        function = {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.parameters,
        }
        lines.append(json.dumps(function, ensure_ascii=False))
    yield from ("\n".join(lines), _TOOLS_TAIL)


def _with_marks(text: str) -> Iterator[Segment]:
    """Yield our own text with the marks in it as control tokens."""
    pieces = [text]
    for mark in (MARK, THINK, THINK_END):
        pieces = [part for piece in pieces for part in _split(piece, mark)]
    yield from pieces


def _split(piece: Segment, mark: str) -> Iterator[Segment]:
    if not isinstance(piece, str):
        yield piece
        return
    for index, part in enumerate(piece.split(mark)):
        if index:
            yield Control(mark)
        yield part


def _read_results(text: str, names: Sequence[str]) -> Iterator[HistoryItem]:
    # The closing tag is escaped inside a result, so this can only be a seam or the end.
    *parts, rest = text.split(_RESULT_CLOSE, len(names))
    for index, part in enumerate(parts):
        name = names[index] if index < len(names) else ""
        body = part.removeprefix("\n\n" if index else "").removeprefix(_RESULT_OPEN)
        yield HistoryItem("result", body.replace(_ESCAPED_CLOSE, _RESULT_CLOSE), name)
    if rest.strip("\n"):
        yield HistoryItem("user", rest.removeprefix("\n\n"))
