"""The commands and the keys, made from the tables that also carry them out."""

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ds4agent.commands import CommandTable
from ds4agent.tui.plain import one_line

Rows = Sequence[tuple[str, str]]


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
                yield from _table("Commands", rows)
                yield from _table("Keys", self._keys)
            yield Static("Up and Down scroll · Esc closes", classes="dialog-note", markup=False)

    def on_mount(self) -> None:
        self.query_one("#help-body").focus()

    def on_key(self, event: events.Key) -> None:
        if event.key in ("escape", "enter", "q", "f1", "ctrl+c"):
            event.stop()
            event.prevent_default()
            self.dismiss(None)


def _table(title: str, rows: Rows) -> ComposeResult:
    """Yield two columns: what to type, and what it does. Both may come from a person's files."""
    yield Static(title, classes="dialog-title", markup=False)
    with Container(classes="help-table"):
        for name, text in rows:
            yield Static(Content.styled(one_line(name), "bold"), markup=False)
            yield Static(Content(one_line(text)), markup=False)
