"""Reading a ChatML reply as it is sampled: text, thinking, and a tool call in any common wrapping.

Small models rarely keep to the trained ``<tool_call>`` tags. So a call is also taken from a fenced
block or a bare JSON object at the start of a line, if its ``name`` is a tool of this conversation.
Text is held back only while it may still become a call; what turns out to be ordinary JSON or code
comes out unchanged and in order.

The first complete call ends the reply, also inside tags: models of this size go on by inventing
the result of their own call, and more, instead of waiting for it.

Only the first thing in a fence can be a call, and nothing in a fence of code is one: a listing that
contains a call must not run it. Nothing inside thinking is ever a call.
"""

import codecs
import json
import re
from collections.abc import Sequence
from enum import Enum, auto

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
from engine.chat.object_scanner import ObjectScanner, Progress, read_call
from engine.chat.segments import example_arguments
from engine.chat.syntax import Syntax

_TAG, _TAG_END = "<tool_call>", "</tool_call>"
_FENCE = "```"
_THINK, _THINK_END = "<think>", "</think>"
_TAG_ENDS = MarkFinder((_TAG_END,))
_TEXT_MARKS, _FENCE_MARKS = MarkFinder((_TAG, _FENCE)), MarkFinder((_FENCE,))
_THINK_ENDS = MarkFinder((_THINK_END,))
_CANDIDATE = re.compile(r"\n[ \t]*|<tool_call>|```|\{")
_TAGGED = re.compile("<tool_call>")
_CALL_FENCES = frozenset({"", "json", "jsonc", "tool_call", "tool", "xml"})
_CALL_KEYS = ("name", "arguments", "parameters")
_MENTION = frozenset("`'\"<)")  # after the tag: a sentence about it, as in `<tool_call>`
_MAX_FENCE_INFO = 32
_MAX_LEADING_SPACE = 64


class _State(Enum):
    START = auto()  # nothing but white space so far
    THINK = auto()
    AFTER_THINK = auto()  # the newlines between thinking and answer
    TEXT = auto()
    FENCE_INFO = auto()  # after an opening fence, up to the end of its line
    FENCE_BODY = auto()  # white space at the start of a fence that may hold a call
    IN_FENCE = auto()  # in a fence of something else
    TAG = auto()  # after <tool_call>, before the object
    OBJECT = auto()
    TEXT_OBJECT = auto()  # in an object that is no call
    AFTER_OBJECT = auto()  # in a tag, the object is complete
    BROKEN_TAG = auto()  # in a tag that holds no usable object
    DONE = auto()


