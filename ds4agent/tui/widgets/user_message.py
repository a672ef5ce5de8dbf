"""A message of the person, as it was delivered."""

from functools import partial

from textual import events
from textual.content import Content
from textual.widgets import Static

from ds4agent.tui.plain import count, printable

FOLD_LINES = 20  # a longer paste folds, so that the answer stays on the screen


class UserMessage(Static):
    """The text with a bar at its left; a long one is folded until it is opened."""

    def __init__(self, text: str) -> None:
        self.source = text
        self.is_open = False
        self._lines = printable(text).strip("\n").split("\n")
        super().__init__(self._drawn(), classes="block user-message", markup=False)

    @property
    def can_fold(self) -> bool:
        return len(self._lines) > FOLD_LINES

    def set_open(self, is_open: bool) -> None:
        """Show the whole message, or its first lines."""
        self.is_open = is_open
        self.update(self._drawn())

    def recipe(self) -> partial["UserMessage"]:
        return partial(UserMessage, self.source)

    def on_click(self, event: events.Click) -> None:
        if self.can_fold and not self.screen.get_selected_text():
            event.stop()
            self.set_open(not self.is_open)

    def _drawn(self) -> Content:
        if not self.can_fold or self.is_open:
            return Content("\n".join(self._lines))
        hidden = len(self._lines) - FOLD_LINES
        return Content.assemble(
            "\n".join(self._lines[:FOLD_LINES]),
            (f"\n▸ {count(hidden, 'more line')}", "dim"),
        )
