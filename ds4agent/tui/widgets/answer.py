"""The model's text as Markdown that grows while it streams."""

import re
from functools import partial

from markdown_it import MarkdownIt
from textual.content import Content
from textual.message import Message
from textual.widgets import Markdown

from ds4agent.tui.plain import printable


def _parser() -> MarkdownIt:
    # Raw HTML off: "vector<int>" is text to read, and Textual would drop it as a tag.
    return MarkdownIt("gfm-like", {"html": False, "linkify": False})


FULL_BLOCKS = 24  # an answer this long goes on in a new widget, so that a layout stays cheap
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)


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

    async def append_text(self, text: str) -> str:
        """Add a piece of text and wait until it is shown.

        Returns:
            What belongs into the next answer, "" while this one still has room. The cut is
            between two paragraphs and never inside a fence.
        """
        head, gap, rest = text.rpartition("\n\n")
        if gap and len(self.children) >= FULL_BLOCKS:
            await self._grow(head + gap)
            if len(_FENCE.findall(self.source)) % 2 == 0:
                return rest or "\n"
            text = rest
        await self._grow(text)
        return ""

    async def _grow(self, text: str) -> None:
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
