"""A line for the person that is no part of the conversation."""

from functools import partial

from textual.content import Content
from textual.widgets import Static

from ds4agent.tui.plain import printable

_MARKS = {"info": "", "warning": "! ", "error": "✗ "}


class NoticeLine(Static):
    """Dim for information; marked with a character as well as a colour for the rest."""

    def __init__(self, text: str, level: str = "info") -> None:
        level = level if level in _MARKS else "info"
        content = Content(_MARKS[level] + printable(text).rstrip())
        super().__init__(content, classes=f"block notice -{level}", markup=False)
        self.source = text
        self.level = level

    def recipe(self) -> partial["NoticeLine"]:
        return partial(NoticeLine, self.source, self.level)
