"""The commands and the keys, made from the tables that also carry them out."""

from collections.abc import Sequence

from rich.cells import set_cell_size
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from ds4agent.commands import CommandTable
from ds4agent.tui.plain import one_line

Rows = Sequence[tuple[str, str]]

_NAME_CELLS = 29


class HelpTable(Widget):
    """Titles, and rows of what to type and what it does, in two columns. One widget: it opens at
    once. The texts may come from a person's files."""

    def __init__(self, tables: Sequence[tuple[str, Rows]]) -> None:
        super().__init__(id="help-table")
        self._tables = tables

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return len(self._lines(width))

    def render(self) -> Content:
        return Content("\n").join(self._lines(self.size.width))

    def _lines(self, width: int) -> list[Content]:
        lines: list[Content] = []
        for title, rows in self._tables:
            if lines:
                lines.append(Content(""))
            lines.append(Content.styled(title, "bold $text-accent"))
            for name, text in rows:
                lines += self._row(one_line(name), one_line(text), width)
        return lines

    def _row(self, name: str, text: str, width: int) -> list[Content]:
        texts = Content(text).wrap(max(10, width - _NAME_CELLS))
        names = [name] + [""] * (len(texts) - 1)
        return [
            Content.assemble((set_cell_size(part, _NAME_CELLS - 2), "bold"), "  ", line)
            for part, line in zip(names, texts, strict=True)
        ]


class HelpScreen(ModalScreen[None]):
    """Scrolls with the usual keys; Esc, Enter, q and F1 close it."""

    def __init__(self, commands: CommandTable, keys: Rows) -> None:
        super().__init__(classes="dialog")
        self._commands, self._keys = commands, keys

    def compose(self) -> ComposeResult:
        rows = [
            (
                entry.usage,
                entry.help + "".join(f" (also /{alias})" for alias in entry.aliases),
            )
            for entry in self._commands.commands
        ]
        with Vertical(id="help", classes="dialog-box"):
            with VerticalScroll(id="help-body"):
                yield HelpTable((("Commands", rows), ("Keys", self._keys)))
            yield Static("Up and Down scroll · Esc closes", classes="dialog-note", markup=False)

    def on_mount(self) -> None:
        self.query_one("#help-body").focus()

    def on_key(self, event: events.Key) -> None:
        if event.key in ("escape", "enter", "q", "f1", "ctrl+c"):
            event.stop()
            event.prevent_default()
            self.dismiss(None)
