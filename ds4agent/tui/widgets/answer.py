"""The model's text as Markdown that grows while it streams."""

from functools import partial

from markdown_it import MarkdownIt
from textual.content import Content
from textual.message import Message
from textual.widgets import Markdown

from ds4agent.tui.plain import printable


def _parser() -> MarkdownIt:
    # Raw HTML off: "vector<int>" is text to read, and Textual would drop it as a tag.
    return MarkdownIt("gfm-like", {"html": False, "linkify": False})


class Answer(Markdown):
    """One piece of the assistant's text between tool calls.

    Text is appended, never set again: only the last block (paragraph, list or fence) is parsed
    anew, so the cost of a piece does not depend on how much stands above it.
    """

    class LinkShown(Message):
        """A link was clicked. Nothing opens by itself; the screen shows where it leads."""

        def __init__(self, href: str) -> None:
            super().__init__()
            self.href = href

    def __init__(self, text: str = "") -> None:
        super().__init__(
            printable(text), classes="block answer", parser_factory=_parser, open_links=False
        )

    async def append_text(self, text: str) -> None:
        """Add a piece of text and wait until it is shown."""
        if self.is_attached:  # it may be gone: the screen closes while text still arrives
            await self.append(printable(text))

    def recipe(self) -> partial["Answer"]:
        return partial(Answer, self.source)

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        event.stop()
        self.post_message(self.LinkShown(event.href))

    def get_content_plain(self) -> str:
        """Return the text of all blocks without styles."""
        parts = [block.render() for block in self.query("MarkdownBlock")]
        return "\n".join(part.plain for part in parts if isinstance(part, Content))
