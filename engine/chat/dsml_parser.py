"""Reading a DeepSeek V4 reply as it is sampled: thinking, text, and one block of tool calls (DSML).

    message   = [ thinking "</think>" ] text [ block ]
    block     = "<｜DSML｜tool_calls>" call+ "</｜DSML｜tool_calls>"
    call      = '<｜DSML｜invoke name="N">' parameter* "</｜DSML｜invoke>"
    parameter = '<｜DSML｜parameter name="N" string="true|false">' value "</｜DSML｜parameter>"

White space may stand between tags. A value ends at the first closing parameter tag, as trained;
only ``&lt;`` in front of exactly that tag is an escape. Newlines before a block, at the end of
thinking and at the start of either part belong to the frame: they are in no event, but in the
``raw`` of the calls.

A block counts as a whole. Its calls are reported as complete when it closes; if any tag, value or
name in it is wrong, or the reply ends inside it, the whole block is one malformed call. So half a
shell command is never run. Only closing tags are ever added, and only when the model itself ended
its turn after the last parameter had been closed. A block inside thinking is thinking.
"""

import codecs
import json
import re
from collections.abc import Sequence
from enum import Enum, auto
from os.path import commonprefix

from engine.chat.dsml_tags import MARK, TRAINED, V4, TagFamily
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
from engine.chat.marks import MarkFinder
from engine.chat.object_scanner import read_json
from engine.chat.segments import example_arguments
from engine.chat.syntax import JsonQuotes, Syntax

__all__ = ["MARK", "DsmlParser"]

