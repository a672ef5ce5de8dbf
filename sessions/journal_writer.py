"""Appending to a journal, so that a power cut at any instant leaves a valid prefix.

What reaches the disk when:

    a new journal   written under a temporary name, fsync, renamed, fsync of the folder
    an append       written behind the last valid byte, then fdatasync; only then it counts
    a failed append cut off again; were even that impossible, readers drop the torn record

A journal has one writer, who holds the lock of its session. Nothing that was written is changed.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from engine.state import StateDelta
from sessions import journal
from sessions.journal import Base, Journal, Record, Rows
from sessions.safe_file import data_to_disk, staged
from sessions.streams import pieces_of

_PIECE_BYTES = 4 << 20  # written at a time


class JournalWriter:
    """The open journal of one session.

    Attributes:
        path: Its file.
        end: Bytes of it that count.
        n_records: Records after the first.
        tokens: Tokens of the conversation after the last record.
        text_bytes: Bytes of its text then.
    """

    def __init__(self, path: Path, found: Journal) -> None:
        """Open a journal that was scanned; a torn tail is cut off.

        Raises:
            OSError: it can't be written.
        """
        self.path = path
        self.end = found.end
        self.n_records = len(found.records)
        self.tokens = found.last.tokens
        self.text_bytes = found.last.text_bytes
        self._digest = found.digest
        self._is_broken = False
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if found.file_bytes > found.end:
                os.ftruncate(self._descriptor, found.end)
                data_to_disk(self._descriptor)
        except BaseException:
            self.close()
            raise

    @classmethod
    def create(cls, path: Path, base: Base) -> "JournalWriter":
        """Put a new journal in the place of the old one, if there is one, and open it.

        Raises:
            OSError: it can't be written. An old one is as it was.
        """
        head = journal.pack_head(base.head())
        prefix = journal.PREFIX.pack(journal.RECORD_MAGIC, len(head), 0)
        digest = hashlib.sha256(journal.FIRST_DIGEST + prefix + head).digest()
        data = b"".join([journal.MAGIC, prefix, head, digest])
        with staged(path) as file:
            file.file.write(data)
            file.finish()
            file.publish()
        return cls(path, Journal(base, (), len(data), digest, len(data)))

    @property
    def is_sound(self) -> bool:
        """Whether an append can still be relied on: the file is there, and no write was lost."""
        if self._is_broken or self._descriptor < 0:
            return False
        try:
            return os.path.samestat(os.fstat(self._descriptor), os.stat(self.path))
        except OSError:
            return False

    def append(
        self,
        delta: StateDelta,
        text: bytes,
        keep_text: int,
        *,
        kind: str,
        at: int,
        tokens_sha256: str,
        events: Iterable[dict] = (),
    ) -> int:
        """Write one record, bring it to the disk and return its size, bytes.

        Args:
            delta: what the state has beyond its first ``delta.kept`` tokens.
            text: of the new tokens.
            keep_text: bytes of the text of the kept ones.
            kind: what came to an end, see ``journal.KINDS``.
            at: Unix seconds.
            tokens_sha256: of all tokens.
            events: for display, as JSON objects.

        Raises:
            OSError: it is not on the disk. The journal is as it was.
            JournalError: the events are too long.
        """
        assert kind in journal.KINDS and delta.kept <= self.tokens
        arrays = {name: _plain(array) for name, array in delta.arrays.items()}
        record = Record(
            kind=kind,
            at=at,
            keep=delta.kept,
            tokens=delta.n_tokens,
            keep_text=keep_text,
            text_bytes=keep_text + len(text),
            tokens_sha256=tokens_sha256,
            n_vocab=len(delta.logits),
            rows=tuple(
                Rows(name, array.dtype.str, delta.first_rows[name], array.shape)
                for name, array in arrays.items()
            ),
            events=tuple(events),
        )
        head = journal.pack_head(record.head())
        prefix = journal.PREFIX.pack(journal.RECORD_MAGIC, len(head), record.body_bytes)
        body = [np.asarray(delta.tokens, "<u4"), text, _plain(delta.logits), *arrays.values()]
        digest = hashlib.sha256(self._digest)
        n_bytes = self._write([prefix, head, *body], digest)
        self.end += n_bytes
        self.n_records += 1
        self.tokens, self.text_bytes = record.tokens, record.text_bytes
        self._digest = digest.digest()
        return n_bytes

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, parts: Iterable[bytes | np.ndarray], digest: "hashlib._Hash") -> int:
        at = self.end
        try:
            for part in parts:
                for piece in pieces_of(part, _PIECE_BYTES):
                    digest.update(piece)
                    at = self._put(piece, at)
            at = self._put(memoryview(digest.digest()), at)
        except BaseException:
            self._cut_off()
            raise
        try:
            data_to_disk(self._descriptor)
        except BaseException:
            # The system may have thrown the pages away: nothing here can be relied on any more.
            self._is_broken = True
            self._cut_off()
            raise
        return at - self.end

    def _put(self, piece: memoryview, at: int) -> int:
        while piece:
            n_bytes = os.pwrite(self._descriptor, piece, at)
            piece, at = piece[n_bytes:], at + n_bytes
        return at

    def _cut_off(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._descriptor, self.end)


def _plain(array: np.ndarray) -> np.ndarray:
    """Return an array as the file has it: little-endian, row after row."""
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
