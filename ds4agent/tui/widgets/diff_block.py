"""A diff that the person asked for."""

from functools import partial

from textual.widgets import Static

from ds4agent.tui.plain import printable
from ds4agent.tui.widgets.diff import diff_content, diff_totals

MAX_LINES = 400  # a screen's scrollback is no place for more; git shows the rest


class DiffBlock(Static):
    """The changes of one turn or of all, with a count of added and removed lines."""

    def __init__(self, diff: str) -> None:
        content = diff_content(printable(diff), MAX_LINES).append(f"\n{diff_totals(diff)}")
        super().__init__(content, classes="block", markup=False)
        self.source = diff

    def recipe(self) -> partial["DiffBlock"]:
        return partial(DiffBlock, self.source)