_TAG_ENDS = re.compile(r'"[^"]*(?:"|\Z)|>')  # a > inside quotes ends no tag
_ATTRIBUTE = re.compile(r'\s+([a-z]+)="([^"]*)"')
_THINK_END = "</think>"
_THINK_ENDS = MarkFinder((_THINK_END,))
_MAX_TAG = 512  # characters; real tags are below 100
_CUT_OFF = "the block of calls was cut off"


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
        syntax: What the next token belongs to.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        thinking: bool,
        *,
        families: Sequence[TagFamily] = TRAINED,
        in_block: bool = False,
        continues: bool = False,
    ) -> None:
        """Begin a reply.

        Args:
            tools: What may be called; without any, tags are ordinary text.
            thinking: The prompt ended inside thinking.
            families: The spellings of tags that make a call.
            in_block: The prompt ended with the opening tag of a block of the first family.
            continues: The prompt ended with the beginning of this text or thinking, so newlines
                at the start belong to it.
        """
        self._tools = {tool.name: tool for tool in tools}
        self._families = {family.block_open: family for family in families}
        self._family = families[0]
        self._text_marks = MarkFinder((_THINK_END, *self._families)) if tools else _THINK_ENDS
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _State.THINK if thinking else _State.BLOCK if in_block else _State.TEXT
        self._is_fresh = not continues  # nothing but newlines so far: they are dropped
        self._n_newlines = 0  # held back: dropped if a block or the end of thinking follows
        self._tail = ""  # seen but undecided; never longer than a tag
        self._raw: list[str] = []  # the block so far
        self._calls: list[tuple[str, dict]] = []
        self._name: str | None = None  # of the open call
        self._arguments: dict = {}
        self._key: str | None = None  # of the open parameter
        self._is_string = True
        self._value: list[str] = []
        self._quotes = JsonQuotes()
        self._events: list[ParserEvent] = []
        self._steps = {
            _State.THINK: self._on_think,
            _State.TEXT: self._on_text,
            _State.BLOCK: self._on_block,
            _State.VALUE: self._on_value,
        }

    @property
    def finished(self) -> bool:
        return self._state is _State.DONE

    @property
    def in_thinking(self) -> bool:
        return self._state is _State.THINK

    @property
    def syntax(self) -> Syntax:
        if self._state is _State.BLOCK:
            return Syntax.STRUCTURAL
        if self._state is not _State.VALUE:
            return Syntax.OUTSIDE
        if self._quotes.inside:
            return Syntax.JSON_STRING
        held = self._tail.encode() + self._decoder.getstate()[0]
        if len(held) > 1 and self._family.value_close.encode().startswith(held):
            return Syntax.STRUCTURAL
        return Syntax.STRING_BODY if self._is_string else Syntax.JSON_STRUCTURAL

    def feed(self, data: bytes) -> list[ParserEvent]:
        """Take the next bytes of the reply and return what is now certain."""
        self._advance(self._decoder.decode(data))
        return self._take_events()

    def finish(self, stopped: bool = False) -> list[ParserEvent]:
        """Flush what was held back.

        Args:
            stopped: The model ended its turn itself. Only then closing tags that are missing
                after the last parameter are added; a value that was cut off never is completed.
        """
        self._advance(self._decoder.decode(b"", final=True))
        tail, self._tail = self._tail, ""
        if self._state in (_State.BLOCK, _State.VALUE):
            self._raw.append(tail)
            if stopped and self._lacks_only_closing_tags(tail):
                if self._name is not None:
                    self._close_call()
                self._close_block(repaired=True)
            else:
                self._fail(_CUT_OFF)
        elif self._state is _State.TEXT and self._is_half_block(tail):
            self._raw = ["\n" * self._n_newlines + tail]
            self._fail(_CUT_OFF)
        elif self._state is not _State.DONE:
            self._say(tail)
            self._say_newlines()
        self._state = _State.DONE
        return self._take_events()

    def _is_half_block(self, tail: str) -> bool:
        return bool(self._tools) and any(
            MARK in family.open and tail.startswith(family.open)
            for family in self._families.values()
        )

    def _lacks_only_closing_tags(self, tail: str) -> bool:
        family = self._family
        if self._state is not _State.BLOCK or (tail and tail[:2] != "</"):
            return False
        closes = (family.call_close, family.block_close)
        if tail and not any(close.startswith(tail) for close in closes):
            return False
        if self._name is None:
            return bool(self._calls)
        required = self._tools[self._name].parameters.get("required") or ()
        return all(key in self._arguments for key in required)

    def _take_events(self) -> list[ParserEvent]:
        events, self._events = self._events, []
        return events

    def _advance(self, text: str) -> None:
        text = self._tail + text
        self._tail = ""
        at = 0
        try:
            while at < len(text) and self._state is not _State.DONE:
                before, state = at, self._state
                at = self._steps[state](text, at)
                if at == before and self._state is state:
                    self._tail = text[at:]  # the step needs more
                    return
        except _Malformed as error:
            self._fail(str(error))

    # --- text and thinking ---------------------------------------------------------------------

    def _on_think(self, text: str, at: int) -> int:
        found, mark = _THINK_ENDS.find(text, at)
        self._say(text[at:found])
        if mark:
            self._state = _State.TEXT
            self._is_fresh, self._n_newlines = True, 0
        return found + len(mark)

    def _on_text(self, text: str, at: int) -> int:
        found, mark = self._text_marks.find(text, at)
        self._say(text[at:found])
        if mark in self._families:
            self._family = self._families[mark]
            self._state = _State.BLOCK
            self._raw.append("\n" * self._n_newlines + mark)
        return found + len(mark)  # a stray </think> is dropped

    def _say(self, text: str) -> None:
        """Emit text, keeping back the newlines at its end and dropping those at the start."""
        body = text.strip("\n") if self._is_fresh else text.rstrip("\n")
        if body:
            if not self._is_fresh:
                self._say_newlines()
            self._is_fresh = False
            self._emit(body)
            self._n_newlines = len(text) - len(text.rstrip("\n"))
        else:
            self._n_newlines += len(text)

    def _say_newlines(self) -> None:
        if self._n_newlines and not self._is_fresh:
            self._emit("\n" * self._n_newlines)
        self._n_newlines = 0

    def _emit(self, text: str) -> None:
        self._events.append(Thinking(text) if self._state is _State.THINK else Text(text))

    # --- the block -----------------------------------------------------------------------------

    def _on_block(self, text: str, at: int) -> int:
        start = at
        while at < len(text) and text[at].isspace():
            at += 1
        self._raw.append(text[start:at])
        if at == len(text):
            return at
        begins = (self._family.open, "</" + self._family.mark)
        n_fitting = max(len(commonprefix([text[at : at + 16], begin])) for begin in begins)
        if n_fitting < len(self._family.open) and at + n_fitting < len(text):
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
        tag = self._family.tag.fullmatch(text)
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
                self._close_call()
            case (self._family.block, True, False) if self._calls:
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
        self._key, self._value, self._quotes = key, [], JsonQuotes()
        self._is_string = attributes.get("string", "true") == "true"
        written = json.dumps(key, ensure_ascii=False)
        self._show(("{" if not self._arguments else ", ") + written + ": ")
        if self._is_string:
            self._show('"')
        self._state = _State.VALUE

    def _on_value(self, text: str, at: int) -> int:
        family = self._family
        ends = family.text_value_ends if self._is_string else family.json_value_ends
        found, mark = ends.find(text, at)
        piece = text[at:found]
        self._raw.append(piece + mark)
        if mark == family.escaped_value_close:
            piece += family.value_close
        if piece:
            self._value.append(piece)
            self._show(json.dumps(piece, ensure_ascii=False)[1:-1] if self._is_string else piece)
            if not self._is_string:
                self._quotes.feed(piece)
        if mark == family.value_close:
            self._close_parameter()
        return found + len(mark)

    def _close_parameter(self) -> None:
        value = "".join(self._value)
        if self._is_string:
            self._show('"')
            self._arguments[self._key] = value
        elif not value.strip():
            self._show("null")
            self._arguments[self._key] = None
        else:
            try:
                self._arguments[self._key] = read_json(value)
            except ValueError as error:
                raise _Malformed(f"the value of {self._key!r}: {error}") from error
        self._key, self._quotes = None, JsonQuotes()
        self._state = _State.BLOCK

    def _close_call(self) -> None:
        self._show("}" if self._arguments else "{}")
        self._calls.append((self._name, self._arguments))
        self._name = None

    def _close_block(self, repaired: bool = False) -> None:
        raw = "".join(self._raw)
        for index, (name, arguments) in enumerate(self._calls):
            self._events.append(CallComplete(index, ToolCall(name, arguments, raw), repaired))
        self._state = _State.DONE

    def _show(self, text: str) -> None:
        self._events.append(CallArguments(len(self._calls), text))

    def _fail(self, reason: str) -> None:
        """End the reply with a block that can't be run."""
        reason = f"{reason}. Tools: {', '.join(self._tools)}. Write {self._example()}"
        self._events.append(CallMalformed(" ".join(reason.split()), "".join(self._raw)))
        self._state = _State.DONE

    def _example(self) -> str:
        """Return a right call, in the trained spelling of this model."""
        family = self._family if self._family in TRAINED else V4
        name = self._name or next(iter(self._tools))
        parameters = "".join(
            f'{family.open}parameter name="{key}" string="{str(isinstance(value, str)).lower()}">'
            f"{value if isinstance(value, str) else json.dumps(value)}{family.value_close}"
            for key, value in example_arguments(self._tools[name]).items()
        )
        call = f'{family.open}invoke name="{name}">{parameters}{family.call_close}'
        return f"{family.block_open}{call}{family.block_close}"
