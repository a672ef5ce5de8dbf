"""The rules about calls that hold here; those of this project can be removed and added."""

from collections.abc import Sequence

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ds4agent.events import PermissionEntry
from ds4agent.tui.plain import one_line, visible
from ds4agent.tui.theme import NOTE

_KEYS = "Del removes · a, s, d: allow, ask, deny another · Esc closes"
_VERBS = {"a": "allow", "s": "ask", "d": "deny"}


class PermissionScreen(ModalScreen[None]):
    """Shows the list; each change is asked of the worker, which answers with the new list."""

    class Edited(Message):
        """A rule should be added with a verdict, or removed ("remove")."""

        def __init__(self, action: str, rule: str) -> None:
            super().__init__()
            self.action, self.rule = action, rule

    def __init__(self, entries: Sequence[PermissionEntry]) -> None:
        super().__init__(classes="dialog")
        self._entries = tuple(entries)
        self._verb = ""

    def compose(self) -> ComposeResult:
        with Vertical(id="permissions", classes="dialog-box"):
            yield Static("Rules about calls", classes="dialog-title", markup=False)
            yield OptionList(id="permissions-list", markup=False)
            yield Input(id="permissions-rule")
            yield Static("", id="permissions-note", classes="dialog-note", markup=False)

    def on_mount(self) -> None:
        entry = self.query_one(Input)
        entry.display = False
        entry.cursor_blink = False  # a blinking cursor is a timer that never stops
        self.show(self._entries)
        self._list.focus()

    @property
    def _list(self) -> OptionList:
        return self.query_one("#permissions-list", OptionList)

    def show(self, entries: Sequence[PermissionEntry]) -> None:
        """Show another list."""
        self._entries = tuple(entries)
        at = self._list.highlighted or 0
        self._list.clear_options()
        self._list.add_options([Option(_row(entry)) for entry in self._entries])
        if self._entries:
            self._list.highlighted = min(at, len(self._entries) - 1)
        self._note("" if self._entries else f"There are no rules here. {_KEYS}")

    def on_key(self, event: events.Key) -> None:
        entry = self.query_one(Input)
        match event.key:
            case "escape" | "ctrl+c" if entry.display:
                self._close_entry()
            case "escape" | "ctrl+c" | "q" if not entry.display:
                self.dismiss(None)
            case "delete" | "backspace" if not entry.display and self._entries:
                rule = self._entries[self._list.highlighted or 0].rule
                self.post_message(self.Edited("remove", rule))
            case "a" | "s" | "d" if not entry.display:
                self._verb = _VERBS[event.key]
                entry.placeholder = f"{self._verb}: a rule, like edit(docs/**) or bash(make *)"
                entry.value = ""
                entry.display = True
                entry.focus()
            case _:
                return
        event.stop()
        event.prevent_default()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if event.value.strip():
            self.post_message(self.Edited(self._verb, event.value.strip()))
        self._close_entry()

    def _close_entry(self) -> None:
        self.query_one(Input).display = False
        self._list.focus()

    def _note(self, text: str) -> None:
        self.query_one("#permissions-note", Static).update(Content(text or _KEYS))


def _row(entry: PermissionEntry) -> Content:
    return Content.assemble(
        (f"{entry.verdict:6} ", "bold"),
        one_line(visible(entry.rule)),
        (f"  {one_line(entry.origin)}", NOTE),
    )
