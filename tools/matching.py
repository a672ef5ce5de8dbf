"""Finding the text a model means to replace, when it did not copy it exactly.

Four passes, each more tolerant than the one before. A pass counts only when it finds exactly one
place; a tolerant pass never overrules an ambiguous strict one.

1. exact
2. line endings: CRLF and LF are equal
3. trailing blanks, and a final newline that only one side has; whole lines only
4. uniform indent: all lines are shifted by the same indent, or use tabs for spaces; whole lines

When nothing is found and each line of the old text begins with a line number, as the read tool
shows them, the search is repeated without the numbers.
"""

import bisect
import re
from collections.abc import Callable
from dataclasses import dataclass

MAX_COMPARED_LINES = 5_000_000  # a few seconds at worst, for pathological files of equal lines
_TAB_WIDTHS = (4, 2, 8)
_NUMBERED = re.compile(r"(\d{1,7}) ?(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Match:
    """One place in the text. ``replacement`` is the new text in the style of the file, LF only."""

    start: int  # in characters of the file's text
    end: int
    replacement: str
    how: str  # "" for exact, else what was ignored


@dataclass(frozen=True, slots=True)
class Ambiguous:
    """Several places match; ``lines`` are their first line numbers, counted from 1."""

    lines: tuple[int, ...]
    how: str


def find(text: str, old: str, new: str) -> Match | Ambiguous | None:
    """Find the one place of ``old`` in ``text`` and adapt ``new`` to it."""
    new = new.replace("\r\n", "\n")
    places = _occurrences(text, old)
    if places:
        return _decide(text, [(place, place + len(old), new) for place in places], "")
    flat = FlatText(text)
    old = old.replace("\r\n", "\n")
    places = _occurrences(flat.text, old)
    if places:
        spans = [(flat.original(p), flat.original(p + len(old)), new) for p in places]
        return _decide(text, spans, "line endings")
    if not old.strip():
        return None
    for how, matcher in (("trailing blanks", _same_but_blanks), ("indent", _same_but_indent)):
        spans = _line_windows(flat, old, new, matcher)
        if spans:
            return _decide(text, spans, how)
    unnumbered = without_line_numbers(old)
    if unnumbered is None:
        return None
    return find(text, unnumbered, without_line_numbers(new) or new)


class FlatText:
    """A text with LF line endings that knows where each character was in the original."""

    def __init__(self, original: str) -> None:
        self.text = original.replace("\r\n", "\n")
        self._removed: list[int] = []  # positions in the flat text of newlines that lost a CR
        if len(self.text) != len(original):
            place = original.find("\r\n")
            while place >= 0:
                self._removed.append(place - len(self._removed))
                place = original.find("\r\n", place + 2)

    def original(self, position: int) -> int:
        """Map a position; that of a newline is the position of its CR."""
        return position + bisect.bisect_left(self._removed, position)


def line_number(text: str, position: int) -> int:
    """Return the number of the line that holds a position, counted from 1."""
    return text.count("\n", 0, position) + 1


def without_line_numbers(text: str) -> str | None:
    """Remove counted-up numbers before all lines; None when there are none."""
    lines = text.removesuffix("\n").split("\n")
    matches = [_NUMBERED.fullmatch(line) for line in lines]
    numbers = [int(match[1]) for match in matches if match]
    if len(numbers) < len(lines) or numbers != list(range(numbers[0], numbers[0] + len(lines))):
        return None
    return "\n".join(match[2] for match in matches if match)


def _decide(text: str, spans: list[tuple[int, int, str]], how: str) -> Match | Ambiguous:
    if len(spans) > 1:
        return Ambiguous(tuple(line_number(text, start) for start, _, _ in spans), how)
    start, end, new = spans[0]
    return Match(start, end, new, how)


def _occurrences(text: str, old: str) -> list[int]:
    places = []
    place = text.find(old)
    while place >= 0 and len(places) < 1000:
        places.append(place)
        place = text.find(old, place + 1)  # overlapping places are ambiguous too
    return places


def _line_windows(
    flat: FlatText,
    old: str,
    new: str,
    matcher: Callable[[list[str], list[str], str], str | None],
) -> list[tuple[int, int, str]]:
    """Compare ``old`` with every run of as many whole lines; the matcher returns the new text."""
    lines = flat.text.split("\n")
    old_lines = old.split("\n")
    whole_last = len(old_lines) > 1 and old_lines[-1].strip() == ""
    if whole_last:
        old_lines.pop()  # ``old`` ends with a newline, which belongs to the replaced span
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    first = old_lines[0].strip()
    spans = []
    n_compared = 0
    for index in range(len(lines) - len(old_lines) + 1):
        if lines[index].strip() != first:
            continue
        n_same = 0
        for line, wanted in zip(lines[index : index + len(old_lines)], old_lines, strict=True):
            if line.strip() != wanted.strip():
                break
            n_same += 1
        n_compared += n_same
        if n_compared > MAX_COMPARED_LINES:
            return []
        if n_same < len(old_lines):
            continue
        replacement = matcher(lines[index : index + len(old_lines)], old_lines, new)
        if replacement is None:
            continue
        start = starts[index]
        end = starts[index + len(old_lines)] - 1
        if whole_last and end < len(flat.text):
            end += 1
        elif whole_last and flat.text.endswith("\n"):
            # ``old`` has a newline too many: the last line of this run is the nothing behind the
            # file's final newline, which stays.
            replacement = replacement.removesuffix("\n")
            replacement += "" if replacement.endswith("\n") or not replacement else "\n"
        elif whole_last and replacement.endswith("\n"):
            replacement = replacement[:-1]  # the file has no final newline and keeps none
        spans.append((flat.original(start), flat.original(end), replacement))
    return spans


def _same_but_blanks(lines: list[str], old: list[str], new: str) -> str | None:
    same = all(line.rstrip() == wanted.rstrip() for line, wanted in zip(lines, old, strict=True))
    return new if same else None


def _same_but_indent(lines: list[str], old: list[str], new: str) -> str | None:
    for convert in _indent_conversions(lines, old):
        converted = [convert(line) for line in old]
        have, want = _common_indent(lines), _common_indent(converted)
        shifted = [have + line[len(want) :] if line.strip() else "" for line in converted]
        if [line.rstrip() for line in lines] == [line.rstrip() for line in shifted]:
            return "\n".join(_reindent(convert(line), want, have) for line in new.split("\n"))
    return None


def _indent_conversions(lines: list[str], old: list[str]) -> list[Callable[[str], str]]:
    conversions: list[Callable[[str], str]] = []
    file_has_tabs = any(line.startswith("\t") for line in lines)
    old_has_tabs = any(line.startswith("\t") for line in old)
    for width in _TAB_WIDTHS:
        if file_has_tabs and not old_has_tabs:
            conversions.append(lambda line, w=width: _tabs_for_spaces(line, w))
        elif old_has_tabs and not file_has_tabs:
            conversions.append(lambda line, w=width: _spaces_for_tabs(line, w))
    return [*conversions, lambda line: line]


def _tabs_for_spaces(line: str, width: int) -> str:
    body = line.lstrip(" ")
    n_tabs, n_spaces = divmod(len(line) - len(body), width)
    return "\t" * n_tabs + " " * n_spaces + body


def _spaces_for_tabs(line: str, width: int) -> str:
    body = line.lstrip("\t")
    return " " * (width * (len(line) - len(body))) + body


def _common_indent(lines: list[str]) -> str:
    indents = [line[: len(line) - len(line.lstrip(" \t"))] for line in lines if line.strip()]
    if not indents:
        return ""
    shortest, longest = min(indents), max(indents)
    n_same = 0
    while n_same < len(shortest) and shortest[n_same] == longest[n_same]:
        n_same += 1
    return shortest[:n_same]


def _reindent(line: str, want: str, have: str) -> str:
    if not line.strip():
        return ""
    if line.startswith(want):
        return have + line[len(want) :]
    return have + line.lstrip(" \t")  # less indented than anything in ``old``
