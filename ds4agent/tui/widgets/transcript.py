"""The conversation, scrolling. Only its end is mounted; older blocks wait as recipes.

A mounted widget costs time at every layout, so the number of mounted widgets is bounded, however
long the conversation is. A block that leaves the screen keeps only its recipe: a call that makes
the same block again.
"""

from collections.abc import Callable, Iterable
from typing import Protocol, runtime_checkable

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from ds4agent.tui.plain import count

Recipe = Callable[[], Widget]

MOUNTED_LIMIT = 200  # widgets below the transcript, the parts of Markdown blocks included
_ROOM_TO_GROW = 40  # widgets: the newest answer grows after the last trim
PAGE_BLOCKS = 30  # blocks mounted at once from a saved conversation, or by "show earlier"


@runtime_checkable
class Foldable(Protocol):
    """A block with a short and a long form."""

    is_open: bool

    @property
    def can_fold(self) -> bool: ...

    def set_open(self, is_open: bool) -> None: ...


class EarlierLine(Static):
    """Stands for the blocks that are not mounted; a click mounts a page of them."""

    class Clicked(Message):
        pass

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Clicked())


class Transcript(VerticalScroll, can_focus=False):
    """Holds blocks: widgets with a ``recipe()``. Follows its end until the person scrolls up."""

    class Unseen(Message):
        """How many blocks were added below the visible part; 0 when the end is in sight."""

        def __init__(self, n_blocks: int) -> None:
            super().__init__()
            self.n_blocks = n_blocks

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self._older: list[Recipe] = []
        self._body = Vertical(id="blocks")  # as tall as the transcript: short texts begin on top
        self._earlier = EarlierLine(id="earlier", markup=False)
        self._n_unseen = 0
        self._is_reading = False  # the person has scrolled up

    def compose(self) -> ComposeResult:
        yield self._body

    def on_mount(self) -> None:
        self.anchor()

    @property
    def is_following(self) -> bool:
        """True while new text keeps the end in sight; not while the person reads further up."""
        return not self._is_reading

    def release_anchor(self) -> None:
        """Stop following: Textual calls this for every scroll that the person makes."""
        if self.max_scroll_y > 0:  # else everything is in sight, and later text must be as well
            super().release_anchor()
            self._is_reading = True

    @property
    def n_older(self) -> int:
        """Blocks that are not mounted."""
        return len(self._older)

    @property
    def blocks(self) -> list[Widget]:
        """The mounted blocks, oldest first."""
        return [child for child in self._body.children if child is not self._earlier]

    async def add(self, block: Widget) -> None:
        """Append a block; counts it as unseen while the person reads further up."""
        await self._body.mount(block)
        if self._is_reading:
            self._set_unseen(self._n_unseen + 1)
        await self.trim()

    async def clear(self) -> None:
        """Forget everything."""
        self._older.clear()
        await self._body.remove_children()
        self._set_unseen(0)

    async def show_history(self, blocks: Iterable[Recipe]) -> None:
        """Replace the content by a saved conversation and show its end."""
        await self.clear()
        recipes = list(blocks)
        self._older = recipes[:-PAGE_BLOCKS]
        await self._body.mount_all([recipe() for recipe in recipes[-PAGE_BLOCKS:]])
        await self.trim()
        await self._update_earlier()
        self.follow()

    async def show_earlier(self) -> None:
        """Mount a page of older blocks above the visible ones, which stay where they are."""
        if not self._older:
            return
        page = [recipe() for recipe in self._older[-PAGE_BLOCKS:]]
        del self._older[-len(page) :]
        self.release_anchor()
        below = self.virtual_size.height - self.scroll_y
        await self._body.mount_all(page, after=self._earlier)
        await self._update_earlier()
        self.call_after_refresh(
            lambda: self.scroll_to(y=self.virtual_size.height - below, animate=False)
        )

    async def trim(self) -> None:
        """Unmount the oldest blocks beyond the limit, unless the person is reading up there."""
        if not self.is_following:
            return
        sizes = [(block, 1 + len(block.query("*"))) for block in self.blocks]
        excess = sum(size for _, size in sizes) - (MOUNTED_LIMIT - _ROOM_TO_GROW)
        leaving: list[Widget] = []
        for block, size in sizes[:-1]:  # the newest block stays, however large it is
            if excess <= 0:
                break
            leaving.append(block)
            excess -= size
        if not leaving:
            return
        self._older += [block.recipe() for block in leaving]
        await self._body.remove_children(leaving)
        await self._update_earlier()

    def toggle_folds(self) -> None:
        """Open every fold of the newest turn, or close them all when all are open."""
        turn: list[Foldable] = []
        for block in reversed(self.blocks):
            if isinstance(block, Foldable) and block.can_fold:
                turn.append(block)
            if block.has_class("user-message") and turn:
                break
        should_open = any(not block.is_open for block in turn)
        for block in turn:
            block.set_open(should_open)

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._is_reading = False
        self.anchor()
        self._set_unseen(0)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if self._is_reading and new_value >= self.max_scroll_y:
            self._is_reading = False
            self._set_unseen(0)

    async def on_earlier_line_clicked(self) -> None:
        await self.show_earlier()

    async def _update_earlier(self) -> None:
        if not self._older:
            if self._earlier.is_attached:
                await self._earlier.remove()
                self._earlier = EarlierLine(id="earlier", markup=False)
            return
        text = f"▴ show earlier ({count(len(self._older), 'block')}) · Ctrl+Up"
        self._earlier.update(Content(text))
        if not self._earlier.is_attached:
            await self._body.mount(self._earlier, before=0)

    def _set_unseen(self, n_blocks: int) -> None:
        if n_blocks != self._n_unseen:
            self._n_unseen = n_blocks
            self.post_message(self.Unseen(n_blocks))
