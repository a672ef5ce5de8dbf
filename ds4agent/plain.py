"""Text from models, tools and files, made safe for a screen.

A terminal obeys control sequences wherever they come from. What the model writes, what a command
prints and what a file is called must never move the cursor, set a title, or hide a command behind
right-to-left overrides. Only newline and tab survive.
"""

import dataclasses
import re
from enum import Enum
from typing import Any

_LONGEST_HELD = 256  # characters of an unfinished sequence that wait for their end

# OSC, DCS: titles, links. The body ends where another one begins: else a run of beginnings costs
# quadratic time.
_STRING_START = "(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f\n]*"
_SEQUENCE = re.compile(
    "(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor, modes
    f"|{_STRING_START}(?:\x07|\x1b\\\\|\x9c)"
    "|\x1b[ -/]*[0-Z\\\\^-~]"  # all other escapes
)
_UNFINISHED = re.compile(f"(?:(?:\x1b\\[|\x9b)[0-?]*[ -/]*|{_STRING_START}\x1b?|\x1b[ -/]*|\r)\\Z")
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """Return ``text`` without control sequences and control characters; ``\\r`` ends a line."""
    if text.isprintable():
        return text
    text = _SEQUENCE.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _CONTROLS.sub("", text)


def one_line(text: str, limit: int = 200) -> str:
    """Return ``text`` plain, on one line, at most ``limit`` characters."""
    line = " ".join(plain(text).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


class PlainStream:
    """``plain`` for text that comes in pieces: a sequence cut in two is still removed."""

    def __init__(self) -> None:
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what is certain to be plain after this piece."""
        text = self._held + text
        self._held = ""
        unfinished = _UNFINISHED.search(text)
        if unfinished and len(unfinished.group()) <= _LONGEST_HELD:
            self._held = unfinished.group()
            text = text[: unfinished.start()]
        return plain(text)

    def finish(self) -> str:
        """Return what was held back, without its control characters."""
        held, self._held = self._held, ""
        return plain(held)


def plain_event(event: Any) -> Any:
    """Return a copy of a frozen event with every text in it made plain, at any depth."""
    return _plain_value(event)


def _plain_value(value: Any) -> Any:
    if isinstance(value, Enum):
        return value
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, tuple | list):
        return type(value)([_plain_value(item) for item in value])
    if isinstance(value, dict):
        return {_plain_value(key): _plain_value(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        cleaned = {name: _plain_value(item) for name, item in fields.items()}
        changed = {name: item for name, item in cleaned.items() if item != fields[name]}
        return dataclasses.replace(value, **changed) if changed else value
    return value
