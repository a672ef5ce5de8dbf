"""Following one JSON object that arrives in pieces, to see early whether it is a tool call.

The scanner doesn't build values. It follows strings and brackets and notices the members that
make a call: ``name``, and ``arguments`` or ``parameters``. It stops after each thing it notices,
so that what the caller decides never depends on how the text was cut.
"""

import json
import re
from enum import StrEnum
from typing import Any

# The inside of a string up to its quote, or up to a backslash that ends the text.
_STRING = re.compile(r'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
_STRING_IN_LINE = re.compile(r'[^"\\\n]*+(?:\\.[^"\\\n]*+)*+', re.DOTALL)
_DULL = re.compile(r"[\s0-9+\-.eE:,truefalsn]+")  # what may stand between strings and brackets
_TRAILING_COMMA = re.compile(r'("[^"\\]*(?:\\.[^"\\]*)*")|,(?=\s*[}\]])', re.DOTALL)
_ARGUMENT_KEYS = ("arguments", "parameters")
_MAX_WORD = 64  # characters of a key or a tool name
_MAX_DEPTH = 64


class Progress(StrEnum):
    """How far an object has come."""

    OPEN = "open"
    COMPLETE = "complete"
    BROKEN = "broken"


class ObjectScanner:
    """Scans one object; the first character it is fed must be its opening brace.

    Attributes:
        progress: ``BROKEN`` means that the next character can't stand there in JSON.
        keys: Top-level keys so far.
        name: Value of the ``name`` member, once complete.
        in_arguments: The value of the arguments member has begun and has not ended.
        has_arguments: It has begun.
        strict_lines: A line break inside a string breaks the object.
    """

    def __init__(self) -> None:
        self.progress = Progress.OPEN
        self.keys: list[str] = []
        self.name: str | None = None
        self.in_arguments = False
        self.has_arguments = False
        self.strict_lines = False
        self._open: list[str] = []  # the closing brackets that are due
        self._in_string = False
        self._escaped = False
        self._word: list[str] | None = None  # text of a top-level key or name being read
        self._is_value = False  # a top-level value, not a key, comes next
        self._is_doubled = False

    @property
    def in_string(self) -> bool:
        """Whether the text so far ends between the quotes of a string."""
        return self._in_string

    @property
    def lacks_only_its_brace(self) -> bool:
        """Whether name and arguments are complete and only the last brace is missing."""
        return (
            self._open == ["}"]
            and not self._in_string
            and self.name is not None
            and self.has_arguments
            and not self.in_arguments
        )

    def scan(self, text: str, at: int) -> int:
        """Go on from ``text[at]`` up to the next thing worth noticing, or the end of the text.

        Returns:
            The position after the last character that belongs to the object.
        """
        while at < len(text) and self.progress is Progress.OPEN:
            if self._in_string:
                at, is_end = self._scan_string(text, at)
                if is_end or self.progress is Progress.BROKEN:
                    return at
                continue
            character = text[at]
            if len(self._open) > 1:
                dull = _DULL.match(text, at)
                if dull:
                    at = dull.end()
                    continue
            noticed = self._step(character)
            if self.progress is Progress.BROKEN:
                return at
            at += 1
            if noticed:
                return at
        return at

    def _scan_string(self, text: str, at: int) -> tuple[int, bool]:
        """Return the position reached, and whether a top-level string ended there."""
        start = at
        if self._escaped and at < len(text):
            self._escaped = False
            at += 1
        in_line = self.strict_lines or self._word is not None
        at = (_STRING_IN_LINE if in_line else _STRING).match(text, at).end()
        if at < len(text) and text[at] == "\\":
            self._escaped = True
            at += 1
        self._keep(text[start:at])
        if at == len(text):
            return at, False
        if text[at] == "\n":
            self.progress = Progress.BROKEN
            return at, False
        self._in_string = False
        return at + 1, self._end_string()

    def _keep(self, piece: str) -> None:
        if self._word is None:
            return
        room = _MAX_WORD - sum(map(len, self._word))  # no key of a call, no tool name is longer
        if room > 0:
            self._word.append(piece[:room])

    def _end_string(self) -> bool:
        """Take note of a string that ended; return whether it was a top-level one."""
        if len(self._open) != 1:
            return False
        word, self._word = self._word, None
        if self._is_value:
            if word is not None:
                self.name = _unescape("".join(word))
            self.in_arguments = False
        elif word is not None:
            self.keys.append(_unescape("".join(word)))
        return True

    def _step(self, character: str) -> bool:
        """Take one character outside strings; return whether the caller should look."""
        is_top = len(self._open) == 1
        if character == '"':
            return self._begin_string(is_top)
        if character in "{[":
            return self._begin_container(character, is_top)
        if character in "}]":
            return self._end_container(character)
        if is_top and character == ":":
            self._is_value = True
        elif is_top and character == ",":
            self._is_value = self.in_arguments = False
            return True
        elif not _DULL.match(character):
            self.progress = Progress.BROKEN
        elif is_top and self._is_value and not character.isspace():
            return self._begin_arguments()  # a number or a word: no arguments, but their place
        return False

    def _begin_string(self, is_top: bool) -> bool:
        self._in_string = True
        if not is_top:
            return False
        is_name = self._is_value and self.keys[-1:] == ["name"] and self.name is None
        self._word = [] if is_name or not self._is_value else None
        return self._begin_arguments()

    def _begin_container(self, character: str, is_top: bool) -> bool:
        if is_top and not self._is_value:
            # Some templates show calls with doubled braces, and models copy that.
            if character == "{" and not self.keys and not self._is_doubled:
                self._is_doubled = True
                return True
            self.progress = Progress.BROKEN
            return False
        if len(self._open) >= _MAX_DEPTH:
            self.progress = Progress.BROKEN
            return False
        noticed = is_top and self._begin_arguments()
        self._open.append("}" if character == "{" else "]")
        return noticed

    def _begin_arguments(self) -> bool:
        if self._is_value and self.keys[-1:] and self.keys[-1] in _ARGUMENT_KEYS:
            is_first = not self.in_arguments
            self.in_arguments = self.has_arguments = True
            return is_first
        return False

    def _end_container(self, character: str) -> bool:
        if not self._open or self._open[-1] != character:
            self.progress = Progress.BROKEN
            return False
        self._open.pop()
        if not self._open:
            self.progress = Progress.COMPLETE
            self.in_arguments = False
            return True
        if len(self._open) == 1:
            self.in_arguments = False
            return True
        return False

    @property
    def is_doubled(self) -> bool:
        """Whether the object began with two braces; the first is not part of the JSON."""
        return self._is_doubled


def _unescape(word: str) -> str:
    try:
        return json.loads(f'"{word}"', strict=False)
    except ValueError:
        return word


def read_call(text: str) -> tuple[str, dict[str, Any]]:
    """Read name and arguments from the text of a call object.

    Tolerates what can't change the meaning: line breaks inside strings, a comma before a closing
    bracket, arguments given as a string of JSON, ``parameters`` for ``arguments``.

    Raises:
        ValueError: it is no call; the message is one line that says why.
    """
    value = read_json(text)
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str):
        raise ValueError('the object has no text under "name"')
    arguments = value.get("arguments", value.get("parameters"))
    if isinstance(arguments, str):
        arguments = read_json(arguments) if arguments.strip() else {}
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, dict):
        raise ValueError('"arguments" is not a JSON object')
    return name, arguments


def read_json(text: str) -> Any:
    """Read JSON as a model writes it; ``read_call`` says what is tolerated.

    Raises:
        ValueError: it is no JSON; the message is one line that says why.
    """
    try:
        value = _parse(text)
    except json.JSONDecodeError:
        text = _TRAILING_COMMA.sub(lambda match: match.group(1) or "", text)
        try:
            value = _parse(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"the JSON is broken: {error.msg} at character {error.pos}") from error
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError("the JSON has half a surrogate pair") from error
    return value


def _parse(text: str) -> Any:
    try:
        return json.loads(
            text, strict=False, object_pairs_hook=_without_doubles, parse_constant=_no_constant
        )
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("the JSON has the same key twice")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON value")
