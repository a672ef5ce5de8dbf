"""Messages typed while the model is busy, dim, above the composer. Any of them can be edited."""

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from ds4agent.tui.plain import count, one_line

_SHOWN = 3


class QueuePreview(Static, can_focus=True):
    """Lists the newest queued messages, one line each; hidden when there are none.

    With the keyboard (Alt+Up from the composer) or a click one of them is chosen: Enter brings it
    back into the composer, Delete drops it.
    """

    class Wanted(Message):
        """A message should leave the queue: to be edited, or for good."""

        def __init__(self, text: str, is_dropped: bool) -> None:
            super().__init__()
            self.text, self.is_dropped = text, is_dropped

    class Left(Message):
        """The keyboard goes back to the composer."""

    def __init__(self) -> None:
        super().__init__(id="queue", markup=False)
        self.texts: tuple[str, ...] = ()
        self.display = False
        self._chosen = -1  # index into ``texts`` while it has the keyboard

    def show(self, texts: tuple[str, ...]) -> None:
        """Show these messages, oldest first."""
        self.texts = texts
        self.display = bool(texts)
        self._chosen = min(self._chosen, len(texts) - 1)
        if not texts and self.has_focus:
            self.post_message(self.Left())
        self._draw()

    def _draw(self) -> None:
        first = self._first
        lines: list[Content] = []
        if first:
            lines.append(Content(f"{count(first, 'earlier message')} queued"))
        room = max(20, self.app.size.width - 30) if self.is_attached else 200
        for number, text in enumerate(self.texts[first : first + _SHOWN], start=first):
            line = Content(f"queued: {one_line(text)[:200]}")
            if number == self._chosen and self.has_focus:
                line = line.truncate(room, ellipsis=True).stylize("reverse")
            lines.append(line)
        if lines:
            keys = "  (Enter edits, Del drops)" if self.has_focus else "  (Up takes it back)"
            lines[-1] = lines[-1].truncate(room, ellipsis=True) + Content(keys)
        self.update(Content("\n").join(lines))

    @property
    def _first(self) -> int:
        """The first message that is shown: the chosen one is among them."""
        newest = max(0, len(self.texts) - _SHOWN)
        return min(newest, self._chosen) if self.has_focus and self._chosen >= 0 else newest

    # --- keys and clicks -------------------------------------------------------------------------

    def on_focus(self) -> None:
        self._chosen = len(self.texts) - 1
        self._draw()

    def on_blur(self) -> None:
        self._chosen = -1
        self._draw()

    def on_key(self, event: events.Key) -> None:
        match event.key:
            case "up" | "alt+up":
                self._chosen = max(0, self._chosen - 1)
            case "down" | "alt+down":
                if self._chosen + 1 >= len(self.texts):
                    self.post_message(self.Left())
                self._chosen = min(len(self.texts) - 1, self._chosen + 1)
            case "enter" | "delete" | "backspace":
                self._want(self._chosen, is_dropped=event.key != "enter")
            case "escape" | "tab":
                self.post_message(self.Left())
            case _:
                return
        event.stop()
        event.prevent_default()
        self._draw()

    def on_click(self, event: events.Click) -> None:
        event.stop()
        first = self._first
        self._want(first + event.y - (1 if first else 0), is_dropped=False)

    def _want(self, index: int, is_dropped: bool) -> None:
        if 0 <= index < len(self.texts):
            self.post_message(self.Wanted(self.texts[index], is_dropped))
