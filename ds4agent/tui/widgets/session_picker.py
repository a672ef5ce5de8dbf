"""The list of saved conversations; Enter opens one, Esc closes."""

import time
from collections.abc import Sequence
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ds4agent.events import SessionSummary
from ds4agent.tui.plain import age, one_line, short_count

_TITLE_CELLS = 34
_FOLDER_CELLS = 24


class SessionPicker(ModalScreen[str | None]):
    """Returns the id of the chosen conversation, or None."""

    def __init__(self, sessions: Sequence[SessionSummary], current_id: str = "") -> None:
        super().__init__()
        self._sessions = tuple(sessions)
        self._current_id = current_id
        self._shown: list[SessionSummary] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="picker"):
            yield Static("Saved conversations", id="picker-title", markup=False)
            yield Input(id="picker-filter", placeholder="Type to filter by title, folder or id")
            yield OptionList(id="picker-list", markup=False)
            yield Static("", id="picker-note", markup=False)

    def on_mount(self) -> None:
        self._list.can_focus = False
        self._filter("")
        entry = self.query_one("#picker-filter", Input)
        entry.cursor_blink = False  # a blinking cursor is a timer that never stops
        entry.focus()

    @property
    def _list(self) -> OptionList:
        return self.query_one("#picker-list", OptionList)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._choose(self._list.highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._choose(event.option_index)

    def on_key(self, event: events.Key) -> None:
        moves = {
            "up": self._list.action_cursor_up,
            "down": self._list.action_cursor_down,
            "pageup": self._list.action_page_up,
            "pagedown": self._list.action_page_down,
        }
        if event.key in moves:
            moves[event.key]()
        elif event.key in ("escape", "ctrl+c"):
            self.dismiss(None)
        else:
            return
        event.stop()
        event.prevent_default()

    def _filter(self, words: str) -> None:
        wanted = words.casefold().split()
        self._shown = [
            session
            for session in self._sessions
            if all(
                word in f"{session.title} {session.cwd} {session.id}".casefold() for word in wanted
            )
        ]
        self._list.clear_options()
        now = time.time()
        self._list.add_options([Option(self._row(session, now)) for session in self._shown])
        if self._shown:
            self._list.highlighted = 0
        note = "Enter opens · Esc closes" if self._shown else "Nothing saved that matches"
        self.query_one("#picker-note", Static).update(Content(note))

    def _row(self, session: SessionSummary, now: float) -> Content:
        title = set_cell_size(one_line(session.title) or "(no title)", _TITLE_CELLS)
        mark = "• " if session.id == self._current_id else "  "
        size = f"{session.file_bytes / 1e6:,.1f} MB"
        numbers = (
            f" {age(now - session.last_used):>4} {short_count(session.tokens):>6} tok {size:>10}"
        )
        style = "" if session.resumable else "dim"
        other = "" if session.resumable else f"  (model {one_line(session.model)})"
        return Content.assemble(
            mark,
            (title, style),
            (numbers, "dim"),
            (f"  {_short_folder(session.cwd)}{other}", "dim"),
        )

    def _choose(self, index: int | None) -> None:
        if index is None or not self._shown:
            return
        session = self._shown[index]
        if not session.resumable:
            note = f"This one was made with the model {one_line(session.model) or '(unknown)'}"
            self.query_one("#picker-note", Static).update(Content(note))
            return
        self.dismiss(session.id)


def _short_folder(folder: str) -> str:
    """Return a folder with ~ for the home, cut at its left to fit a row."""
    home = str(Path.home())
    shown = one_line(folder)
    if shown == home or shown.startswith(home + "/"):
        shown = "~" + shown[len(home) :]
    while cell_len(shown) > _FOLDER_CELLS:
        shown = "…" + shown[2:]
    return shown
