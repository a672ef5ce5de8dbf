"""Reading a DeepSeek V4 reply as it is sampled: thinking, text, and one block of tool calls (DSML).

    message   = [ thinking "</think>" ] text [ block ]
    block     = "<｜DSML｜tool_calls>" call+ "</｜DSML｜tool_calls>"
    call      = '<｜DSML｜invoke name="N">' parameter* "</｜DSML｜invoke>"
    parameter = '<｜DSML｜parameter name="N" string="true|false">' value "</｜DSML｜parameter>"

White space may stand between tags. The V4.1 spelling, with a space after the second bar and
``calls`` for ``tool_calls``, is read as well. A value ends at the first closing parameter tag,
as trained; only ``&lt;`` in front of exactly that tag is an escape.

A block counts as a whole. Its calls are reported as complete when it closes; if any tag, value or
name in it is wrong, or the reply ends inside it, the whole block is one malformed call. So half a
shell command is never run. A block inside thinking is thinking.
"""

import codecs
import json
import re
from collections.abc import Sequence
from enum import Enum, auto
from os.path import commonprefix

from engine.chat.format import (
    CallArguments,
    CallComplete,
    CallMalformed,
    CallStarted,
    ParserEvent,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
)
from engine.chat.object_scanner import read_json
from engine.chat.segments import example_arguments, find_mark

MARK = "｜DSML｜"
_OPEN = f"<{MARK}"
_BLOCK_OPENS = (f"{_OPEN}tool_calls>", f"{_OPEN} calls>")
_TAG_BEGINS = (_OPEN, f"</{MARK}")
_TAG_ENDS = re.compile(r'"[^"]*(?:"|\Z)|>')  # a > inside quotes ends no tag
_TAG = re.compile(rf'<(/?){MARK} ?([a-z_]+)((?:\s+[a-z]+="[^"]*")*)\s*>')
_ATTRIBUTE = re.compile(r'\s+([a-z]+)="([^"]*)"')
_VALUE_ENDS = (f"</{MARK}parameter>", f"</{MARK} parameter>")
_ESCAPED_END = "&lt;" + _VALUE_ENDS[0][1:]
_THINK_END = "</think>"
_MAX_TAG = 512  # characters; real tags are below 100


class _State(Enum):
    THINK = auto()
    TEXT = auto()
    BLOCK = auto()  # between tags
    VALUE = auto()  # in a parameter
    DONE = auto()


class _Malformed(Exception):
    """The block can't be run; the message is one line that says why."""


