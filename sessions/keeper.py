"""Keeps one live conversation on disk: a whole checkpoint now and then, a journal in between.

The first save writes ``<id>.kv``. From then on ``append`` costs what is new. ``fold`` writes the
whole checkpoint again and begins a new journal:

    1. the new checkpoint and its side file, under temporary names, fsync
    2. the side file renamed, fsync of the folder; the checkpoint renamed, fsync of the folder
    3. the new journal under a temporary name, fsync, renamed, fsync of the folder

A crash before the second rename of 2 leaves the old checkpoint with its journal; one after it
leaves the new checkpoint with a journal that is spent, which the side file tells: it names the
version of the checkpoint that was replaced.

Whoever uses a keeper holds the lock of the session (``SessionStore.open_lock``).
"""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence

import numpy as np

from engine.state import SessionState, StateDelta
from sessions import folder, journal
from sessions.errors import CheckpointError
from sessions.identity import normalise_title, session_id
from sessions.journal import Base, Boundary, JournalError
from sessions.journal_writer import JournalWriter
from sessions.record import SavedFile, SessionMeta
from sessions.safe_file import plain_errors
from sessions.session_file import Restored
from sessions.store import SessionStore
from sessions.streams import Progress

# Remembered for the view, as JSON; the oldest are forgotten first. A head has room for more.
_MAX_EVENT_BYTES = 4 << 20
_MAX_BOUNDARIES = 50_000


