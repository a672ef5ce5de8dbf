"""Whole files in a reply: a name on a line of its own, and below it the text in a fence.

    notes/plan.md
    ```
    the text of the file
    ```

This is how models too small for code inside JSON strings change files best. Each block is reported
as a call of the tool that writes files. Everything else goes to the parser of the chat format.

A name counts when it looks like a file's (it has an extension) or is one that the caller knows, and
the fence follows at once. A fence without a name is a listing, and nothing in it is a file. A file
may itself hold fences: one that opens with a word after it is closed before the file is.
"""

import codecs
import json
import re
from collections.abc import Collection, Iterator

from engine.chat.format import (
    CallArguments,
    CallComplete,
    CallMalformed,
    CallStarted,
    ParserEvent,
    StreamParser,
    ToolCall,
)
from engine.chat.syntax import Syntax

_FENCE = "```"
_LONGEST_NAME = 200  # characters of a line that may be a name
# What models put around a name: a heading, bold type, quotes, a colon.
_NAME = re.compile(
    r"[ \t]*(?:#+[ \t]*)?(?:[Ff]ile(?:name)?:[ \t]*)?[*`'\"]{0,3}"
    r"(?P<name>[\w.@+-]+(?:/[\w.@+-]+)*)[*`'\"]{0,3}:?[*]{0,2}[ \t]*"
)
_MAYBE_NAME = re.compile(r"[ \t]*[#*`'\"\w.@+/: \t-]*")  # the beginning of such a line
_EXTENSION = re.compile(r"[^.].*\.[A-Za-z]\w{0,9}")


