"""A large paste stands in the composer as one short mark, and is sent whole."""

import re
from dataclasses import dataclass, field

from ds4agent.tui.plain import count

FOLD_LINES = 8
FOLD_CHARS = 800


@dataclass(slots=True)
class FoldedPastes:
    """The marks of one composer and what they stand for."""

    _texts: dict[str, str] = field(default_factory=dict)
    _number: int = 0

    def fold(self, text: str) -> str:
        """Return a mark for a large text, and a small text as it is."""
        n_lines = text.rstrip("\n").count("\n") + 1
        if n_lines <= FOLD_LINES and len(text) <= FOLD_CHARS:
            return text
        self._number += 1
        size = count(n_lines, "line") if n_lines > FOLD_LINES else count(len(text), "character")
        mark = f"[pasted text {self._number}: {size}]"
        self._texts[mark] = text
        return mark

    def expand(self, text: str) -> str:
        """Return ``text`` with every mark replaced by what it stands for."""
        if not self._texts:
            return text
        marks = re.compile("|".join(re.escape(mark) for mark in self._texts))
        return marks.sub(lambda found: self._texts[found.group()], text)  # once: none in a paste

    def mark_at(self, text: str, offset: int) -> tuple[int, int] | None:
        """Return where the mark is that ``offset`` touches: its start and end, or None."""
        for mark in self._texts:
            start = text.find(mark)
            while start >= 0:
                if start <= offset <= start + len(mark):
                    return start, start + len(mark)
                start = text.find(mark, start + 1)
        return None

    def clear(self) -> None:
        """Forget everything: the text was sent. Numbers go on, so that no mark comes twice."""
        self._texts.clear()
