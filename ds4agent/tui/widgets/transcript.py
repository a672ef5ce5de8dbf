"""The conversation, scrolling. Only a window of it is mounted; all other blocks wait as recipes.

A mounted widget costs time at every layout, so the number of mounted widgets is bounded, however
long the conversation is and wherever the person reads. A block that leaves the window keeps only
its recipe: a call that makes the same block again.

From top to bottom: older recipes, the window, newer recipes, the tail. There are newer recipes
only while the person reads far up; the tail then holds the blocks that still grow.
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

MOUNTED_LIMIT = 60  # blocks, wherever the person reads
PAGE_BLOCKS = 12  # mounted at once
_FOLLOWED = 16  # blocks that stay mounted above the end, if they fill the screen
_TAIL = 2  # the newest blocks always stay mounted: they may still grow


@runtime_checkable
class Foldable(Protocol):
    """A block with a short and a long form."""

    is_open: bool

    @property
    def can_fold(self) -> bool: ...

    def set_open(self, is_open: bool) -> None: ...


class GapLine(Static):
    """Stands for blocks that are not mounted; a click mounts a page of them."""

    class Clicked(Message):
        def __init__(self, line: "GapLine") -> None:
            super().__init__()
            self.line = line

    def say(self, text: str) -> None:
        """Show a text; an empty one hides the line."""
        self.display = bool(text)
        self.update(Content(text))

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Clicked(self))


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
        self._window: list[Widget] = []
        self._newer: list[Recipe] = []
        self._tail: list[Widget] = []
        self._body = Vertical(id="blocks")  # as tall as the transcript: short texts begin on top
        self._earlier = GapLine(id="earlier", classes="gap", markup=False)
        self._later = GapLine(id="later", classes="gap", markup=False)
        self._earlier.display = self._later.display = False
        self._n_unseen = 0
        self._is_reading = False  # the person has scrolled up
        self._is_paging = False  # a page was mounted and is not laid out yet

    def compose(self) -> ComposeResult:
        with self._body:
            yield self._earlier
            yield self._later

    def on_mount(self) -> None:
        self.anchor()

    @property
    def is_following(self) -> bool:
        """True while new text keeps the end in sight; not while the person reads further up."""
        return not self._is_reading

    @property
    def n_older(self) -> int:
        """Blocks above that are not mounted."""
        return len(self._older)

    @property
    def n_newer(self) -> int:
        """Blocks below that are not mounted."""
        return len(self._newer)

    @property
    def blocks(self) -> list[Widget]:
        """The mounted blocks, oldest first."""
        return [*self._window, *self._tail]

    # --- content ---------------------------------------------------------------------------------

    async def add(self, block: Widget) -> None:
        """Append a block; counts it as unseen while the person reads further up."""
        (self._tail if self._newer else self._window).append(block)
        await self._body.mount(block)
        if self._is_reading:
            self._set_unseen(self._n_unseen + 1)
        await self.trim()

    async def clear(self) -> None:
        """Forget everything."""
        leaving = self.blocks
        for part in (self._older, self._window, self._newer, self._tail):
            part.clear()
        await self._body.remove_children(leaving)
        self._show_gaps()
        self._set_unseen(0)

    async def show_history(self, blocks: Iterable[Recipe]) -> None:
        """Replace the content by a saved conversation and show its end."""
        await self.clear()
        self._older = list(blocks)
        await self._mount_older(PAGE_BLOCKS)
        self.follow()

    # --- the window ------------------------------------------------------------------------------

    async def show_earlier(self) -> None:
        """Mount a page of older blocks above the visible ones, which stay where they are."""
        if not self._older or self._is_paging:
            return
        self.release_anchor()
        self._keep_in_place()
        leaving = self._take_below()
        await self._mount_older(PAGE_BLOCKS)
        await self._body.remove_children(leaving)
        self._show_gaps()

    async def show_later(self) -> None:
        """Mount a page of newer blocks below the visible ones, which stay where they are."""
        if not self._newer or self._is_paging:
            return
        self._keep_in_place()
        leaving = self._take_above()
        page = [recipe() for recipe in self._newer[:PAGE_BLOCKS]]
        del self._newer[: len(page)]
        self._window += page
        await self._body.mount_all(page, before=self._later)
        self._close_gap_if_empty()
        await self._body.remove_children(leaving)
        self._show_gaps()

    async def trim(self) -> None:
        """Unmount what nobody sees while the end is followed or blocks arrive below a reader."""
        if not self._is_reading and not self._newer:
            leaving = self._take_old()
            if leaving:
                await self._body.remove_children(leaving)
                self._show_gaps()
            elif self._older and self._rows_mounted() < self.size.height:
                await self._mount_older(PAGE_BLOCKS)
        elif len(self._tail) > PAGE_BLOCKS:
            leaving = self._tail[:-_TAIL]
            self._tail = self._tail[-_TAIL:]
            self._newer += [block.recipe() for block in leaving]
            await self._body.remove_children(leaving)
            self._show_gaps()
        elif self._is_reading and len(self._window) > MOUNTED_LIMIT + PAGE_BLOCKS:
            await self._body.remove_children(self._take_below())
            self._show_gaps()

    async def _mount_older(self, n_blocks: int) -> None:
        page = [recipe() for recipe in self._older[-n_blocks:]]
        if page:
            del self._older[-len(page) :]
            self._window[:0] = page
            await self._body.mount_all(page, after=self._earlier)
        self._show_gaps()

    def _take_old(self) -> list[Widget]:
        """Take from the top what is more than two screens above the end."""
        kept, rows = 0, 0
        for block in reversed(self._window):
            if kept >= _FOLLOWED and rows >= 2 * self.size.height:
                break
            kept += 1
            rows += _height(block)
        n_leaving = len(self._window) - max(kept, _TAIL)
        if n_leaving < PAGE_BLOCKS // 2:  # a few at a time would move the layout at every block
            return []
        leaving, self._window = self._window[:n_leaving], self._window[n_leaving:]
        self._older += [block.recipe() for block in leaving]
        return leaving

    def _take_below(self) -> list[Widget]:
        """Make room while the person reads up: take from the bottom of the window."""
        n_excess = len(self._window) + PAGE_BLOCKS - MOUNTED_LIMIT
        if n_excess <= 0:
            return []
        if not self._newer:  # a gap opens: the newest blocks stay below it
            self._tail = self._window[-_TAIL:]
            del self._window[-_TAIL:]
            self._body.move_child(self._later, before=self._tail[0])
        limit = self.scroll_y + 3 * self.size.height
        leaving: list[Widget] = []
        while len(leaving) < n_excess and len(self._window) > PAGE_BLOCKS:
            if self._window[-1].virtual_region.y < limit:
                break
            leaving.insert(0, self._window.pop())
        self._newer[:0] = [block.recipe() for block in leaving]
        self._close_gap_if_empty()
        return leaving

    def _take_above(self) -> list[Widget]:
        """Make room while the person reads down: take from the top of the window."""
        n_excess = len(self._window) + PAGE_BLOCKS - MOUNTED_LIMIT
        limit = self.scroll_y - 2 * self.size.height
        leaving: list[Widget] = []
        while len(leaving) < n_excess and self._window[0].virtual_region.bottom < limit:
            leaving.append(self._window.pop(0))
        self._older += [block.recipe() for block in leaving]
        return leaving

    def _close_gap_if_empty(self) -> None:
        if not self._newer:
            self._window += self._tail
            self._tail = []

    async def _leave_gap(self) -> None:
        """Go from far up to the end: what was read becomes older, the newest page is mounted."""
        if not self._newer:
            return
        leaving = self._window
        self._older += [block.recipe() for block in leaving] + self._newer
        self._newer = []
        self._window, self._tail = self._tail, []
        await self._body.remove_children(leaving)
        await self._mount_older(PAGE_BLOCKS)

    def _keep_in_place(self) -> None:
        """Scroll by as much as the next layout moves what is in sight."""
        seen = next((b for b in self.blocks if b.virtual_region.bottom > self.scroll_y), None)
        if seen is None:
            return
        before = seen.virtual_region.y
        self._is_paging = True

        def scroll(tries: int = 3) -> None:
            moved = seen.virtual_region.y - before
            if not moved and tries:  # not laid out yet
                self.call_after_refresh(scroll, tries - 1)
                return
            if self._is_reading and seen.is_attached:
                self.scroll_to(y=self.scroll_y + moved, animate=False, force=True)
            self._is_paging = False
            self._page_if_near()

        self.call_after_refresh(scroll)

    def _rows_mounted(self) -> int:
        return sum(_height(block) for block in self.blocks)

    def _show_gaps(self) -> None:
        n_older, n_newer = len(self._older), len(self._newer)
        earlier = f"▴ {count(n_older, 'earlier block')} · scroll up or Ctrl+Up"
        self._earlier.say(earlier if n_older else "")
        self._later.say(f"▾ {count(n_newer, 'later block')}" if n_newer else "")

    # --- scrolling -------------------------------------------------------------------------------

    def release_anchor(self) -> None:
        """Stop following: Textual calls this for every scroll that the person makes."""
        if self.max_scroll_y > 0:  # else everything is in sight, and later text must be as well
            super().release_anchor()
            self._is_reading = True

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._is_reading = False
        if self._newer:
            self.call_later(self._leave_gap)
        self.anchor()
        self._set_unseen(0)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        if not self._is_reading:
            return
        if new_value >= self.max_scroll_y and not self._newer:
            self._is_reading = False
            self._set_unseen(0)
        else:
            self._page_if_near()

    def _page_if_near(self) -> None:
        """Mount more before the person gets to a gap."""
        if not self._is_reading or self._is_paging:
            return
        height = self.size.height
        if self._older and self.scroll_y < height:
            self.call_later(self.show_earlier)
        elif self._newer and self._later.virtual_region.y < self.scroll_y + 2 * height:
            self.call_later(self.show_later)

    async def on_resize(self) -> None:
        await self.trim()

    async def on_gap_line_clicked(self, event: GapLine.Clicked) -> None:
        event.stop()
        await (self.show_earlier() if event.line is self._earlier else self.show_later())

    # --- folds and news --------------------------------------------------------------------------

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

    def _set_unseen(self, n_blocks: int) -> None:
        if n_blocks != self._n_unseen:
            self._n_unseen = n_blocks
            self.post_message(self.Unseen(n_blocks))


def _height(block: Widget) -> int:
    """Rows of a block with its margin; 0 before its first layout."""
    height = block.outer_size.height
    return height + block.styles.margin.height if height else 0
