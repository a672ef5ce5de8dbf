"""Where the person types. Always usable: what is sent while the model is busy is queued."""

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from ds4agent.tui.plain import printable
from ds4agent.tui.widgets.suggestions import Suggestions

HISTORY_LIMIT = 500
_NEWLINE_KEYS = ("ctrl+j", "shift+enter", "alt+enter")


class Composer(TextArea):
    """A text area that sends on Enter, remembers what was sent, and completes commands."""

    class Submitted(Message):
        """The person pressed Enter on a non-empty text, which stays until it is taken."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class TakeBackAsked(Message):
        """Up in an empty composer: the newest queued message should come back."""

    class QuitAsked(Message):
        """Ctrl+D in an empty composer."""

    class PageScrolled(Message):
        """Page Up or Page Down, which belong to the transcript. ``direction`` is -1 or 1."""

        def __init__(self, direction: int) -> None:
            super().__init__()
            self.direction = direction

    class EndAsked(Message):
        """End in an empty composer: follow the end of the transcript."""

    def __init__(self, suggestions: Suggestions) -> None:
        super().__init__(
            id="composer",
            soft_wrap=True,
            compact=True,
            highlight_cursor_line=False,
            placeholder="Ask for something, or / for commands",
        )
        self.cursor_blink = False  # a blinking cursor is a timer that never stops
        self.has_queue = False  # set by the screen: is there a message to take back?
        self._suggestions = suggestions
        self._sent: list[str] = []
        self._browsed: int | None = None  # index into _sent while browsing
        self._draft = ""

    # --- history ---------------------------------------------------------------------------------

    def remember(self, text: str) -> None:
        """Make a text reachable with Up."""
        if text.strip() and (not self._sent or self._sent[-1] != text):
            self._sent.append(text)
            del self._sent[:-HISTORY_LIMIT]
        self._browsed = None

    def take(self) -> str:
        """Remember the text, empty the composer, and return the text."""
        text = self.text
        self.remember(text)
        self.set_text("")
        return text

    def set_text(self, text: str) -> None:
        """Replace the text and put the cursor at its end."""
        self.text = text
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
        if self._suggestions.is_open and key in ("tab", "up", "down", "escape"):
            return self._steer_suggestions(key)
        if key == "enter":
            self._enter()
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
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        if before.endswith("\\"):
            self.delete((row, column - 1), (row, column))
            self.insert("\n")
        elif self.text.strip():
            self.post_message(self.Submitted(self.text))

    def _steer_suggestions(self, key: str) -> bool:
        match key:
            case "tab":
                self.set_text(self._suggestions.completion())
            case "up" | "down":
                self._suggestions.move(-1 if key == "up" else 1)
            case "escape":
                self._suggestions.close()
        return True

    def _is_on_edge(self, first: bool) -> bool:
        offset = self.wrapped_document.location_to_offset(self.cursor_location)
        return offset.y == (0 if first else self.wrapped_document.height - 1)

    def action_cursor_page_up(self) -> None:
        self.post_message(self.PageScrolled(-1))

    def action_cursor_page_down(self) -> None:
        self.post_message(self.PageScrolled(1))

    async def _on_paste(self, event: events.Paste) -> None:
        # Newlines of a paste are text: they never send. Control characters never get in.
        event.stop()
        event.prevent_default()
        if result := self._replace_via_keyboard(printable(event.text), *self.selection):
            self.move_cursor(result.end_location)

    def on_text_area_changed(self) -> None:
        if self._browsed is not None and self.text != self._sent[self._browsed]:
            self._browsed = None  # edited: it is a new draft now
        self._suggestions.show_for(self.text)
