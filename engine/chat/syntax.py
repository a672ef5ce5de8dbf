"""Which part of a tool call the next token belongs to: syntax is decoded greedily, payload isn't.

A call has one right spelling and free contents. Sampling its tags, names and brackets at the
temperature of the contents only adds mistakes; and where the likeliest token is always taken, a
draft of it can be checked exactly. The names of the states are those of antirez/ds4.
"""

import re
from enum import StrEnum

_QUOTE = re.compile(r'["\\]')


class Syntax(StrEnum):
    """Where a reply stands after the bytes so far."""

    OUTSIDE = "outside"  # in text or thinking: no call, or not yet
    STRUCTURAL = "structural"  # tags, names, white space between tags
    STRING_BODY = "string_body"  # a text that is written as it is
    JSON_STRUCTURAL = "json_structural"  # brackets, numbers and words of a JSON value
    JSON_STRING = "json_string"  # between the quotes of a JSON value

    @property
    def is_greedy(self) -> bool:
        """Whether the next token is the likeliest one, whatever the sampling options are."""
        return self in (Syntax.STRUCTURAL, Syntax.JSON_STRUCTURAL)


class JsonQuotes:
    """Follows a JSON value that arrives in pieces, to know whether a string is open.

    Attributes:
        inside: The text so far ends between the quotes of a string.
    """

    def __init__(self) -> None:
        self.inside = False
        self._escaped = False

    def feed(self, text: str) -> None:
        """Take the next piece."""
        at = 0
        if self._escaped and text:
            self._escaped, at = False, 1
        while (found := _QUOTE.search(text, at)) is not None:
            at = found.end()
            if found.group() == '"':
                self.inside = not self.inside
            elif self.inside and at == len(text):
                self._escaped = True
            elif self.inside:
                at += 1
