"""A diff that the person asked for."""

from functools import partial

from textual.content import Content
from textual.widgets import Static

from ds4agent.tui.plain import printable
from ds4agent.tui.widgets.diff import diff_totals
from ds4agent.tui.widgets.diff_sides import WIDER_THAN, diff_for_screen

MAX_LINES = 400  # a screen's scrollback is no place for more; git shows the rest


class DiffBlock(Static):
    """The changes of one turn or of all, with a count of added and removed lines."""

    def __init__(self, diff: str) -> None:
        self.source = diff
        self._is_wide = False
        super().__init__(self._drawn(0, 0), classes="block", markup=False)

    def on_resize(self) -> None:
        screen_cells = self.app.size.width
        was_wide, self._is_wide = self._is_wide, screen_cells > WIDER_THAN
        if was_wide or self._is_wide:
            self.update(self._drawn(screen_cells, self.content_size.width))

    def _drawn(self, screen_cells: int, cells: int) -> Content:
        shown = diff_for_screen(printable(self.source), screen_cells, cells, MAX_LINES)
        return shown.append(f"\n{diff_totals(self.source)}")

    def recipe(self) -> partial["DiffBlock"]:
        return partial(DiffBlock, self.source)
