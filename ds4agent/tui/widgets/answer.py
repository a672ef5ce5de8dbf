"""The model's text as Markdown that grows while it streams."""

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from textual import events
from textual.message import Message

from ds4agent.tui.markdown import BLANK, Row, Unit, parse
from ds4agent.tui.plain import printable
from ds4agent.tui.widgets.rows import RowBlock

if TYPE_CHECKING:
    from ds4agent.tui.markdown import HighlightColours


class Answer(RowBlock):
    """One piece of the assistant's text between tool calls.

    Text is appended, never set again: only the last unit (paragraph, item of a list, fence) is
    parsed and drawn anew, so the cost of a piece does not depend on how much stands above it.
    """

    class LinkShown(Message):
        """A link was clicked. Nothing opens by itself; the screen shows where it leads."""

        def __init__(self, href: str) -> None:
            super().__init__()
            self.href = href

    def __init__(self, text: str = "") -> None:
        super().__init__("block answer", self.make_rows)
        self._pieces: list[str] = []
        self._settled: list[Unit] = []
        self._n_settled_rows = 0  # of the rows that exist
        self._open = ""  # source of the last unit
        self._open_joins = False  # that unit goes on with the list of the one before
        self._last: list[Unit] = []  # that unit; none while there is no text
        if text:
            self._take(printable(text))

    @property
    def source(self) -> str:
        """The whole text as Markdown."""
        return "".join(self._pieces)

    def append_text(self, text: str) -> None:
        """Add a piece of text."""
        first = self._n_settled_rows
        newly_settled = self._take(printable(text))
        if self.rows_width < 0:
            return
        width, colours = self.rows_width, self._colours()
        rows: list[Row] = []
        for unit in newly_settled:
            rows += _unit_rows(unit, width, colours, is_first=first + len(rows) == 0)
        self._n_settled_rows = first + len(rows)
        for unit in self._last:
            rows += _unit_rows(unit, width, colours, is_first=first + len(rows) == 0)
        self.rows_changed(first, rows)

    def recipe(self) -> partial["Answer"]:
        return partial(Answer, self.source)

    def make_rows(self, width: int) -> list[Row]:
        """Return all rows for a width in cells."""
        rows: list[Row] = []
        colours = self._colours()
        for unit in self._settled:
            rows += _unit_rows(unit, width, colours, is_first=not rows)
        self._n_settled_rows = len(rows)
        for unit in self._last:
            rows += _unit_rows(unit, width, colours, is_first=not rows)
        return rows

    def on_click(self, event: events.Click) -> None:
        href = event.style.meta.get("href")
        if href:
            event.stop()
            self.post_message(self.LinkShown(href))

    def _take(self, text: str) -> list[Unit]:
        """Parse what is new with the open unit; return the units that are settled by it."""
        self._pieces.append(text)
        self._open += text
        units = parse(self._open, is_open=True)
        if units and self._open_joins:
            units[0] = replace(units[0], joins=True)
        settled = units[:-1]
        if settled:
            lines = self._open.split("\n")
            self._open = "\n".join(lines[units[-1].start_line :])
            self._open_joins = units[-1].joins
            self._settled += settled
        self._last = units[-1:]
        return settled

    def _colours(self) -> "HighlightColours":
        from textual import highlight

        if not self.app.native_ansi_color:
            return highlight.HighlightTheme
        is_dark = self.app.current_theme.dark
        return highlight.ANSIDarkHighlightTheme if is_dark else highlight.ANSILightHighlightTheme


def _unit_rows(unit: Unit, width: int, colours: "HighlightColours", *, is_first: bool) -> list[Row]:
    rows = unit.rows(width, colours)
    return rows if unit.joins or is_first else [BLANK, *rows]
