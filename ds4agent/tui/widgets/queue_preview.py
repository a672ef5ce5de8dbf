"""Messages typed while the model is busy, dim, above the composer."""

from textual.content import Content
from textual.widgets import Static

from ds4agent.tui.plain import count, one_line

_SHOWN = 3


class QueuePreview(Static):
    """Lists the newest queued messages, one line each; hidden when there are none."""

    def __init__(self) -> None:
        super().__init__(id="queue", markup=False)
        self.texts: tuple[str, ...] = ()
        self.display = False

    def show(self, texts: tuple[str, ...]) -> None:
        """Show these messages, oldest first."""
        self.texts = texts
        self.display = bool(texts)
        lines = [f"queued: {one_line(text)[:200]}" for text in texts[-_SHOWN:]]
        if len(texts) > _SHOWN:
            lines.insert(0, f"{count(len(texts) - _SHOWN, 'earlier message')} queued")
        if lines:
            lines[-1] += "  (Up takes it back)"
        self.update(Content("\n".join(lines)))
