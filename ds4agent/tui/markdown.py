"""Markdown as rows of styled text, made so that an answer can grow cheaply while it streams.

A text is a sequence of units: paragraphs, headings, fences, tables, and each item of a list.
Only the last unit can still change; the ones before it are settled and never looked at again.
markdown-it finds the units; how they look is decided here.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content, Span
from textual.style import Style

if TYPE_CHECKING:  # imported with the first text: the first paint does not wait for them
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode as Node
    from textual.highlight import HighlightTheme

    HighlightColours = type[HighlightTheme]

CODE_FILL = "on $boost"
_CODE_STYLE = "$text-accent"
_HEADING_STYLES = {"h1": "bold underline $text-accent", "h2": "bold $text-accent"}
_CHUNK_LINES = 20  # of a fence that still grows: coloured piece by piece, so the cost stays flat
_HIGHLIGHTED_CHARS = 50_000  # a longer piece of code is shown without colours
_LEAST_CELLS = 4  # columns narrower than this only make a table longer
_TOO_DEEP = 12  # nested lists and quotes beyond this are shown flat


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the screen. ``fill`` colours the rest of the row behind the text."""

    text: Content
    fill: str = ""


@dataclass(frozen=True, slots=True)
class Unit:
    """A part of a text that is laid out by itself."""

    start_line: int  # of the parsed source, from 0
    joins: bool  # no empty row before it: the next item of the same list
    rows: Callable[[int, "HighlightColours"], list[Row]]  # width in cells, colours -> rows


BLANK = Row(Content(""))


def parse(source: str, *, is_open: bool = False) -> list[Unit]:
    """Return the units of a text. ``is_open``: the last one may still grow."""
    from markdown_it.tree import SyntaxTreeNode

    tree = SyntaxTreeNode(_parser().parse(source))
    units: list[Unit] = []
    children = tree.children
    for node in children:
        if node.type in ("bullet_list", "ordered_list"):
            for place, item in enumerate(node.children):
                start = item.map[0] if item.map else node.map[0]
                units.append(Unit(start, place > 0, _item_unit(node, item, place)))
        else:
            grows = is_open and node is children[-1]
            start = node.map[0] if node.map else 0
            units.append(Unit(start, False, _block_unit(node, grows)))
    return units


def _block_unit(node: "Node", grows: bool) -> Callable[[int, "HighlightColours"], list[Row]]:
    return lambda width, colours: _block(node, max(1, width), colours, 0, grows)


def _item_unit(
    node: "Node", item: "Node", place: int
) -> Callable[[int, "HighlightColours"], list[Row]]:
    return lambda width, colours: _item(node, item, place, max(1, width), colours, 0)


@lru_cache(maxsize=1)
def _parser() -> "MarkdownIt":
    from markdown_it import MarkdownIt

    # Raw HTML off: "vector<int>" is text to read.
    return MarkdownIt("gfm-like", {"html": False, "linkify": False})


# --- blocks -------------------------------------------------------------------------------------


def _block(
    node: "Node", width: int, colours: "HighlightColours", depth: int, grows: bool = False
) -> list[Row]:
    match node.type:
        case "heading":
            style = _HEADING_STYLES.get(node.tag, "bold")
            return [Row(line.stylize(style)) for line in _inline(node).wrap(width)]
        case "fence" | "code_block":
            return _code(
                node.content, node.info if node.type == "fence" else "", width, colours, grows
            )
        case "bullet_list" | "ordered_list" if depth < _TOO_DEEP:
            return [
                row
                for place, item in enumerate(node.children)
                for row in _item(node, item, place, width, colours, depth)
            ]
        case "blockquote" if depth < _TOO_DEEP:
            inner = _stack(node.children, max(1, width - 2), colours, depth + 1)
            bar = Content.styled("▎ ", "dim")
            return [Row(bar + row.text, row.fill) for row in inner]
        case "table":
            return _table(node, width)
        case "hr":
            return [Row(Content.styled("─" * width, "dim"))]
        case _:
            return [Row(line) for line in _inline(node).wrap(width)]


def _stack(
    nodes: Iterable["Node"], width: int, colours: "HighlightColours", depth: int
) -> list[Row]:
    rows: list[Row] = []
    for node in nodes:
        is_list = node.type in ("bullet_list", "ordered_list")
        if rows and not is_list:
            rows.append(BLANK)
        rows += _block(node, width, colours, depth)
    return rows


def _item(
    node: "Node", item: "Node", place: int, width: int, colours: "HighlightColours", depth: int
) -> list[Row]:
    if node.type == "ordered_list":
        mark = f"{item.info or place + 1}. "  # the number as it was written
    else:
        mark = "•◦▪"[min(depth, 2)] + " "
    indent = " " * len(mark)
    inner = _stack(item.children, max(1, width - len(mark)), colours, depth + 1)
    rows = inner or [BLANK]
    return [
        Row(Content.styled(mark, "bold") + row.text if idx == 0 else indent + row.text, row.fill)
        for idx, row in enumerate(rows)
    ]


