"""What the model thinks before it answers: dim, live, and one line once it is over."""

from functools import partial

from textual import events
from textual.content import Content
from textual.widgets import Static

from ds4agent.tui.plain import count, printable

LIVE_LINES = 4
_LIVE_CHARS = 600  # at most this much of the end is drawn while thinking streams: flat cost


class ThinkingBlock(Static):
    """Shows the end of the running thought; folds to its length when it is done."""

    def __init__(self, text: str = "", is_done: bool = False) -> None:
        self.is_open = False
        self.is_done = is_done
        self._pieces = [printable(text)]
        self._tail = ""
        super().__init__(self._drawn(), classes="block thinking", markup=False)

    @property
    def can_fold(self) -> bool:
        return self.is_done

    @property
    def source(self) -> str:
        return "".join(self._pieces)

    def append_text(self, text: str) -> None:
        """Add a piece of the running thought."""
        piece = printable(text)
        self._pieces.append(piece)
        self._tail = (self._tail + piece)[-_LIVE_CHARS:]
        self.update(self._drawn())

    def finish(self) -> None:
        """Fold: the thought is over."""
        if not self.is_done:
            self.is_done = True
            self.update(self._drawn())

    def set_open(self, is_open: bool) -> None:
        """Show the whole thought, or only its length."""
        self.is_open = is_open
        self.update(self._drawn())

    def recipe(self) -> partial["ThinkingBlock"]:
        return partial(ThinkingBlock, self.source, self.is_done)

    def on_click(self, event: events.Click) -> None:
        if self.can_fold and not self.screen.get_selected_text():
            event.stop()
            self.set_open(not self.is_open)

    def _drawn(self) -> Content:
        if not self.is_done:
            lines = self._tail.strip().split("\n")[-LIVE_LINES:]
            return Content("\n".join(["thinking …", *lines]).rstrip())
        length = count(len(self.source.split()), "word")
        if self.is_open:
            return Content(f"▾ thought, {length}\n{self.source.strip()}")
        return Content(f"▸ thought, {length}")
