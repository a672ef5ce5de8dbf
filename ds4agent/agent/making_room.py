"""When a conversation gets too long: the warning, and putting a summary in its place."""

import threading
from collections.abc import Callable

from ds4agent.agent.compaction import Compaction, CompactionCancelled
from ds4agent.agent.conversation import Conversation
from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.saver import Saver
from ds4agent.events import Notice, Usage
from engine.state import SessionState

_WARN_AT = 0.8  # share of the context


class RoomMaker:
    """Compacts the open conversation. The worker's thread alone uses it."""

    def __init__(
        self,
        stream: EventStream,
        saver: Saver,
        cancel: threading.Event,
        attempt: Callable[[Callable[[], None]], str],
        *,
        saves: bool,
    ) -> None:
        """Prepare.

        Args:
            stream: where the person is told.
            saver: keeps what was before.
            cancel: set to stop.
            attempt: does something and returns "" or, as one line, why it failed.
            saves: whether conversations are kept on the disk at all.
        """
        self._stream = stream
        self._saver = saver
        self._cancel = cancel
        self._attempt = attempt
        self._saves = saves
        self._has_warned = False

    def another_conversation(self) -> None:
        """Forget that the person was warned about the one before."""
        self._has_warned = False

    def in_turn(
        self, conversation: Conversation, head_state: SessionState | None, *, in_turn: bool
    ) -> bool:
        """Compact because the context is full; what fails is told, and the turn goes on.

        Args:
            conversation: the open one.
            head_state: of the system prompt.
            in_turn: the model's next answer follows at once.

        Returns:
            False when the turn was interrupted.
        """
        self._stream.emit(Notice("The context is nearly full: older messages are summarised"))
        error = self._attempt(lambda: self.compact(conversation, head_state, in_turn=in_turn))
        if error:
            self._stream.emit(Notice(f"Not compacted: {error}", "warning"))
        return not self._cancel.is_set()

    def compact(
        self,
        conversation: Conversation | None,
        head_state: SessionState | None,
        *,
        in_turn: bool = False,
        wish: str = "",
    ) -> None:
        """Replace the beginning of the conversation by a summary.

        Raises:
            Ds4Error: what is there cannot be saved, so it must not be given up.
        """
        if conversation is None or not conversation.has_messages:
            self._stream.emit(Notice("There is nothing to compact yet"))
            return
        self._saver.before_another(conversation)
        is_kept = self._saves and not conversation.is_read_only
        kept_id = conversation.id if is_kept else ""
        compaction = Compaction(conversation, self._stream, self._cancel, head_state)
        try:
            done = compaction.run(in_turn=in_turn, kept_id=kept_id, wish=wish)
        except CompactionCancelled:
            self._stream.emit(
                Notice("Compaction was interrupted; the conversation is as it was", "warning")
            )
            return
        self._has_warned = False
        self._stream.emit(done)

    def warn_when_full(self, usage: Usage) -> None:
        """Say once that a conversation has become long."""
        if not self._has_warned and usage.context_tokens > _WARN_AT * usage.context_size:
            self._has_warned = True
            self._stream.emit(
                Notice(
                    f"{usage.context_tokens} of {usage.context_size} context tokens are used. "
                    "/compact makes room, /new begins a new conversation.",
                    "warning",
                )
            )
