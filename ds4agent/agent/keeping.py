"""The open conversation on disk: its id, its lock, appends and whole saves.

A conversation is saved as a whole once, at its first result or the end of its first turn. From
then on each turn appends what is new to a journal. ``fold`` takes the journal up.
"""

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ds4agent.agent.conversation import Conversation
from ds4agent.events import Saved
from engine.engine import Engine
from engine.state import SessionState
from sessions import folder, session_file
from sessions.errors import CheckpointError
from sessions.identity import normalise_title, session_id
from sessions.journal import tokens_sha256
from sessions.keeper import Keeper
from sessions.locks import SessionLock
from sessions.record import SessionMeta, SessionRecord
from sessions.session_file import Restored
from sessions.store import SessionStore
from sessions.streams import Progress

_log = logging.getLogger(__name__)

_LOCK_ATTEMPTS = 5  # other programs that began with the same words in the same seconds
# Idle time writes the whole conversation again when its journal has grown to this share of it:
# so each byte of a conversation is written some five times in all, however long it gets.
_FOLD_SHARE = 0.25
# Where no idle time comes, as in a script: a journal of this many times its checkpoint, and some
# more for short ones, is taken up at the end of a turn.
_MOST_SHARE = 2.0
_MOST_BYTES = 64 << 20


class Keeping:
    """Keeps one conversation at a time. The worker's thread alone uses it."""

    def __init__(self, engine: Engine, store: SessionStore, cwd: str) -> None:
        self._engine = engine
        self._store = store
        self._meta = SessionMeta(cwd=cwd, model=engine.info.name)
        self._lock: SessionLock | None = None
        self._lock_id = ""
        self._keeper: Keeper | None = None

    @property
    def past_events(self) -> Sequence[dict[str, Any]]:
        """What was noted of the open conversation, oldest first; see ``past_events``."""
        return self._keeper.events if self._keeper is not None else ()

    @property
    def has_journal(self) -> bool:
        """Whether there is anything that the checkpoint doesn't have."""
        return self._keeper is not None and self._keeper.n_records > 0

    @property
    def is_fold_due(self) -> bool:
        """Whether the journal is long enough to be worth a fold in idle time."""
        keeper = self._keeper
        return self.has_journal and keeper.journal_bytes >= _FOLD_SHARE * keeper.file_bytes

    def append(
        self,
        conversation: Conversation,
        *,
        kind: str = "turn",
        events: Sequence[dict[str, Any]] = (),
    ) -> Saved:
        """Bring what is new of a conversation to the disk. The first time, that is all of it.

        Args:
            conversation: at a legal place for a message.
            kind: what came to an end: "turn" or "result".
            events: see ``past_events``.

        Raises:
            CheckpointError: it is not on the disk. The conversation goes on, and the next append
                includes what this one should have kept.
        """
        start_s = time.monotonic()
        conversation.settle()
        keeper = self._keeper
        if not conversation.id or keeper is None or not keeper.can_append:
            return self.fold(conversation, automatic=True, kind=kind, events=events)
        session = conversation.session
        if not session.n_kept:  # all of it is new, so a journal would hold a second conversation
            return self.fold(conversation, automatic=True, kind=kind, events=events)
        delta = session.delta()
        keep_text = keeper.text_bytes
        if delta.kept != keeper.tokens:
            keep_text = len(self._engine.tokenizer.render(conversation.transcript[: delta.kept]))
        keeper.append(
            delta,
            self._engine.tokenizer.render(delta.tokens),
            keep_text,
            kind=kind,
            tokens_sha256=tokens_sha256(conversation.transcript),
            events=events,
        )
        saved = self._saved(conversation, start_s, automatic=True)
        if kind == "turn" and keeper.journal_bytes > _MOST_SHARE * keeper.file_bytes + _MOST_BYTES:
            try:
                return self.fold(conversation, automatic=True)
            except CheckpointError as error:  # the journal has it
                _log.warning("the journal of %s was not taken up: %s", conversation.id, error)
        return saved

    def fold(
        self,
        conversation: Conversation,
        *,
        automatic: bool,
        kind: str = "turn",
        events: Sequence[dict[str, Any]] = (),
        progress: Progress | None = None,
    ) -> Saved:
        """Write all of a conversation into its checkpoint.

        Args:
            conversation: at a legal place for a message.
            automatic: nobody asked for it.
            kind: as for ``append``.
            events: as for ``append``.
            progress: called after each piece; what it raises ends the fold, without a trace.

        Raises:
            CheckpointError: it can't be written. What was on the disk is as it was.
        """
        start_s = time.monotonic()
        conversation.settle()
        if not conversation.id:
            self._claim(conversation)
        keeper = self._keeper
        if keeper is None:
            keeper = self._keeper = Keeper(
                self._store,
                title=conversation.title,
                created_at=conversation.created_at,
                meta=self._meta,
            )
        is_kept = conversation.is_saved and keeper.can_append and not keeper.n_records
        if not is_kept or events:
            keeper.fold(
                conversation.session.state(),
                self._engine.tokenizer.render(conversation.transcript),
                kind=kind,
                events=events,
                progress=progress,
            )
        conversation.id = keeper.id
        return self._saved(conversation, start_s, automatic=automatic)

    def lock(self, identifier: str) -> SessionLock | None:
        """Take the lock of a saved conversation; None when it is held here already.

        Raises:
            CheckpointError: it is open in another process, or the folder can't be written.
        """
        return None if self._is_mine(identifier) else self._store.open_lock(identifier)

    def adopt(
        self, restored: Restored, lock: SessionLock | None, conversation: Conversation
    ) -> str:
        """Go on keeping a conversation that was restored; return a warning ("" without one).

        Args:
            restored: from the store.
            lock: what ``lock`` returned.
            conversation: live again, at the same tokens.
        """
        if lock is not None:
            self.release()
            self._lock, self._lock_id = lock, restored.record.id
        self._drop_keeper()
        try:
            self._keeper = Keeper(
                self._store,
                title=conversation.title,
                created_at=conversation.created_at,
                meta=self._meta,
                restored=restored,
            )
        except CheckpointError as error:
            return f"What comes now may not be kept: {error}. {error.hint}".strip()
        conversation.session.mark()
        return ""

    def move_to(self, record: SessionRecord, conversation: Conversation) -> None:
        """Keep a conversation under another id that has all of it already: a fork.

        Raises:
            CheckpointError: it can't be opened. The conversation is kept where it was.
        """
        lock = self.lock(record.id)
        state = SessionState(
            record.family,
            record.fingerprint,
            record.ctx,
            conversation.transcript,
            np.zeros(0, np.float32),
        )
        try:
            restored = session_file.outline(
                record, state, self._engine.tokenizer.render(conversation.transcript)
            )
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        conversation.id, conversation.created_at = record.id, record.created_at
        self.adopt(restored, lock, conversation)

    def release(self) -> None:
        """Let other programs open the conversation."""
        self._drop_keeper()
        if self._lock is not None:
            self._lock.release()
        self._lock, self._lock_id = None, ""

    def _saved(self, conversation: Conversation, start_s: float, *, automatic: bool) -> Saved:
        conversation.session.mark()
        conversation.saved_tokens = conversation.transcript
        return Saved(
            session_id=conversation.id,
            title=conversation.title,
            tokens=len(conversation.transcript),
            file_bytes=self._keeper.file_bytes + self._keeper.journal_bytes,
            seconds=time.monotonic() - start_s,
            automatic=automatic,
        )

    def _claim(self, conversation: Conversation) -> None:
        """Take a free id. It follows from title and second, so equal prompts may collide."""
        title = normalise_title(conversation.title).encode("utf-8")
        n_locked = 0
        while True:
            identifier = session_id(title, conversation.created_at)
            if self._is_mine(identifier):
                return  # taken for a save that failed
            if not folder.session_path(self._store.folder, identifier).exists():
                try:
                    lock = self._store.open_lock(identifier)
                    break
                except CheckpointError:
                    n_locked += 1
                    if n_locked == _LOCK_ATTEMPTS:
                        raise
            conversation.created_at += 1
        self.release()
        self._lock, self._lock_id = lock, identifier

    def _is_mine(self, identifier: str) -> bool:
        return self._lock is not None and self._lock_id == identifier

    def _drop_keeper(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
        self._keeper = None
