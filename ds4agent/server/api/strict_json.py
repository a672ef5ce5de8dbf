"""Arguments of a call as the model writes them, made strict JSON piece by piece.

Chat parsers tolerate what can't change the meaning: control characters in strings, a comma before a
closing bracket. Clients' JSON readers don't. What is tolerated is corrected here while it streams.
"""

import json
from typing import Any

_SPACE = " \t\r\n"


class StrictJson:
    """Rewrites a JSON object that arrives in pieces.

    Attributes:
        text: Everything that was given out.
    """

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._in_string = False
        self._escaped = False
        self._held = ""  # a comma and the space after it: dropped if a bracket closes
        self._is_given_up = False

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def feed(self, piece: str) -> str:
        """Take the next piece and return what can be given out of it.

        What doesn't begin as an object (arguments written as a string of JSON) is not given out;
        ``end`` then does.
        """
        if self._is_given_up:
            return ""
        if not self._parts and not self._held:
            piece = piece.lstrip(_SPACE)
            if piece and piece[0] != "{":
                self._is_given_up = True
                return ""
        out = "".join(map(self._character, piece))
        if out:
            self._parts.append(out)
        return out

    def end(self, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return what is missing at the end, and whether all is then JSON of these arguments."""
        if not self._parts:
            whole = json.dumps(arguments, ensure_ascii=False)
            self._parts.append(whole)
            return whole, True
        if _is_json_of(self.text, arguments):
            return "", True
        if _is_json_of(self.text + "}", arguments):  # small models forget the last brace
            self._parts.append("}")
            return "}", True
        return "", False

    def _character(self, c: str) -> str:
        if self._in_string:
            if self._escaped:
                self._escaped = False
            elif c == "\\":
                self._escaped = True
            elif c == '"':
                self._in_string = False
            return json.dumps(c)[1:-1] if c < " " else c
        if c == ",":
            held, self._held = self._held, c
            return held
        if self._held and c in _SPACE:
            self._held += c
            return ""
        held, self._held = self._held, ""
        if c == '"':
            self._in_string = True
        return c if c in "]}" else held + c


def _is_json_of(text: str, value: dict[str, Any]) -> bool:
    try:
        return json.loads(text) == value
    except (ValueError, RecursionError):
        return False
