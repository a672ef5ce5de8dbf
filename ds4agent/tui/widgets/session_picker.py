"""The list of saved conversations, with the end of one below; Enter opens it, Esc closes."""

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from rich.cells import cell_len, set_cell_size
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.screen import ModalScreen
from textual.timer import Timer
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from ds4agent.events import SessionSummary
from ds4agent.tui.plain import age, one_line, printable, short_count
from ds4agent.tui.theme import NOTE

_TITLE_CELLS = 34
_FOLDER_CELLS = 24
_NUMBER_CELLS = 32  # age, tokens, size, and the gaps


_SEARCH_FROM = 3  # characters
_SEARCH_AFTER_S = 0.4  # reading all texts is for words that stand for a moment
_PREVIEW_AFTER_S = 0.15  # a person who runs through the list wants no preview of each


class SessionPicker(ModalScreen[str | None]):
    """Returns the id of the chosen conversation, or None."""

    class PreviewWanted(Message):
        """The end of this conversation should be shown."""

        def __init__(self, session_id: str) -> None:
            super().__init__()
            self.session_id = session_id

    class SearchWanted(Message):
        """Conversations with these words in their text should be shown as well."""

        def __init__(self, words: str) -> None:
            super().__init__()
            self.words = words

    def __init__(self, sessions: Sequence[SessionSummary], current_id: str = "") -> None:
        super().__init__()
        self._sessions = tuple(sessions)
        self._current_id = current_id
        self._shown: list[SessionSummary] = []
        self._previews: dict[str, str] = {}
        self._timer: Timer | None = None
        self._search_timer: Timer | None = None
        self._found: tuple[str, frozenset[str]] = ("", frozenset())  # words, ids

    def compose(self) -> ComposeResult:
        with Vertical(id="picker"):
            yield Static("Saved conversations", id="picker-title", markup=False)
            yield Input(id="picker-filter", placeholder="Type to search: title, folder, id, text")
            yield OptionList(id="picker-list", markup=False)
            yield Static("", id="picker-preview", markup=False)
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

    def on_resize(self) -> None:
        self.call_after_refresh(self._refill)

    def _refill(self) -> None:
        """Write the rows again, for another width."""
        now = time.time()
        for number, session in enumerate(self._shown):
            self._list.replace_option_prompt_at_index(number, self._row(session, now))

    def on_input_changed(self, event: Input.Changed) -> None:
        self._filter(event.value)
        if self._search_timer is not None:
            self._search_timer.stop()
        if len(event.value.strip()) >= _SEARCH_FROM:
            ask = partial(self._ask_for_search, event.value)
            self._search_timer = self.set_timer(_SEARCH_AFTER_S, ask)

    def _ask_for_search(self, words: str) -> None:
        self.post_message(self.SearchWanted(words))

    def show_found(self, words: str, ids: Sequence[str]) -> None:
        """Show what a search found, if its words are still those to look for."""
        if words == self.query_one("#picker-filter", Input).value:
            self._found = (words, frozenset(ids))
            self._filter(words)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._choose(self._list.highlighted)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self._choose(event.option_index)

    # --- the preview -----------------------------------------------------------------------------

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        if self._timer is not None:
            self._timer.stop()
        session = self._shown[event.option_index] if self._shown else None
        if session is None:
            self._draw_preview("")
        elif session.id in self._previews:
            self._draw_preview(self._previews[session.id])
        else:
            self._draw_preview("")
            ask = partial(self._ask_for_preview, session.id)
            self._timer = self.set_timer(_PREVIEW_AFTER_S, ask)

    def _ask_for_preview(self, session_id: str) -> None:
        self.post_message(self.PreviewWanted(session_id))

    def show_preview(self, session_id: str, text: str) -> None:
        """Show the end of a conversation, if it is still the one that is looked at."""
        self._previews[session_id] = text
        at = self._list.highlighted
        if at is not None and at < len(self._shown) and self._shown[at].id == session_id:
            self._draw_preview(text)

    def _draw_preview(self, text: str) -> None:
        preview = self.query_one("#picker-preview", Static)
        rows = max(1, preview.size.height or 4)
        width = max(20, preview.size.width)
        lines = [
            line
            for part in printable(text).split("\n")
            if part.strip()
            for line in Content(part).wrap(width)
        ]
        preview.update(Content("\n").join(lines[-rows:]))

    # --- keys ------------------------------------------------------------------------------------

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
            if (self._found[0] == words and session.id in self._found[1])
            or all(
                word in f"{session.title} {session.cwd} {session.id}".casefold() for word in wanted
            )
        ]
        self._list.clear_options()
        now = time.time()
        self._list.add_options([Option(self._row(session, now)) for session in self._shown])
        if self._shown:
            self._list.highlighted = 0
        else:
            self._draw_preview("")
        note = "Enter opens · Esc closes" if self._shown else "Nothing saved that matches"
        self.query_one("#picker-note", Static).update(Content(note))

    def _row(self, session: SessionSummary, now: float) -> Content:
        room = self._list.size.width or self.app.size.width - 8
        title_cells = max(12, min(_TITLE_CELLS, room - _NUMBER_CELLS - _FOLDER_CELLS))
        title = set_cell_size(one_line(session.title) or "(no title)", title_cells)
        mark = "• " if session.id == self._current_id else "  "
        size = f"{session.file_bytes / 1e6:,.1f} MB"
        numbers = (
            f" {age(now - session.last_used):>4} {short_count(session.tokens):>6} tok {size:>10}"
        )
        style = "" if session.resumable else NOTE
        other = "" if session.resumable else f"  (model {one_line(session.model)})"
        row = Content.assemble(
            mark,
            (title, style),
            (numbers, NOTE),
            (f"  {_short_folder(session.cwd)}{other}", NOTE),
        )
        return row.truncate(room - 1, ellipsis=True)  # one line each

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