# --- code ---------------------------------------------------------------------------------------


def _code(code: str, info: str, width: int, colours: "HighlightColours", grows: bool) -> list[Row]:
    language = info.split()[0] if info.split() else ""
    lines = code.removesuffix("\n").split("\n")
    if grows and len(lines) > _CHUNK_LINES:
        pieces = [lines[n : n + _CHUNK_LINES] for n in range(0, len(lines), _CHUNK_LINES)]
    else:
        pieces = [lines]
    rows: list[Row] = []
    for piece in pieces:
        rows += _coloured("\n".join(piece), language, width, colours)
    return rows


@lru_cache(maxsize=64)
def _coloured(code: str, language: str, width: int, colours: "HighlightColours") -> list[Row]:
    if language and len(code) <= _HIGHLIGHTED_CHARS:
        from textual.highlight import highlight

        content = highlight(code, language=language, theme=colours)
    else:
        content = Content(code)
    lines = content.split("\n", allow_blank=True)
    return [Row(part, CODE_FILL) for line in lines for part in line.fold(max(2, width))]


# --- tables -------------------------------------------------------------------------------------


def _table(node: "Node", width: int) -> list[Row]:
    grid = [
        [_inline(cell) for cell in row.children] for part in node.children for row in part.children
    ]
    n_columns = max((len(row) for row in grid), default=0)
    if not n_columns:
        return []
    widths = [
        max((cell_len(row[column].plain) for row in grid if column < len(row)), default=0)
        for column in range(n_columns)
    ]
    widths = _fitting(widths, width - 3 * (n_columns - 1))
    bar = Content.styled(" │ ", "dim")
    rows: list[Row] = []
    for number, cells in enumerate(grid):
        style = "bold" if number == 0 else ""
        rows += [Row(line) for line in _table_row(cells, widths, bar, style)]
        if number == 0:
            line = "─┼─".join("─" * cells for cells in widths)
            rows.append(Row(Content.styled(line, "dim")))
    return [Row(row.text.truncate(width), row.fill) for row in rows]


def _table_row(
    cells: list[Content], widths: list[int], bar: Content, style: str
) -> Iterable[Content]:
    wrapped = [cell.wrap(width) for cell, width in zip(cells, widths, strict=False)]
    for number in range(max((len(lines) for lines in wrapped), default=1)):
        parts = []
        for place, width in enumerate(widths):
            lines = wrapped[place] if place < len(wrapped) else []
            text = lines[number] if number < len(lines) else Content("")
            text = text.stylize(style) if style and text else text
            missing = 0 if place == len(widths) - 1 else width - cell_len(text.plain)
            parts.append(text + " " * max(0, missing))
        yield bar.join(parts)


def _fitting(widths: list[int], room: int) -> list[int]:
    """Take from the widest columns until a row fits."""
    fitted = [max(1, width) for width in widths]
    while sum(fitted) > room and max(fitted) > _LEAST_CELLS:
        widest = max(range(len(fitted)), key=fitted.__getitem__)
        others = [width for place, width in enumerate(fitted) if place != widest]
        step = fitted[widest] - max([_LEAST_CELLS, *others])
        fitted[widest] -= max(1, min(step, sum(fitted) - room))
    return fitted


# --- text ---------------------------------------------------------------------------------------


def _inline(node: "Node") -> Content:
    """Return the text below a node with its styles; a link carries its target as ``href``."""
    pieces: list[str] = []
    spans: list[Span] = []
    _walk(node, pieces, spans, [0])
    return Content("".join(pieces), spans=spans)


def _walk(node: "Node", pieces: list[str], spans: list[Span], at: list[int]) -> None:
    start = at[0]
    match node.type:
        case "softbreak":
            _add(" ", pieces, at)
        case "hardbreak":
            _add("\n", pieces, at)
        case "image":
            _add(f"[image: {node.content}]", pieces, at)
        case "text" | "code_inline" | "html_inline" | "html_block":
            _add(node.content, pieces, at)
        case _:
            for child in node.children:
                _walk(child, pieces, spans, at)
    spans += [Span(start, at[0], style) for style in _styles(node) if at[0] > start]


def _add(text: str, pieces: list[str], at: list[int]) -> None:
    pieces.append(text)
    at[0] += len(text)


def _styles(node: "Node") -> list[str | Style]:
    match node.type:
        case "strong":
            return ["bold"]
        case "em":
            return ["italic"]
        case "s":
            return ["strike"]
        case "code_inline":
            return [_CODE_STYLE]
        case "link" | "image":
            href = str(node.attrs.get("href") or node.attrs.get("src") or "")
            return ["underline", Style.from_meta({"href": href})]
    return []
