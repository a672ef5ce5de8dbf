"""The spellings of DSML tags: one family per checkpoint generation, and two that are mistakes.

A block keeps to the family that opened it. Inside a block of one family the tags of another are
ordinary text, as they were in training.
"""

import re
from dataclasses import dataclass
from functools import cached_property

from engine.chat.marks import MarkFinder

MARK = "｜DSML｜"  # one token of the vocabulary


@dataclass(frozen=True)
class TagFamily:
    """How the tags of one family are written.

    Attributes:
        name: As on a command line.
        mark: What follows ``<`` and ``</`` in each tag.
        block: The tag name of the block of calls.
    """

    name: str
    mark: str
    block: str

    @property
    def open(self) -> str:
        """The beginning that all opening tags share."""
        return f"<{self.mark}"

    @property
    def block_open(self) -> str:
        return f"<{self.mark}{self.block}>"

    @property
    def block_close(self) -> str:
        return f"</{self.mark}{self.block}>"

    @property
    def call_close(self) -> str:
        return f"</{self.mark}invoke>"

    @property
    def value_close(self) -> str:
        return f"</{self.mark}parameter>"

    @property
    def escaped_value_close(self) -> str:
        """How a text that contains the closing tag writes it."""
        return "&lt;" + self.value_close[1:]

    @cached_property
    def tag(self) -> re.Pattern[str]:
        """A whole tag: is it closing, its name, its attributes."""
        names = f"invoke|parameter|{self.block}"
        return re.compile(rf'<(/?){self.mark}({names})((?:\s+[a-z]+="[^"]*")*)\s*>')

    @cached_property
    def text_value_ends(self) -> MarkFinder:
        return MarkFinder((self.value_close, self.escaped_value_close))

    @cached_property
    def json_value_ends(self) -> MarkFinder:
        return MarkFinder((self.value_close,))


V4 = TagFamily("v4", MARK, "tool_calls")
V41 = TagFamily("v41", f"{MARK} ", "calls")
SHORT = TagFamily("short", "DSML｜", "tool_calls")  # the first bar forgotten
PLAIN = TagFamily("plain", "", "tool_calls")
FAMILIES = {family.name: family for family in (V4, V41, SHORT, PLAIN)}
TRAINED = (V4, V41)
