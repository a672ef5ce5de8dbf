"""Replacing one piece of a file's text, and saying what is wrong when it is not there once.

The text keeps its line endings: a replacement has those of the place it goes to, also in a file
that mixes them.
"""

import difflib
import time
from dataclasses import dataclass

from tools.errors import ToolError
from tools.matching import Ambiguous, find, line_number
from tools.text import one_line

_NEAREST_SEARCH_S = 0.5  # a failed edit must answer at once, also in a long file
_NEAREST_LINES = 8  # shown of the nearest place


class NotFound(ToolError):
    """The old text is nowhere in the file, nor anything that can be taken for it."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """A text after one replacement, and where that was."""

    text: str
    line: int  # counted from 1
    n_old_lines: int
    n_new_lines: int
    ignored: str  # which differences were ignored to find the place, "" for none

    def __str__(self) -> str:
        ignored = f" (ignored differences in {self.ignored})" if self.ignored else ""
        return (
            f"at line {self.line}: {self.n_old_lines} lines became {self.n_new_lines} "
            f"lines{ignored}"
        )


def replace_once(text: str, old: str, new: str, what: str) -> Replacement:
    """Replace the one place of ``old`` by ``new``.

    Args:
        text: of the whole file, with its own line endings.
        old: must be there once, exactly or but for the differences ``matching`` allows.
        new: its line endings do not matter.
        what: the file, for messages.

    Raises:
        ToolError: it is not there once, or nothing would change.
    """
    if not old:
        raise ToolError("old is empty", "Give the text to replace, or use write.")
    if old == new:
        raise ToolError("old equals new, so nothing would change", "Change new.")
    match = find(text, old, new)
    if match is None:
        raise _miss(what, text, old, new)
    if isinstance(match, Ambiguous):
        lines = ", ".join(map(str, match.lines[:10]))
        raise ToolError(
            f"old occurs {len(match.lines)} times in {what}, at lines {lines}",
            "Add lines around it to old, so that it occurs once.",
        )
    start = match.start
    if text.startswith("\n", start) and text.endswith("\r", 0, start) and old.startswith("\n"):
        start -= 1  # the two characters of a line ending are one
    removed = text[start : match.end]
    replacement = match.replacement.replace("\n", _newline_at(text, start, match.end, new))
    after = text[:start] + replacement + text[match.end :]
    if after == text:
        raise ToolError(f"{what} already has the new text there", "Go on with the next step.")
    return Replacement(
        after, line_number(text, start), _n_lines(removed), _n_lines(replacement), match.how
    )


def _newline_at(text: str, start: int, end: int, new: str) -> str:
    """Return the line ending of a place: of the first line that ends in or after it, else of the
    one before, else that of the new text."""
    at = text.find("\n", start)
    if at < 0:
        at = text.rfind("\n", 0, end)
    if at < 0:
        return "\r\n" if "\r\n" in new else "\n"
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


_TELLING_CHARS = 16  # of a new text that is found in the file: shorter ones are there by chance


def _n_lines(text: str) -> int:
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def _miss(relative: str, text: str, old: str, new: str) -> ToolError:
    """Explain why ``old`` was not found, with the place that is most like it."""
    flat_new = new.replace("\r\n", "\n")
    # A word or two stands in any file: that says nothing of this edit.
    is_telling = len(flat_new.strip()) >= _TELLING_CHARS
    place = text.replace("\r\n", "\n").find(flat_new) if is_telling else -1
    if place >= 0:
        line = line_number(text.replace("\r\n", "\n"), place)
        return ToolError(
            f"old is not in {relative}, and new is already there at line {line}",
            "The edit seems to be applied already; go on.",
        )
    lines = text.splitlines()
    best = _nearest_line(lines, old)
    if best is None:
        return NotFound(f"old is not in {relative}", "Read the file and copy the text exactly.")
    n_shown = min(_NEAREST_LINES, max(2, len(old.splitlines()) + 1))
    near = "\n".join(
        f"{index + 1} {_show_line(lines[index])}"
        for index in range(best, min(len(lines), best + n_shown))
    )
    return NotFound(
        f"old is not in {relative}",
        f"Copy the text exactly, without line numbers. The nearest lines are:\n{near}",
    )


def _show_line(line: str) -> str:
    """Clean a line for display without losing its indent."""
    body = line.lstrip(" \t")
    return line[: len(line) - len(body)] + one_line(body)


def _nearest_line(lines: list[str], old: str) -> int | None:
    """Return the index of the line where text like ``old`` begins, None when nothing is like it.

    Compares the longest line of ``old``, which says most about the place.
    """
    old_lines = old.splitlines()
    key = max(old_lines, key=lambda line: len(line.strip()), default="").strip()
    if not key:
        return None
    key = key[:300]
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(key)
    deadline = time.monotonic() + _NEAREST_SEARCH_S
    best_ratio, best = 0.5, None  # below one half, similar is only chance
    for index, line in enumerate(lines):
        if time.monotonic() > deadline:
            break
        matcher.set_seq1(line.strip()[:300])
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best_ratio, best = ratio, index
    if best is None:
        return None
    key_index = next(i for i, line in enumerate(old_lines) if line.strip()[:300] == key)
    return max(0, best - key_index)