class Keeper:
    """The files of one conversation while it is open.

    Attributes:
        id: 40 hex digits.
        path: Of the checkpoint.
        tokens: Tokens that are on the disk.
        text_bytes: Bytes of their text.
        boundaries: Where the conversation could be continued, oldest first.
        events: What the application noted for the view of a past conversation.
    """

    def __init__(
        self,
        store: SessionStore,
        *,
        title: str,
        created_at: int,
        meta: SessionMeta,
        restored: Restored | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin to keep a conversation; nothing is written yet.

        Args:
            store: the folder.
            title: the first prompt.
            created_at: Unix seconds of the first turn.
            meta: kept in the side file.
            restored: what ``store.restore`` returned, for one that was saved before.
            clock: returns Unix seconds.
        """
        self._store = store
        self._title, self._created_at, self._meta = title, created_at, meta
        self._clock = clock
        self.id = session_id(normalise_title(title).encode("utf-8"), created_at)
        self.path = folder.session_path(store.folder, self.id)
        self.tokens = self.text_bytes = self.file_bytes = 0
        self.boundaries: tuple[Boundary, ...] = ()
        self.events: list[dict] = []
        self._stamp = ""
        self._tokens_sha256 = ""
        self._ids = np.zeros(0, "<u4")  # the tokens that are on the disk
        self._inode: tuple[int, int] | None = None  # of the checkpoint that we know
        self._writer: JournalWriter | None = None
        if restored is not None:
            self._resume(restored)

    @property
    def journal_bytes(self) -> int:
        """Bytes of the journal that the checkpoint doesn't have, 0 without records."""
        return self._writer.end if self._writer is not None and self._writer.n_records else 0

    @property
    def n_records(self) -> int:
        """Records that the checkpoint doesn't have."""
        return self._writer.n_records if self._writer is not None else 0

    @property
    def can_append(self) -> bool:
        """Whether the checkpoint that an append builds on is still there, and ours."""
        if self._inode is None or (self._writer is not None and not self._writer.is_sound):
            return False
        return self._inode == _inode_of(self.path)

    def append(
        self,
        delta: StateDelta,
        text: bytes,
        keep_text: int,
        *,
        kind: str,
        tokens_sha256: str,
        events: Sequence[dict] = (),
    ) -> int:
        """Bring what is new to the disk and return how many bytes that took.

        Args:
            delta: what the state has beyond its first ``delta.kept`` tokens, ``tokens`` at most.
                Without new tokens behind all that are on the disk, no rows are written.
            text: the rendering of the new tokens.
            keep_text: bytes of the rendering of the kept ones.
            kind: what came to an end, see ``journal.KINDS``.
            tokens_sha256: of all tokens, see ``journal.tokens_sha256``.
            events: JSON objects for the view of a past conversation.

        Raises:
            CheckpointError: it is not on the disk. Everything that was there is as it was, and the
                next append has to begin at the same token.
        """
        at, events = int(self._clock()), newest(events)
        ids = np.concatenate([self._ids[: delta.kept], np.asarray(delta.tokens, "<u4")])
        if delta.kept > self.tokens or journal.tokens_sha256(ids) != tokens_sha256:
            raise CheckpointError(
                f"can't append to the session's journal: what follows its first {delta.kept} "
                f"tokens doesn't give the conversation",
                "Save the whole conversation (/save).",
            )
        if delta.kept == delta.n_tokens == self.tokens:  # only events are new: a call that ended
            delta = _without_rows(delta)
        with plain_errors("append to the session's journal", journal.path_for(self.path)):
            if self._writer is None:
                self._writer = JournalWriter.create(journal.path_for(self.path), self._base())
            n_bytes = self._writer.append(
                delta,
                text,
                keep_text,
                kind=kind,
                at=at,
                tokens_sha256=tokens_sha256,
                events=events,
            )
        self._now_at(ids, keep_text + len(text), tokens_sha256, delta.kept)
        self.boundaries += (Boundary(delta.n_tokens, at, kind),)
        self._note(events)
        return n_bytes

    def fold(
        self,
        state: SessionState,
        text: bytes,
        *,
        kind: str = "turn",
        events: Sequence[dict] = (),
        progress: Progress | None = None,
    ) -> SavedFile:
        """Write the whole conversation and begin a new journal.

        Args:
            state: all of it.
            text: the rendering of its tokens.
            kind: what came to an end, where it has tokens that no append had.
            events: JSON objects that no append had.
            progress: called after each piece; what it raises ends the fold, without a trace.

        Raises:
            CheckpointError: it can't be written. Everything that was there is as it was.
        """
        saved = self._store.save(
            state,
            text,
            title=self._title,
            created_at=self._created_at,
            meta=self._meta,
            progress=progress,
        )
        digest = journal.tokens_sha256(state.tokens)
        if digest != self._tokens_sha256:
            common = min(self.tokens, len(state.tokens) - 1)
            self._now_at(np.asarray(state.tokens, "<u4"), len(text), digest, common)
            self.boundaries += (Boundary(len(state.tokens), int(self._clock()), kind),)
        self._note(events)
        self._stamp, self._inode, self.file_bytes = saved.stamp, _inode_of(self.path), saved.n_bytes
        self._restart_journal()
        return saved

    def close(self) -> None:
        """Close the journal. The files stay."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _resume(self, restored: Restored) -> None:
        self.tokens, self.text_bytes = len(restored.state.tokens), len(restored.text)
        self.boundaries, self.events = restored.boundaries, list(restored.events)
        self.path = restored.record.path
        self._stamp = restored.stamp
        self._ids = np.asarray(restored.state.tokens, "<u4")
        self._tokens_sha256 = journal.tokens_sha256(self._ids)
        path = journal.path_for(self.path)
        with plain_errors("open the session's journal", path):
            self.file_bytes = self.path.stat().st_size
            if restored.is_orphaned:
                with contextlib.suppress(FileNotFoundError):
                    folder.quarantine(path)
            if restored.journal is not None:
                self._writer = JournalWriter(path, restored.journal)
        self._inode = _inode_of(self.path)

    def _base(self) -> Base:
        return Base(
            self._stamp,
            self.tokens,
            self._tokens_sha256,
            self.text_bytes,
            self.boundaries,
            tuple(self.events),
        )

    def _restart_journal(self) -> None:
        """Begin a new journal; where that fails, take the spent one away: the next append tries
        again."""
        path = journal.path_for(self.path)
        self.close()
        try:
            self._writer = JournalWriter.create(path, self._base())
        except (OSError, JournalError):
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _now_at(self, ids: np.ndarray, text_bytes: int, digest: str, kept: int) -> None:
        self._ids, self.tokens = ids, len(ids)
        self.text_bytes, self._tokens_sha256 = text_bytes, digest
        self.boundaries = tuple(
            b
            for b in self.boundaries[-_MAX_BOUNDARIES:]
            if b.tokens <= kept and b.tokens < self.tokens
        )

    def _note(self, events: Sequence[dict]) -> None:
        self.events = newest(journal.lasting([*self.events, *events]))


def newest(events: Sequence[dict]) -> list[dict]:
    """Return the last events, as many as a head has room for."""
    left, n = _MAX_EVENT_BYTES, 0
    for event in reversed(events):
        left -= len(json.dumps(event))
        if left < 0:
            break
        n += 1
    return list(events[len(events) - n :])


def _without_rows(delta: StateDelta) -> StateDelta:
    """Return a delta that leaves every array as it is on the disk."""
    return dataclasses.replace(
        delta,
        arrays={name: rows[:0] for name, rows in delta.arrays.items()},
        first_rows={n: first + len(delta.arrays[n]) for n, first in delta.first_rows.items()},
    )


def _inode_of(path: os.PathLike) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def fold_offline(store: SessionStore, id_prefix: str, progress: Progress | None = None) -> int:
    """Fold the journal of a session that nobody has open and return its records.

    Raises:
        CheckpointError: it is open elsewhere, damaged, or can't be written.
    """
    with store.open_lock(store.whole_id(id_prefix)):
        restored = store.restore(id_prefix)
        record = restored.record
        if restored.journal is None or not restored.journal.records:
            return 0
        keeper = Keeper(
            store,
            title=record.title,
            created_at=record.created_at,
            meta=SessionMeta(record.cwd, record.model),
            restored=restored,
        )
        if keeper.id != record.id:
            raise CheckpointError(
                "its title can't be written again as it is", "Open it, and save it there."
            )
        try:
            keeper.fold(restored.state, restored.text, progress=progress)
        finally:
            keeper.close()
        return len(restored.journal.records)
