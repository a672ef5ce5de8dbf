"""Looking for marks in text that arrives in pieces.

A mark is found as soon as it is complete, and the end of the text is held back while it may still
become one. Each character is looked at a bounded number of times, whatever the text is.
"""

import re
from collections.abc import Iterable


class MarkFinder:
    """Finds the first of several fixed texts."""

    def __init__(self, marks: Iterable[str]) -> None:
        """Prepare a search.

        Args:
            marks: What to look for. None is the beginning of another: which one stands in the
                text would then depend on how much of it has arrived.
        """
        self.marks = tuple(marks)
        self._pattern = re.compile("|".join(map(re.escape, self.marks)))
        self._beginnings = frozenset(mark[:n] for mark in self.marks for n in range(1, len(mark)))
        if self._beginnings & frozenset(self.marks):
            raise ValueError(f"a mark is the beginning of another: {self.marks}")
        self._first = frozenset(mark[0] for mark in self.marks)
        self._longest = max(map(len, self.marks))

    def find(self, text: str, at: int = 0) -> tuple[int, str]:
        """Find the first mark in ``text[at:]``.

        Returns:
            Where it begins and which it is; or, if there is none, the position from which
            ``text`` may be the beginning of one (its length if it can't be) and ``""``.
        """
        found = self._pattern.search(text, at)
        if found is not None:
            return found.start(), found.group()
        return self.partial(text, at), ""

    def partial(self, text: str, at: int = 0) -> int:
        """Return from where the end of ``text`` may be the beginning of a mark, else its length."""
        for start in range(max(at, len(text) - self._longest + 1), len(text)):
            if text[start] in self._first and text[start:] in self._beginnings:
                return start
        return len(text)
