"""The sampled tool calls by id, for the threads that read requests and the one that answers."""

import threading
from collections.abc import Iterable, Sequence

from engine.chat.conversation import Conversation
from engine.chat.replay import CallReplay


class SharedReplay(CallReplay):
    """A ``CallReplay`` that several threads may use."""

    def __init__(self, max_ids: int) -> None:
        super().__init__(max_ids)
        self._guard = threading.RLock()

    def remember(self, call_ids: Iterable[str], block: bytes) -> None:
        """See ``CallReplay``."""
        with self._guard:
            super().remember(call_ids, block)

    def block(self, call_ids: Sequence[str]) -> bytes | None:
        """See ``CallReplay``."""
        with self._guard:
            return super().block(call_ids)

    def restore(self, conversation: Conversation) -> Conversation:
        """See ``CallReplay``."""
        with self._guard:
            return super().restore(conversation)

    def entries(self, text: bytes) -> list[tuple[str, bytes]]:
        """See ``CallReplay``."""
        with self._guard:
            return super().entries(text)