class FileBlockParser:
    """A StreamParser for one reply in which files may stand.

    Attributes:
        finished: See ``StreamParser``: a call of the other kind is complete. After a block more
            of them may follow.
    """

    def __init__(
        self,
        inner: StreamParser,
        tool: str,
        path_name: str = "path",
        content_name: str = "content",
        known: Collection[str] = (),
    ) -> None:
        """Begin a reply.

        Args:
            inner: reads what is no file.
            tool: the name of the tool that a block calls.
            path_name: its parameter for the file's name.
            content_name: its parameter for the text.
            known: names that count without an extension, too.
        """
        self._inner = inner
        self._tool = tool
        self._path_name, self._content_name = path_name, content_name
        self._known = frozenset(known)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._line = ""  # the present line as far as it is here
        self._held = ""  # a line that may be a name, and blank lines after it
        self._is_passing = False  # the rest of the present line is no name and no fence
        self._listing = ""  # the fence of a listing that is open
        self._path = ""  # of the block that is open, "" without one
        self._fence = ""
        self._depth = 0  # fences open inside the file
        self._body: list[str] = []
        self._raw: list[str] = []
        self._n_blocks = 0

    @property
    def finished(self) -> bool:
        return self._inner.finished

    @property
    def in_thinking(self) -> bool:
        return self._inner.in_thinking

    @property
    def syntax(self) -> Syntax:
        return Syntax.OUTSIDE if self._path else self._inner.syntax

    def feed(self, data: bytes) -> list[ParserEvent]:
        """Take the next bytes of the reply and return what is now certain."""
        return list(self._advance(self._decoder.decode(data)))

    def finish(self, stopped: bool = False) -> list[ParserEvent]:
        """Flush what was held back. A file whose last fence is missing is whole only when the
        model ended its turn itself."""
        events = list(self._advance(self._decoder.decode(b"", final=True)))
        if not self._path:
            events += self._pass(self._held + ("" if self._is_passing else self._line))
            self._held = self._line = ""
            return [*events, *self._shifted(self._inner.finish(stopped))]
        if self._line and not self._closes(self._line):
            self._body.append(self._line)
            self._raw.append(self._line)
        if stopped or self._closes(self._line):
            if not self._closes(self._line):
                self._body = _without_false_end(self._body)
            if self._body and not self._body[-1].endswith("\n"):
                self._body.append("\n")
            events.append(self._complete(repaired=not self._closes(self._line)))
        else:
            raw = "".join(self._raw)
            events.append(CallMalformed(f"the text of {self._path} was cut off", raw))
        return events

    # --- lines --------------------------------------------------------------------------------

    def _advance(self, text: str) -> Iterator[ParserEvent]:
        for piece in text.splitlines(keepends=True) if text else ():
            # splitlines also cuts at form feeds and the like, which end no line here.
            is_end = piece.endswith("\n")
            if self._is_passing:
                yield from self._pass(piece)
                self._is_passing = not is_end
                continue
            self._line += piece
            if is_end:
                line, self._line = self._line, ""
                yield from self._take_line(line)
            elif not self._path and not self._may_matter(self._line):
                yield from self._pass(self._held + self._line)
                self._held, self._line, self._is_passing = "", "", True

    def _may_matter(self, line: str) -> bool:
        """Tell whether a line that is not complete may be a fence, or a name before one."""
        if not self._is_text:
            return False
        if _FENCE.startswith(line.lstrip(" \t")[: len(_FENCE)]):
            return True
        if self._listing:
            return False
        return len(line) <= _LONGEST_NAME and _MAYBE_NAME.fullmatch(line) is not None

    def _take_line(self, line: str) -> Iterator[ParserEvent]:
        if self._path:
            yield from self._take_body(line)
            return
        fence = "" if self._inner.in_thinking else _fence_of(line)
        if self._listing:
            if fence.startswith(self._listing):
                self._listing = ""
            yield from self._pass(line)
        elif fence and (path := self._name_in(self._held)):
            yield from self._open(path, fence, line)
        elif fence:
            self._listing = fence
            yield from self._pass_held(line)
        elif self._is_text and self._name_in(line):
            yield from self._pass_held("")
            self._held = line
        elif self._held and not line.strip():
            self._held += line
        else:
            yield from self._pass_held(line)

    @property
    def _is_text(self) -> bool:
        inner = self._inner
        return inner.syntax is Syntax.OUTSIDE and not (inner.in_thinking or inner.finished)

    def _name_in(self, line: str) -> str:
        found = _NAME.fullmatch(line.strip("\n"))
        name = found["name"] if found else ""
        return name if name in self._known or _EXTENSION.fullmatch(name) else ""

    def _pass_held(self, line: str) -> Iterator[ParserEvent]:
        held, self._held = self._held, ""
        yield from self._pass(held + line)

    def _pass(self, text: str) -> Iterator[ParserEvent]:
        if text:
            yield from self._shifted(self._inner.feed(text.encode("utf-8")))

    def _shifted(self, events: list[ParserEvent]) -> Iterator[ParserEvent]:
        """Number the calls of the inner parser after the files."""
        for event in events:
            match event:
                case CallStarted(index, name):
                    yield CallStarted(index + self._n_blocks, name)
                case CallArguments(index, text):
                    yield CallArguments(index + self._n_blocks, text)
                case CallComplete(index, call, repaired):
                    yield CallComplete(index + self._n_blocks, call, repaired)
                case _:
                    yield event

    # --- files --------------------------------------------------------------------------------

    def _open(self, path: str, fence: str, line: str) -> Iterator[ParserEvent]:
        self._fence = fence
        self._path, self._depth = path, 0
        self._body, self._raw = [], [self._held, line]
        self._held = ""
        yield CallStarted(self._n_blocks, self._tool)
        opening = json.dumps({self._path_name: path, self._content_name: ""}, ensure_ascii=False)
        yield CallArguments(self._n_blocks, opening[:-2])

    def _take_body(self, line: str) -> Iterator[ParserEvent]:
        self._raw.append(line)
        if self._closes(line):
            if self._depth == 0:
                yield self._complete()
                return
            self._depth -= 1
        elif _fence_of(line).startswith(self._fence):
            self._depth += 1
        self._body.append(line)
        yield CallArguments(self._n_blocks, json.dumps(line, ensure_ascii=False)[1:-1])

    def _closes(self, line: str) -> bool:
        marks = line.strip()
        return len(marks) >= len(self._fence) > 0 and set(marks) == {"`"}

    def _complete(self, repaired: bool = False) -> CallComplete:
        arguments = {self._path_name: self._path, self._content_name: "".join(self._body)}
        call = ToolCall(self._tool, arguments, "".join(self._raw))
        self._path, self._line = "", ""
        self._n_blocks += 1
        return CallComplete(self._n_blocks - 1, call, repaired)


def _without_false_end(body: list[str]) -> list[str]:
    """Drop marks behind the text that close no listing: too few for the end, but meant as it."""
    listing, opened_at, last = "", 0, 0
    for i, line in enumerate(body):
        if line.strip():
            last = i
        fence = _fence_of(line)
        if not listing:
            listing, opened_at = fence, i
        elif fence.startswith(listing) and line.strip() == fence:
            listing = ""
    is_false = bool(listing) and opened_at == last and body[last].strip() == listing
    return body[:last] if is_false else body


def _fence_of(line: str) -> str:
    """Return the marks of a line that opens or closes a fence, "" for any other line."""
    body = line.strip()
    rest = body.lstrip("`")
    n_marks = len(body) - len(rest)
    return body[:n_marks] if n_marks >= len(_FENCE) and "`" not in rest else ""