class DsmlParser:
    """A StreamParser for one reply.

    Attributes:
        finished: The block has closed, or is broken: nothing after it counts.
        in_thinking: ``</think>`` has not come yet.
    """

    def __init__(self, tools: Sequence[ToolSpec], thinking: bool) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _State.THINK if thinking else _State.TEXT
        self._is_fresh = True  # nothing but newlines in this part so far: they are dropped
        self._n_newlines = 0  # held back: dropped if a block or the end of thinking follows
        self._tail = ""  # seen but undecided; never longer than a tag
        self._raw: list[str] = []  # the block so far
        self._calls: list[tuple[str, dict]] = []
        self._name: str | None = None  # of the open call
        self._arguments: dict = {}
        self._key: str | None = None  # of the open parameter
        self._is_string = True
        self._value: list[str] = []
        self._events: list[ParserEvent] = []

    @property
    def finished(self) -> bool:
        return self._state is _State.DONE

    @property
    def in_thinking(self) -> bool:
        return self._state is _State.THINK

    def feed(self, data: bytes) -> list[ParserEvent]:
        """Take the next bytes of the reply and return what is now certain."""
        self._advance(self._decoder.decode(data))
        return self._take_events()

    def finish(self) -> list[ParserEvent]:
        """Flush what was held back. A block that was cut off is never completed."""
        self._advance(self._decoder.decode(b"", final=True))
        tail, self._tail = self._tail, ""
        if self._state in (_State.BLOCK, _State.VALUE):
            self._raw.append(tail)
            self._fail("the block of calls was cut off")
        elif self._state is _State.TEXT and self._tools and tail.startswith(_OPEN):
            self._raw = [tail]
            self._fail("the block of calls was cut off")
        elif self._state is not _State.DONE:
            self._say(tail)
            self._say_newlines()
        self._state = _State.DONE
        return self._take_events()

    def _take_events(self) -> list[ParserEvent]:
        events, self._events = self._events, []
        return events

    def _advance(self, text: str) -> None:
        text = self._tail + text
        self._tail = ""
        steps = {
            _State.THINK: self._on_think,
            _State.TEXT: self._on_text,
            _State.BLOCK: self._on_block,
            _State.VALUE: self._on_value,
        }
        at = 0
        try:
            while at < len(text) and self._state is not _State.DONE:
                before, state = at, self._state
                at = steps[state](text, at)
                if at == before and self._state is state:
                    self._tail = text[at:]  # the step needs more
                    return
        except _Malformed as error:
            self._fail(str(error))

    def _on_think(self, text: str, at: int) -> int:
        found, mark = find_mark(text[at:], (_THINK_END,))
        self._say(text[at : at + found])
        if mark:
            self._state = _State.TEXT
            self._is_fresh, self._n_newlines = True, 0
        return at + found + len(mark)

    def _on_text(self, text: str, at: int) -> int:
        marks = (_THINK_END, *_BLOCK_OPENS) if self._tools else (_THINK_END,)
        found, mark = find_mark(text[at:], marks)
        self._say(text[at : at + found])
        if mark in _BLOCK_OPENS:
            self._state = _State.BLOCK
            self._raw.append(mark)
        return at + found + len(mark)  # a stray </think> is dropped

    def _say(self, text: str) -> None:
        """Emit text, keeping back the newlines at its end and dropping those at the start."""
        if self._is_fresh:
            text = text.lstrip("\n")
        if not text:
            return
        self._is_fresh = False
        body = text.rstrip("\n")
        if body:
            self._say_newlines()
            self._emit(body)
        self._n_newlines += len(text) - len(body)

    def _say_newlines(self) -> None:
        if self._n_newlines:
            self._emit("\n" * self._n_newlines)
            self._n_newlines = 0

    def _emit(self, text: str) -> None:
        self._events.append(Thinking(text) if self._state is _State.THINK else Text(text))

    def _on_block(self, text: str, at: int) -> int:
        start = at
        while at < len(text) and text[at].isspace():
            at += 1
        self._raw.append(text[start:at])
        if at == len(text):
            return at
        n_fitting = max(len(commonprefix([text[at : at + 16], begin])) for begin in _TAG_BEGINS)
        if n_fitting < len(_OPEN) and at + n_fitting < len(text):
            self._raw.append(text[at : at + n_fitting + 1])
            raise _Malformed("only tags may stand between the tags of a block")
        head = text[at : at + _MAX_TAG]
        n_tag = next((m.end() for m in _TAG_ENDS.finditer(head) if m.group() == ">"), None)
        if n_tag is None and len(head) == _MAX_TAG:
            self._raw.append(head)
            raise _Malformed("a tag has no end")
        if n_tag is None:
            return at
        end = at + n_tag
        self._raw.append(text[at:end])
        self._on_tag(text[at:end])
        return end

    def _on_tag(self, text: str) -> None:
        tag = _TAG.fullmatch(text)
        if tag is None:
            raise _Malformed(f"{text[:80]} is no tag")
        is_close, kind = bool(tag[1]), tag[2]
        attributes = dict(_ATTRIBUTE.findall(tag[3]))
        match (kind, is_close, self._name is not None):
            case ("invoke", False, False):
                self._open_call(attributes.get("name"))
            case ("parameter", False, True):
                self._open_parameter(attributes)
            case ("invoke", True, True):
                self._show("}" if self._arguments else "{}")
                self._calls.append((self._name, self._arguments))
                self._name = None
            case ("tool_calls" | "calls", True, False) if self._calls:
                self._close_block()
            case _:
                raise _Malformed(f"{text[:80]} may not stand there")

    def _open_call(self, name: str | None) -> None:
        if name not in self._tools:
            raise _Malformed(f"there is no tool {(name or '')[:64]!r}")
        self._name, self._arguments = name, {}
        self._events.append(CallStarted(len(self._calls), name))

    def _open_parameter(self, attributes: dict[str, str]) -> None:
        key = attributes.get("name")
        if key is None:
            raise _Malformed("a parameter has no name")
        if key in self._arguments:
            raise _Malformed(f"the parameter {key[:64]!r} occurs twice")
        self._key, self._value = key, []
        self._is_string = attributes.get("string", "true") == "true"
        written = json.dumps(key, ensure_ascii=False)
        self._show(("{" if not self._arguments else ", ") + written + ": ")
        if self._is_string:
            self._show('"')
        self._state = _State.VALUE

    def _on_value(self, text: str, at: int) -> int:
        found, mark = find_mark(text[at:], _VALUE_ENDS)
        piece = text[at : at + found]
        self._raw.append(piece + mark)
        if piece:
            self._value.append(piece)
            self._show(json.dumps(piece, ensure_ascii=False)[1:-1] if self._is_string else piece)
        if mark:
            self._close_parameter()
        return at + found + len(mark)

    def _close_parameter(self) -> None:
        value = "".join(self._value)
        if self._is_string:
            self._show('"')
            self._arguments[self._key] = value.replace(_ESCAPED_END, _VALUE_ENDS[0])
        else:
            try:
                self._arguments[self._key] = read_json(value) if value.strip() else None
            except ValueError as error:
                raise _Malformed(f"the value of {self._key!r}: {error}") from error
        self._key = None
        self._state = _State.BLOCK

    def _close_block(self) -> None:
        raw = "".join(self._raw)
        for index, (name, arguments) in enumerate(self._calls):
            self._events.append(CallComplete(index, ToolCall(name, arguments, raw)))
        self._state = _State.DONE

    def _show(self, text: str) -> None:
        self._events.append(CallArguments(len(self._calls), text))

    def _fail(self, reason: str) -> None:
        """End the reply with a block that can't be run."""
        name = self._name or next(iter(self._tools))
        parameters = "".join(
            f'{_OPEN}parameter name="{key}" string="{str(isinstance(value, str)).lower()}">'
            f"{value if isinstance(value, str) else json.dumps(value)}{_VALUE_ENDS[0]}"
            for key, value in example_arguments(self._tools[name]).items()
        )
        example = f'{_OPEN}invoke name="{name}">{parameters}</{MARK}invoke>'
        block = f"{_BLOCK_OPENS[0]}{example}</{MARK}tool_calls>"
        reason = f"{reason}. Tools: {', '.join(self._tools)}. Write {block}"
        self._events.append(CallMalformed(" ".join(reason.split()), "".join(self._raw)))
        self._state = _State.DONE
