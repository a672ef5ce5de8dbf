"""Markdown that comes in pieces, cut into blocks that cannot change any more."""

from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt


@lru_cache(maxsize=1)
def parser() -> "MarkdownIt":
    """Return the parser; raw HTML is off: "vector<int>" is text to read."""
    from markdown_it import MarkdownIt

    return MarkdownIt("gfm-like", {"html": False, "linkify": False})


class BlockCutter:
    """Holds back the last block of a text, because only it may still grow."""

    def __init__(self) -> None:
        self._open = ""

    @property
    def open_text(self) -> str:
        """The source of the block that may still grow."""
        return self._open

    def feed(self, text: str) -> list[str]:
        """Add a piece; return the sources of the blocks that are finished by it."""
        self._open += text
        starts = [
            token.map[0]
            for token in parser().parse(self._open)
            if token.level == 0 and token.map is not None and token.nesting >= 0
        ]
        if len(starts) < 2:
            return []
        lines = self._open.split("\n")
        finished = [
            "\n".join(lines[start:end]).strip("\n")
            for start, end in zip(starts, starts[1:], strict=False)
        ]
        self._open = "\n".join(lines[starts[-1] :])
        return finished

    def finish(self) -> str:
        """Return the last block and forget it."""
        rest, self._open = self._open, ""
        return rest.strip("\n")
