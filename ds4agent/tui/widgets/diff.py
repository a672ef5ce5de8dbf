"""A unified diff as styled text: + and - as characters first, as colours second.

Where a run of removed lines meets a run of added lines of the same length, the lines are paired
and the changed words of each pair are underlined.
"""

import re
from difflib import SequenceMatcher
from functools import lru_cache

from textual.content import Content, Span

from ds4agent.tui.plain import count, printable

FOLD_LINES = 24
_MARK_CHARS = 240  # word marks only on lines a person reads; matching is quadratic in words
_STYLES = {"+": "$text-success", "-": "$text-error"}
_TINTS = {"+": "on $success 12%", "-": "on $error 12%"}
_CHANGED = {"+": "$text-success bold underline", "-": "$text-error bold underline"}


def diff_content(diff: str, limit: int | None = None, path: str = "") -> Content:
    """Return the diff as text with styles, cut after ``limit`` lines with a count of the rest.

    Args:
        diff: unified.
        limit: lines.
        path: the name of the file tells the language; without one code has no colours of its own.
    """
    all_lines = diff.rstrip("\n").split("\n")
    lines = all_lines if limit is None else all_lines[:limit]
    parts = styled_lines(lines, path)
    hidden = len(all_lines) - len(lines)
    if hidden:
        parts.append(Content.styled(f"▸ {count(hidden, 'more line')}", "dim"))
    return Content("\n").join(parts)


def styled_lines(lines: list[str], path: str = "") -> list[Content]:
    """Return the lines of a unified diff with styles; ``path`` tells the language."""
    language = _language(path)
    changed = _changed_words(lines)
    styled: list[Content] = []
    for idx, line in enumerate(lines):
        spans = [Span(0, len(line), _line_style(line))]
        if language and line[:1] in ("+", "-", " "):
            spans = [*_code_spans(line[1:], language), *_side_spans(line)]
        spans += [Span(start, end, _CHANGED[line[0]]) for start, end in changed.get(idx, ())]
        styled.append(Content(line, spans=spans))
    return styled


def diff_totals(diff: str) -> str:
    """Return "+3 -1": how many lines a diff adds and removes."""
    lines = [line for line in diff.split("\n") if not line.startswith(("+++ ", "--- "))]
    added = sum(line.startswith("+") for line in lines)
    removed = sum(line.startswith("-") for line in lines)
    return f"+{added} -{removed}"


def clean_diff(diff: str) -> str:
    """Return ``diff`` printable, without the file header that a card's title already says."""
    lines = printable(diff).rstrip("\n").split("\n")
    headers = [idx for idx, line in enumerate(lines) if line.startswith("+++ ")]
    if headers == [1] and lines[0].startswith("--- "):
        lines = lines[2:]
    return "\n".join(lines)


def diff_path(diff: str) -> str:
    """Return the path of the file that a diff is about, "" when it says none."""
    match = re.search(r"^\+\+\+ (?:b/)?([^\t\n]+)", diff, re.MULTILINE)
    return match.group(1).strip() if match else ""


def _side_spans(line: str) -> list[Span]:
    """The sign in its colour, and a tint behind the code, which keeps its own colours."""
    if line[0] not in _STYLES:
        return []
    return [Span(0, 1, _STYLES[line[0]]), Span(0, len(line), _TINTS[line[0]])]


@lru_cache(maxsize=256)
def _language(path: str) -> str:
    if not path:
        return ""
    from pygments.lexers import get_lexer_for_filename
    from pygments.util import ClassNotFound

    try:
        aliases = get_lexer_for_filename(path).aliases
    except ClassNotFound:
        return ""
    return aliases[0] if aliases and aliases[0] != "text" else ""


@lru_cache(maxsize=2048)
def _code_spans(code: str, language: str) -> tuple[Span, ...]:
    """Spans of one line of code, shifted by the sign in front of it."""
    if len(code) > _MARK_CHARS or not code.strip():
        return ()
    from textual.highlight import highlight

    spans = highlight(code, language=language).spans
    return tuple(Span(start + 1, end + 1, style) for start, end, style in spans)


def _line_style(line: str) -> str:
    if line.startswith(("+++ ", "--- ", "@@")):
        return "dim"
    return _STYLES.get(line[:1], "")


def _changed_words(lines: list[str]) -> dict[int, list[tuple[int, int]]]:
    """Find the changed ranges of paired lines: line index -> [(start, end)]."""
    ranges: dict[int, list[tuple[int, int]]] = {}
    idx = 0
    while idx < len(lines):
        n_removed = _run(lines, idx, "-")
        n_added = _run(lines, idx + n_removed, "+")
        if n_removed and n_removed == n_added:
            for old in range(idx, idx + n_removed):
                ranges[old], ranges[old + n_removed] = _word_ranges(
                    lines[old], lines[old + n_removed]
                )
        idx += max(1, n_removed + n_added)
    return ranges


def _run(lines: list[str], start: int, sign: str) -> int:
    end = start
    while end < len(lines) and lines[end].startswith(sign):
        if lines[end].startswith(("+++ ", "--- ")):
            break
        end += 1
    return end - start


def _word_ranges(old: str, new: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    if max(len(old), len(new)) > _MARK_CHARS:
        return [], []
    words = [re.findall(r"\w+|\s+|[^\w\s]", text[1:]) for text in (old, new)]
    matcher = SequenceMatcher(None, words[0], words[1], autojunk=False)
    if matcher.ratio() < 0.5:  # two different lines: marking nearly all of both says nothing
        return [], []
    marked: tuple[list[tuple[int, int]], list[tuple[int, int]]] = ([], [])
    for tag, *bounds in matcher.get_opcodes():
        if tag == "equal":
            continue
        for side in (0, 1):
            first, last = bounds[2 * side], bounds[2 * side + 1]
            start = 1 + sum(map(len, words[side][:first]))
            end = start + sum(map(len, words[side][first:last]))
            if end > start:
                marked[side].append((start, end))
    return marked
