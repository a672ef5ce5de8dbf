"""One conversation: a live session, and the part of its tokens where a turn may begin.

The tokens that the session has consumed are the conversation. While a turn runs, the session is
ahead of ``transcript``: half a message, an open answer. ``commit`` moves the legal end forward,
``settle`` takes the session back to it. What is saved is always the transcript.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ds4agent.agent.waiting import Waiting
from engine.chat.format import ChatFormat, Item, ToolSpec
from engine.errors import RewindError
from engine.session import Session
from engine.state import SyncReport
from sessions.identity import normalise_title

Progress = Callable[[int, int], None]  # tokens done, tokens in all


class Conversation:
    """The live state and what is known about it."""

    def __init__(
        self,
        session: Session,
        chat: ChatFormat,
        tools: tuple[ToolSpec, ...],
        head: Sequence[int],
        transcript: Sequence[int] | None = None,
    ) -> None:
        """Wrap a session.

        Args:
            session: its tokens must be a prefix of the transcript, or equal to it.
            chat: renders what is added.
            tools: what the system prompt offers.
            head: tokens of the system prompt; nothing has been said while there are no others.
            transcript: the whole conversation; ``head`` when it is a new one.
        """
        self.session = session
        self.chat = chat
        self.tools = tools
        self.head = tuple(head)
        self.transcript = tuple(head if transcript is None else transcript)
        self.id = ""  # of the saved file, "" before the first save
        self.title = ""
        self.created_at = 0  # Unix seconds of the first message
        self.is_read_only = False  # nothing of it is ever written
        self.waiting: Waiting | None = None  # calls at its end that were not run when it was saved
        self.compacted_tokens = 0  # how many there were after the last compaction, 0 without one
        self.saved_tokens: tuple[int, ...] = ()  # the transcript as it is on disk
        self._live = self.transcript  # what the session should hold, the open turn included

    @property
    def n_tokens(self) -> int:
        """Tokens of the conversation, the open turn included."""
        return len(self._live)

    @property
    def n_free(self) -> int:
        """Tokens that still fit into the context."""
        return self.session.ctx - len(self._live)

    @property
    def has_messages(self) -> bool:
        """True when anything was said."""
        return len(self.transcript) > len(self.head)

    @property
    def is_saved(self) -> bool:
        """True when the transcript is on disk, or there is nothing to keep."""
        is_kept = self.has_messages and not self.is_read_only
        return not is_kept or self.saved_tokens == self.transcript

    def render(self, items: Sequence[Item]) -> list[int]:
        """Return the tokens of the next part of the conversation."""
        return self.chat.render(items)

    def feed(
        self,
        tokens: Sequence[int],
        progress: Progress | None = None,
        cancel: threading.Event | None = None,
    ) -> SyncReport:
        """Add rendered tokens to the open turn and compute them.

        A cancelled feed adds nothing: what was computed stays in the session only until the
        next feed, which reuses the part it has in common with it.

        Raises:
            ContextFull: they do not fit; nothing was added.
        """
        wanted = (*self._live, *tokens)
        report = self.session.sync(wanted, progress, cancel)
        if not report.cancelled:
            self._live = wanted
        return report

    def adopt_generated(self) -> None:
        """Take what the session has sampled into the open turn."""
        self._live = tuple(self.session.tokens)

    def commit(self, n_open: int = 0) -> None:
        """Declare the open turn's tokens, but the last ``n_open``, a legal place for a turn."""
        self.transcript = self._live[: len(self._live) - n_open]
        self.waiting = None

    @contextmanager
    def committed_for_now(self) -> Iterator[None]:
        """Within the block the open turn's tokens are the conversation, for a save."""
        transcript, waiting = self.transcript, self.waiting
        self.commit()
        try:
            yield
        finally:
            self.transcript, self.waiting = transcript, waiting

    def restart_at(self, tokens: Sequence[int]) -> None:
        """Take other tokens, which the session holds already, as the whole conversation.

        It is another conversation on disk, too: the file of the one before stays what it is.
        """
        self.transcript = self._live = tuple(tokens)
        self.waiting = None
        self.compacted_tokens = len(tokens)
        self.id = ""
        self.created_at += 1  # title and moment make the id, and this one needs another
        self.saved_tokens = ()

    def go_back_to(self, n_tokens: int) -> None:
        """Take back what came after the first tokens; the session has done so already."""
        self.transcript = self._live = self.transcript[:n_tokens]
        self.waiting = None

    def drop_open_turn(self) -> None:
        """Forget what was added after the last legal place."""
        self._live = self.transcript

    def settle(self) -> None:
        """Make the session hold exactly the transcript, as a save needs it."""
        self._live = self.transcript
        extra = len(self.session.tokens) - len(self.transcript)
        if extra > 0 and tuple(self.session.tokens[: len(self.transcript)]) == self.transcript:
            try:
                self.session.rewind(len(self.transcript))
            except RewindError:
                pass  # the sync below computes it again
        self.session.sync(self.transcript)

    def name_after(self, text: str) -> None:
        """Fix title and time by the first message."""
        if not self.title:
            self.title = normalise_title(text)
            self.created_at = int(time.time())
