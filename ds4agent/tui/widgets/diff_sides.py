"""A unified diff with what was on the left and what is on the right, for wide screens.

Each run of removed lines stands beside the run of added lines that follows it; what has no
counterpart has a gap beside it. Long lines go on in the next row of their own side.
"""

from itertools import zip_longest

from textual.content import Content

from ds4agent.tui.plain import count
from ds4agent.tui.widgets.diff import diff_content, styled_lines

WIDER_THAN = 140  # cells of the screen: on both sides 80 columns of code nearly fit from there on
_RULE = Content.styled(" │ ", "dim")
_NONE = Content("")


def diff_for_screen(
    diff: str, screen_cells: int, cells: int, limit: int | None = None, path: str = ""
) -> Content:
    """Return a diff as it fits the screen: side by side on a wide one, else unified.

    Args:
        diff: unified.
        screen_cells: the width of the whole screen.
        cells: what there is of it for the diff.
        limit: lines of the unified diff; the rest is counted.
        path: the name of the file tells the language.
    """
    if screen_cells <= WIDER_THAN:
        return diff_content(diff, limit, path)
    return side_by_side(diff, cells, limit, path)


def side_by_side(diff: str, cells: int, limit: int | None = None, path: str = "") -> Content:
    """Return a diff in two columns that fill ``cells``; the arguments are those of above."""
    all_lines = diff.rstrip("\n").split("\n")
    lines = all_lines if limit is None else all_lines[:limit]
    column = max(2, (cells - _RULE.cell_length) // 2)
    rows: list[Content] = []
    removed: list[Content] = []
    added: list[Content] = []

    def flush() -> None:
        for left, right in zip_longest(removed, added, fillvalue=_NONE):
            rows.extend(_row(left, right, column))
        removed.clear()
        added.clear()

    for line, styled in zip(lines, styled_lines(lines, path), strict=True):
        is_header = line.startswith(("+++ ", "--- "))
        if line.startswith("-") and not is_header:
            if added:
                flush()
            removed.append(styled)
        elif line.startswith("+") and not is_header:
            added.append(styled)
        else:
            flush()
            is_code = line.startswith(" ") or not line
            rows.extend(_row(styled, styled, column) if is_code else [styled])
    flush()
    if len(all_lines) > len(lines):
        rows.append(Content.styled(f"▸ {count(len(all_lines) - len(lines), 'more line')}", "dim"))
    return Content("\n").join(rows)


def _row(left: Content, right: Content, column: int) -> list[Content]:
    rows = []
    for old, new in zip_longest(_folded(left, column), _folded(right, column), fillvalue=_NONE):
        rows.append(Content.assemble(old.pad_right(column - old.cell_length), _RULE, new))
    return rows


def _folded(line: Content, column: int) -> list[Content]:
    return line.fold(column) if line.cell_length > column else [line]