class ChatmlParser:
    """A StreamParser for one reply.

    Attributes:
        finished: A call is complete, or broken: nothing after it counts.
        in_thinking: The reply is inside ``<think>``.
        syntax: What the next token belongs to.
    """

    def __init__(self, tools: Sequence[ToolSpec], *, tagged_only: bool = False) -> None:
        """Begin a reply.

        Args:
            tools: What may be called; without any, everything is text.
            tagged_only: A call without its tags is text, because the reply itself is JSON.
        """
        self._candidate = _TAGGED if tagged_only else _CANDIDATE
        self._tools = {tool.name: tool for tool in tools}
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._state = _State.START
        self._tail = ""  # seen but undecided; never longer than a mark
        self._held: list[str] = []  # text of the candidate being read
        self._is_line_blank = True  # nothing but spaces since the last line break
        self._scanner = ObjectScanner()
        self._wrapping = ""  # "tag", "fence" or "bare"
        self._object_from = 0  # characters of the held text before the object
        self._has_started = False
        self._arguments: list[str] = []  # pieces that are not reported yet
        self._after: list[str] = []  # what followed the object, still inside its tag
        self._events: list[ParserEvent] = []
        self._steps = {
            _State.START: self._on_start,
            _State.THINK: self._on_think,
            _State.AFTER_THINK: self._on_after_think,
            _State.TEXT: self._on_text,
            _State.FENCE_INFO: self._on_fence_info,
            _State.FENCE_BODY: self._on_fence_body,
            _State.IN_FENCE: self._on_in_fence,
            _State.TAG: self._on_tag,
            _State.OBJECT: self._on_object,
            _State.TEXT_OBJECT: self._on_text_object,
            _State.AFTER_OBJECT: self._on_after_object,
            _State.BROKEN_TAG: self._on_broken_tag,
        }

    @property
    def finished(self) -> bool:
        return self._state is _State.DONE

    @property
    def in_thinking(self) -> bool:
        return self._state is _State.THINK

    @property
    def syntax(self) -> Syntax:
        if self._state in (_State.TAG, _State.AFTER_OBJECT):
            return Syntax.STRUCTURAL
        if self._state is not _State.OBJECT or not (self._has_started or self._wrapping == "tag"):
            return Syntax.OUTSIDE
        if not self._scanner.in_arguments:
            return Syntax.STRUCTURAL
        return Syntax.JSON_STRING if self._scanner.in_string else Syntax.JSON_STRUCTURAL

    def feed(self, data: bytes) -> list[ParserEvent]:
        """Take the next bytes of the reply and return what is now certain."""
        self._advance(self._decoder.decode(data))
        return self._take_events()

    def finish(self, stopped: bool = False) -> list[ParserEvent]:
        """Flush what was held back. A call that was cut off is never completed; one that lacks
        only its last brace is, whether the model ``stopped`` or not: nothing of it is missing."""
        self._advance(self._decoder.decode(b"", final=True))
        state, tail, self._tail = self._state, self._tail, ""
        match state:
            case _State.THINK:
                self._events.append(Thinking(tail))
            case _State.AFTER_OBJECT:
                self._complete()
            case _State.TAG | _State.BROKEN_TAG:
                self._after.append(tail)
                self._fail("the call was cut off")
            case _State.OBJECT if self._is_usable_without_brace():
                self._complete("}")
            case _State.OBJECT if self._has_started or self._wrapping == "tag":
                self._fail("the call was cut off")
            case _State.AFTER_THINK | _State.DONE:
                pass
            case _:
                self._release(tail)
        self._state = _State.DONE
        return self._take_events()

    def _take_events(self) -> list[ParserEvent]:
        events, self._events = self._events, []
        return [e for e in events if not isinstance(e, Text | Thinking | CallArguments) or e.text]

    def _advance(self, text: str) -> None:
        """Run the states until each character is consumed or waits in the tail."""
        text = self._tail + text
        self._tail = ""
        at = 0
        while at < len(text) and self._state is not _State.DONE:
            before, state = at, self._state
            at = self._steps[state](text, at)
            if at == before and self._state is state:
                self._tail = text[at:]  # the step needs more
                return

    # --- text and thinking ---------------------------------------------------------------------

    def _on_start(self, text: str, at: int) -> int:
        head = text[at:].lstrip()
        if head.startswith(_THINK):
            self._state = _State.THINK
            return text.index(_THINK, at) + len(_THINK)
        if not _THINK.startswith(head) or len(text) - len(head) - at > _MAX_LEADING_SPACE:
            self._state = _State.TEXT
        return at

    def _on_think(self, text: str, at: int) -> int:
        found, mark = _THINK_ENDS.find(text, at)
        self._events.append(Thinking(text[at:found]))
        if mark:
            self._state = _State.AFTER_THINK
        return found + len(mark)

    def _on_after_think(self, text: str, at: int) -> int:
        while at < len(text) and text[at] == "\n":
            at += 1
        if at < len(text):
            self._state = _State.TEXT
        return at

    def _on_text(self, text: str, at: int) -> int:
        if not self._tools:
            self._say(text[at:])
            return len(text)
        blank_to = self._blank_to(text, at)
        for match in self._candidate.finditer(text, at):
            found = match.group()
            if found[0] == "\n":
                blank_to = match.end()
            elif found == _TAG or match.start() == blank_to:
                self._say(text[at : match.start()])
                self._begin_candidate(found)
                return match.end()
        return self._say_decided(text, at, _TEXT_MARKS)

    def _blank_to(self, text: str, at: int) -> int:
        """Return where the white space at the start of this line ends, -1 if not at its start."""
        if not self._is_line_blank:
            return -1
        while at < len(text) and text[at] in " \t":
            at += 1
        return at

    def _begin_candidate(self, found: str) -> None:
        self._held = [found]
        self._object_from = 0
        self._scanner = ObjectScanner()
        self._has_started = False
        self._arguments = []
        self._after = []
        if found == _TAG:
            self._wrapping, self._state = "tag", _State.TAG
        elif found == _FENCE:
            self._wrapping, self._state = "fence", _State.FENCE_INFO
        else:
            self._held = []
            self._wrapping = "bare"
            self._begin_object()
            self._on_object(found, 0)

    # --- fences --------------------------------------------------------------------------------

    def _on_fence_info(self, text: str, at: int) -> int:
        stop = text.find("\n", at)
        length = sum(map(len, self._held)) - len(_FENCE)
        for index in range(at, len(text) if stop < 0 else stop):
            is_inline = text[index] == "`"
            if is_inline or length + index - at >= _MAX_FENCE_INFO:
                # Code inside a line, or a fence with a title: no call follows.
                self._state = _State.TEXT if is_inline else _State.IN_FENCE
                self._release(text[at : index + 1])
                return index + 1
        if stop < 0:
            self._held.append(text[at:])
            return len(text)
        self._held.append(text[at : stop + 1])
        info = "".join(self._held)[len(_FENCE) :].strip().lower()
        if info in _CALL_FENCES:
            self._state = _State.FENCE_BODY
        else:
            self._state = _State.IN_FENCE
            self._release("")
        return stop + 1

    def _on_fence_body(self, text: str, at: int) -> int:
        start = at
        while at < len(text) and text[at].isspace():
            at += 1
        self._held.append(text[start:at])
        if at == len(text):
            return at
        if text[at] == "{":
            self._begin_object()
            return at
        if text.startswith(_TAG, at):
            self._held.append(_TAG)
            self._wrapping, self._state = "tag", _State.TAG
            return at + len(_TAG)
        if _TAG.startswith(text[at:]):
            return at  # wait: perhaps a tag in a fence
        self._state = _State.IN_FENCE
        self._release("")
        return at

    def _on_in_fence(self, text: str, at: int) -> int:
        blank_to = self._blank_to(text, at)
        for match in _CANDIDATE.finditer(text, at):
            if match.group()[0] == "\n":
                blank_to = match.end()
            elif match.group() == _FENCE and match.start() == blank_to:
                self._say(text[at : match.end()])
                self._state = _State.TEXT
                return match.end()
        return self._say_decided(text, at, _FENCE_MARKS)

    # --- calls ---------------------------------------------------------------------------------

    def _on_tag(self, text: str, at: int) -> int:
        start = at
        while at < len(text) and text[at].isspace():
            at += 1
        self._held.append(text[start:at])
        if at < len(text):
            if text[at] == "{":
                self._begin_object()
            elif text[at] in _MENTION:
                self._state = _State.TEXT
                self._release("")
            else:
                self._state = _State.BROKEN_TAG
        return at

    def _begin_object(self) -> None:
        self._scanner = ObjectScanner()
        self._object_from = sum(map(len, self._held))
        self._state = _State.OBJECT

    def _on_object(self, text: str, at: int) -> int:
        """Scan on, one notice at a time, and decide as soon as it can be decided."""
        scanner = self._scanner
        was_inside, was_doubled = scanner.in_arguments, scanner.is_doubled
        stop = scanner.scan(text, at)
        self._held.append(text[at:stop])
        if scanner.is_doubled and not was_doubled:
            self._object_from = sum(map(len, self._held)) - 1
        if was_inside:
            self._arguments.append(text[at:stop])
        elif scanner.in_arguments:
            self._arguments.append(text[stop - 1 : stop])
        self._decide()
        return stop

    def _decide(self) -> None:
        scanner, is_tag = self._scanner, self._wrapping == "tag"
        is_known = scanner.name in self._tools
        if not self._has_started and is_known and (is_tag or scanner.has_arguments):
            self._has_started = True
            self._events.append(CallStarted(0, scanner.name))
        if self._has_started and self._arguments:
            self._events.append(CallArguments(0, "".join(self._arguments)))
            self._arguments = []
        if scanner.progress is Progress.COMPLETE:
            if is_tag:
                self._state = _State.AFTER_OBJECT
            elif self._has_started or self._is_bare_name():
                self._complete()
            else:
                self._state = _State.TEXT if self._wrapping == "bare" else _State.IN_FENCE
                self._release("")
        elif scanner.progress is Progress.BROKEN:
            if is_tag:
                self._state = _State.BROKEN_TAG
            elif self._has_started:
                self._fail('the JSON is broken: a quote inside a text must be written \\"')
            else:
                self._state = _State.TEXT if self._wrapping == "bare" else _State.IN_FENCE
                self._release("")
        elif not is_tag and self._is_no_call():
            self._state = _State.TEXT_OBJECT if self._wrapping == "bare" else _State.IN_FENCE
            scanner.strict_lines = True
            self._release("")

    def _is_no_call(self) -> bool:
        scanner = self._scanner
        has_foreign_key = bool(scanner.keys) and scanner.keys[0] not in _CALL_KEYS
        return has_foreign_key or (scanner.name is not None and scanner.name not in self._tools)

    def _is_bare_name(self) -> bool:
        """Whether the object is only the name of a tool that needs no arguments."""
        tool = self._tools.get(self._scanner.name or "")
        return (
            tool is not None
            and self._scanner.keys == ["name"]
            and not tool.parameters.get("required")
        )

    def _on_text_object(self, text: str, at: int) -> int:
        stop = self._scanner.scan(text, at)
        self._say(text[at:stop])
        if self._scanner.progress is not Progress.OPEN:
            self._state = _State.TEXT
        return stop

    def _on_after_object(self, text: str, at: int) -> int:
        start = at
        while at < len(text) and (text[at].isspace() or text[at] == "}"):
            at += 1
        self._after.append(text[start:at])
        if at < len(text):
            if text.startswith(_TAG_END, at):
                self._after.append(_TAG_END)
                self._complete()
            elif not _TAG_END.startswith(text[at:]):
                self._complete()
        return at

    def _on_broken_tag(self, text: str, at: int) -> int:
        found, mark = _TAG_ENDS.find(text, at)
        self._after.append(text[at:found] + mark)
        if mark:
            is_clean = "".join(self._after).strip() == _TAG_END
            if is_clean and self._is_usable_without_brace():
                self._complete("}")
            else:
                self._fail(self._why_broken())
        return found + len(mark)

    def _why_broken(self) -> str:
        text = "".join(self._held)[self._object_from :] + "".join(self._after[:-1])
        last = self._after[-1].removesuffix(_TAG_END) if self._after else ""
        try:
            read_call(text + last)
        except ValueError as error:
            return str(error)
        return "the call is not one JSON object"

    def _is_usable_without_brace(self) -> bool:
        # Small models often forget the last brace. By then every argument has been closed, so
        # nothing of the call can be missing.
        return self._scanner.lacks_only_its_brace and self._scanner.name in self._tools

    def _complete(self, missing: str = "") -> None:
        """End the reply with the held call, or with the reason why it can't be run."""
        held = "".join(self._held)
        try:
            name, arguments = read_call(held[self._object_from :] + missing)
        except ValueError as error:
            self._fail(str(error))
            return
        if name not in self._tools:
            self._fail(f"there is no tool {name[:64]!r}")
            return
        if not self._has_started:
            self._events.append(CallStarted(0, name))
        raw = held + "".join(self._after)
        self._events.append(CallComplete(0, ToolCall(name, arguments, raw)))
        self._state = _State.DONE

    def _fail(self, reason: str) -> None:
        """End the reply with a call that can't be run."""
        known = self._scanner.name if self._scanner.name in self._tools else next(iter(self._tools))
        example = {"name": known, "arguments": example_arguments(self._tools[known])}
        written = json.dumps(example, ensure_ascii=False)
        reason = f"{reason}. Tools: {', '.join(self._tools)}. Write {_TAG}{written}{_TAG_END}"
        raw = "".join(self._held + self._after)
        self._events.append(CallMalformed(" ".join(reason.split()), raw))
        self._state = _State.DONE

    def _release(self, tail: str) -> None:
        """Give the held text out as the text it turned out to be."""
        self._say("".join(self._held) + tail)
        self._held = []

    def _say_decided(self, text: str, at: int, marks: MarkFinder) -> int:
        """Emit the text up to what may still become a mark, and return that position."""
        stop = marks.partial(text, at)
        self._say(text[at:stop])
        return stop

    def _say(self, text: str) -> None:
        if text:
            self._events.append(Text(text))
            line = text.rpartition("\n")
            is_blank = not line[2].strip(" \t")
            self._is_line_blank = is_blank and (bool(line[1]) or self._is_line_blank)
