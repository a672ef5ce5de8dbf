"""Where the person types. Always usable: what is sent while the model is busy is queued."""

import contextlib
import threading
from functools import partial

from textual import events
from textual.app import SuspendNotSupported
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.widgets import TextArea

from ds4agent.completion.suggest import Completer, Suggestion, earlier, mention_at
from ds4agent.errors import UsageError, explain
from ds4agent.tui.input_history import LIMIT, InputHistory
from ds4agent.tui.paste import FoldedPastes
from ds4agent.tui.plain import one_line, printable
from ds4agent.tui.widgets.suggestions import Suggestions

_TITLE_CELLS = 48
_NEWLINE_KEYS = ("ctrl+j", "shift+enter", "alt+enter")
_MOVING_KEYS = ("left", "right", "up", "down", "home", "end", "ctrl+left", "ctrl+right")
_WHOLE_MARK = {  # keys that delete, and the side of the cursor on which they do
    "backspace": -1,
    "ctrl+h": -1,
    "ctrl+w": -1,
    "alt+backspace": -1,
    "delete": 1,
    "ctrl+d": 1,
    "ctrl+f": 1,
}


class Composer(TextArea):
    """A text area that sends on Enter, remembers what was sent, and completes."""

    BINDINGS = [
        Binding("ctrl+underscore", "undo", "Undo", show=False),
        Binding("alt+b", "cursor_word_left", "Word left", show=False),
        Binding("alt+f", "cursor_word_right", "Word right", show=False),
    ]

    class Submitted(Message):
        """The person pressed Enter on a non-empty text, which stays until it is taken."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class TakeBackAsked(Message):
        """Up in an empty composer: the newest queued message should come back."""

    class QueueAsked(Message):
        """Alt+Up: the keyboard goes to the list of queued messages."""

    class QuitAsked(Message):
        """Ctrl+D in an empty composer."""

    class PageScrolled(Message):
        """Page Up or Page Down, which belong to the transcript. ``direction`` is -1 or 1."""

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    class EndAsked(Message):
        """End in an empty composer: follow the end of the transcript."""

    class Hint(Message):
        """A few words for the person, shown for a moment."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(
        self, suggestions: Suggestions, completer: Completer, history: InputHistory | None
    ) -> None:
        super().__init__(
            id="composer",
            soft_wrap=True,
            compact=True,
            highlight_cursor_line=False,
            placeholder="Ask for something, @ for files, / for commands, ! for your shell",
        )
        self.cursor_blink = False  # a blinking cursor is a timer that never stops
        self.has_queue = False  # set by the screen: is there a message to take back?
        self._suggestions = suggestions
        self._completer = completer
        self._history = history
        self._pastes = FoldedPastes()
        self._sent: list[str] = []
        self._browsed: int | None = None  # index into _sent while browsing
        self._draft = ""
        self._is_searching = False  # in what was sent, with the text as the words to find
        self._suggested_for = ""

    def on_mount(self) -> None:
        if self._history is not None:
            read = partial(self._read_history, self._history)
            threading.Thread(target=read, name="history", daemon=True).start()

    def show_title(self, title: str) -> None:
        """Show what the conversation is called, in the frame."""
        text = Content(one_line(title))
        self.border_title = text.truncate(_TITLE_CELLS, ellipsis=True) if title.strip() else None

    # --- history ---------------------------------------------------------------------------------

    def _read_history(self, history: InputHistory) -> None:
        texts = [printable(text) for text in history.read()]
        if texts and self.is_running:
            self.app.call_later(self._join_history, texts)

    def _join_history(self, texts: list[str]) -> None:
        self._sent = [*texts, *self._sent][-LIMIT:]
        if self._browsed is not None:
            self._browsed += len(self._sent) - len(self._sent[len(texts) :])

    def remember(self, text: str) -> None:
        """Make a text reachable with Up. It may come from a conversation of somebody else."""
        text = printable(text)
        if text.strip() and (not self._sent or self._sent[-1] != text):
            self._sent.append(text)
            del self._sent[:-LIMIT]
        self._browsed = None

    @property
    def whole_text(self) -> str:
        """The text with what folded pastes stand for."""
        return self._pastes.expand(self.text)

    def take(self) -> str:
        """Remember the text, empty the composer, and return the text."""
        text = self.whole_text
        self.remember(text)
        self.set_text("")
        self._pastes.clear()
        return text

    def set_text(self, text: str) -> None:
        """Replace the text and put the cursor at its end."""
        self.text = printable(text)
        self.move_cursor(self.document.end)

    def _browse(self, step: int) -> bool:
        """Go through sent messages; False when there is nothing in that direction."""
        if self._browsed is None:
            if step > 0 or not self._sent:
                return False
            self._draft = self.text
            self._browsed = len(self._sent)
        target = self._browsed + step
        if target < 0:
            return False
        if target >= len(self._sent):
            self._browsed = None
            self.set_text(self._draft)
        else:
            self._browsed = target
            self.set_text(self._sent[target])
        return True

    # --- keys ------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        if self._takes(event):
            event.stop()
            event.prevent_default()

    def _takes(self, event: events.Key) -> bool:
        """Act on a key that means more here than in any text area."""
        key = event.key
        if self._suggestions.is_open and self.text != self._suggested_for:
            self._suggest()  # keys come faster than word of what they changed
        if self._suggestions.is_open and key in ("tab", "up", "down", "escape"):
            return self._steer_suggestions(key)
        if self._is_searching and key in ("escape", "ctrl+g"):
            self._search(False)
        elif key == "enter":
            self._enter()
        elif key == "ctrl+r":
            if self._is_searching and self._suggestions.is_open:
                self._suggestions.move(1)
            else:
                self._search(True)
        elif key == "ctrl+g":
            self._edit_outside()
        elif key == "alt+up" and self.has_queue:
            self.post_message(self.QueueAsked())
        elif key == "tab":
            self._suggest()  # never leaves the composer
        elif self.has_mark_at_cursor and self._guard_mark(key):
            pass
        elif key in _NEWLINE_KEYS:
            self.insert("\n")
        elif key == "up" and self._is_on_edge(first=True):
            if not self.text and self._browsed is None and self.has_queue:
                self.post_message(self.TakeBackAsked())
                return True
            return self._browse(-1)
        elif key == "down" and self._is_on_edge(first=False):
            return self._browse(1)
        elif key == "ctrl+d" and not self.text:
            self.post_message(self.QuitAsked())
        elif key == "end" and not self.text:
            self.post_message(self.EndAsked())
        else:
            return False
        return True

    def _enter(self) -> None:
        if self._suggestions.is_open and self._takes_suggestion():
            return
        if self._is_searching:  # nothing was found: the words are no message
            self._search(False)
            return
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if before.endswith("\\"):
            self.delete((row, column - 1), (row, column))
            self.insert("\n")
        elif self.text.strip():
            text = self.whole_text
            if self._history is not None and not text.startswith("/"):
                keep = partial(self._keep, self._history, text)
                threading.Thread(target=keep, name="history", daemon=True).start()
            self.post_message(self.Submitted(text))

    def _keep(self, history: InputHistory, text: str) -> None:
        problem = history.add(text)
        if problem:
            self.post_message(self.Hint(problem))

    def _is_on_edge(self, first: bool) -> bool:
        offset = self.wrapped_document.location_to_offset(self.cursor_location)
        return offset.y == (0 if first else self.wrapped_document.height - 1)

    def action_cursor_page_up(self) -> None:
        self.post_message(self.PageScrolled(-1))

    def action_cursor_page_down(self) -> None:
        self.post_message(self.PageScrolled(1))

    # --- suggestions -----------------------------------------------------------------------------

    @property
    def _cursor(self) -> int:
        """Where the cursor is, in characters from the start."""
        return self.document.get_index_from_location(self.cursor_location)

    def on_text_area_changed(self) -> None:
        if self._browsed is not None and self.text != self._sent[self._browsed]:
            self._browsed = None  # edited: it is a new draft now
        self._suggest()

    def _suggest(self) -> None:
        """Show what fits the text and the cursor; nothing while the person browses."""
        self._suggested_for = self.text
        if self._is_searching:
            self._suggestions.show(earlier(self._sent, self.text, self.text))
            return
        if self._browsed is not None:
            self._suggestions.show(())
            return
        text, cursor = self.text, self._cursor
        if mention_at(text, cursor) is not None:
            self._completer.files.refresh(self._files_are_read)
        self._suggestions.show(self._completer.suggest(text, cursor))

    def _files_are_read(self) -> None:
        if self.is_running:
            self.app.call_later(self._suggest_files)

    def _suggest_files(self) -> None:
        if mention_at(self.text, self._cursor) is not None:
            self._suggest()

    def _search(self, is_on: bool) -> None:
        self._is_searching = is_on
        self._suggest()
        if is_on:
            self.post_message(self.Hint("type to search in what was sent"))

    def _steer_suggestions(self, key: str) -> bool:
        match key:
            case "tab":
                self._apply(self._suggestions.chosen)
            case "up" | "down":
                self._suggestions.move(-1 if key == "up" else 1)
            case "escape":
                self._suggestions.close()
                self._is_searching = False
        return True

    def _takes_suggestion(self) -> bool:
        """Enter with the list open: True when it was for the list alone.

        A file or an earlier message is taken. Of commands the one that the person went to, or the
        only one; then the line is sent, unless something still has to be typed.
        """
        chosen = self._suggestions.chosen
        if not self.text.startswith("/") or self._is_searching:
            self._apply(chosen)
            return True
        is_typed = self.text.strip() == chosen.text.strip()
        if is_typed or not (self._suggestions.was_moved or self._suggestions.n_shown == 1):
            return is_typed and not chosen.is_complete
        self._apply(chosen)
        return not chosen.is_complete

    def _apply(self, suggestion: Suggestion) -> None:
        self._is_searching = False
        text, cursor = suggestion.applied(self.text)
        self.text = text
        self.move_cursor(self.document.get_location_from_index(cursor))
        self._suggest()

    def take_suggestion(self) -> None:
        """Take the highlighted suggestion, which was clicked."""
        if self._suggestions.is_open:
            self._apply(self._suggestions.chosen)
        self.focus()

    # --- pastes ----------------------------------------------------------------------------------

    async def _on_paste(self, event: events.Paste) -> None:
        # Newlines of a paste are text: they never send. Control characters never get in.
        event.stop()
        event.prevent_default()
        text = self._pastes.fold(printable(event.text))
        if result := self._replace_via_keyboard(text, *self.selection):
            self.move_cursor(result.end_location)

    def attach(self, text: str) -> None:
        """Put a text at the end, folded when it is large, with the cursor behind it."""
        start = self.document.end
        gap = "\n" if self.text and not self.text.endswith("\n") else ""
        self.insert(f"{gap}{self._pastes.fold(printable(text))}\n", start)
        self.move_cursor(self.document.end)

    @property
    def has_mark_at_cursor(self) -> bool:
        """True when the cursor touches the mark of a folded paste."""
        return self._pastes.mark_at(self.text, self._cursor) is not None

    def unfold(self) -> bool:
        """Put the folded paste at the cursor in place of its mark; False when there is none."""
        found = self._pastes.mark_at(self.text, self._cursor)
        if found is None:
            return False
        start, end = (self.document.get_location_from_index(index) for index in found)
        self.replace(self._pastes.expand(self.text[found[0] : found[1]]), start, end)
        return True

    def _guard_mark(self, key: str) -> bool:
        """Keep a mark whole: one key deletes all of it, and nothing is typed into it."""
        found = self._pastes.mark_at(self.text, self._cursor)
        if found is None or not self.selection.is_empty:
            return False
        start, end = found
        side = _WHOLE_MARK.get(key, 0)
        if (side < 0 and self._cursor > start) or (side > 0 and self._cursor < end):
            locate = self.document.get_location_from_index
            self.delete(locate(start), locate(end))
            return True
        is_inside = start < self._cursor < end
        if is_inside and key not in _MOVING_KEYS and not key.startswith("shift+"):
            self.move_cursor(self.document.get_location_from_index(end))
        return False

    # --- the editor ------------------------------------------------------------------------------

    def _edit_outside(self) -> None:
        from ds4agent.tui.external_editor import edit  # few need it, and the first paint never

        said, text = "no editor works here", None
        with contextlib.suppress(SuspendNotSupported), self.app.suspend():
            try:  # in here: what leaves the block as an exception leaves the screen suspended
                text = edit(self.whole_text)
            except UsageError as refused:
                said = explain(refused)
        self.app.refresh(layout=True)
        if text is None:
            self.post_message(self.Hint(one_line(said)))
        else:
            self.set_text(text)
