"""A widget made of rows: each is drawn once, and what grows at the end costs the end only."""

from collections.abc import Callable

from textual.content import Content
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions
from textual.widget import Widget

from ds4agent.tui.markdown import Row

_NO_WRAP = {"text_wrap": "nowrap", "text_overflow": "clip"}


class RowBlock(Widget):
    """Base of blocks with many rows.

    Text can be selected with the mouse; what is copied is the text of the rows without the colour
    behind it.
    """

    def __init__(self, classes: str, make_rows: Callable[[int], list[Row]]) -> None:
        """Prepare.

        Args:
            classes: of the style sheet.
            make_rows: returns all rows for a width in cells.
        """
        super().__init__(classes=classes)
        self._make_rows = make_rows
        self._rows: list[Row] = []
        self._rows_width = -1  # cells; the rows were made for it
        self._strips: list[Strip | None] = []  # drawn rows; None: not yet

    # --- for subclasses --------------------------------------------------------------------------

    def rows_changed(self, first: int, rows: list[Row]) -> None:
        """Replace the rows from ``first`` on. Without a change of height there is no layout."""
        if self._rows_width < 0:
            return  # not laid out yet: all rows are made then
        height = len(self._rows)
        self._rows[first:] = rows
        self._strips[first:] = [None] * len(rows)
        if len(self._rows) != height:
            self.refresh(layout=True)
        elif rows:
            self.refresh(Region(0, first, max(1, self.size.width), len(rows)))

    @property
    def n_rows(self) -> int:
        """Rows that exist; 0 before the first layout."""
        return len(self._rows)

    @property
    def rows_width(self) -> int:
        """The width in cells that the rows were made for; negative before the first layout."""
        return self._rows_width

    # --- layout ----------------------------------------------------------------------------------

    def _rows_for(self, width: int) -> list[Row]:
        if width != self._rows_width:
            self._rows = self._make_rows(width)
            self._rows_width = width
            self._strips = [None] * len(self._rows)
        return self._rows

    def get_content_width(self, container: Size, viewport: Size) -> int:
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._rows_for(width))

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._rows_width = -1  # colours of code belong to the theme

    # --- drawing ---------------------------------------------------------------------------------

    def render(self) -> Content:
        return Content(self.plain_text())

    def render_line(self, y: int) -> Strip:
        width = self.size.width
        rows = self._rows_for(width)
        if y >= len(rows):
            return Strip.blank(width, self.visual_style.rich_style)
        selection = self.text_selection
        span = selection.get_span(y) if selection is not None else None
        if span is not None:
            return self._drawn(rows[y], y, width, span)
        strip = self._strips[y]
        if strip is None:
            strip = self._strips[y] = self._drawn(rows[y], y, width, None)
        return strip

    def _drawn(self, row: Row, y: int, width: int, selected: tuple[int, int] | None) -> Strip:
        base = self.visual_style
        if row.fill:
            base += Style.parse(row.fill)
        text = row.text
        if selected is not None:
            start, end = selected
            style = Style.from_styles(self.screen.get_component_styles("screen--selection"))
            text = text.stylize(style, start, len(text.plain) if end == -1 else end)
        options = RenderOptions(self._get_style, _NO_WRAP)
        strips = text.render_strips(width, 1, base, options)
        strip = strips[0] if strips else Strip([])
        # Beside the offsets the fill is no text: what is copied ends where the text ends.
        return strip.apply_offsets(0, y).adjust_cell_length(width, base.rich_style)

    # --- selection -------------------------------------------------------------------------------

    def plain_text(self) -> str:
        """Return the text of all rows without styles."""
        return "\n".join(row.text.plain for row in self._rows)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self.plain_text()), "\n"
