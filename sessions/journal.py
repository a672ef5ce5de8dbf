"""The journal beside a checkpoint: what came since, in records that are only ever appended.

``README.md`` beside this file has the layout, byte by byte. This module packs heads, reads a file
and says how much of it is valid; ``journal_writer`` appends, ``journal_state`` applies.

Nothing in a file is believed before its digest was compared, except the lengths, and those only
after they were compared with the size of the file. A journal that ends in the middle of a record is
the normal end of a program that was killed: everything before it counts.
"""

import hashlib
import json
import math
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sessions.errors import CheckpointError

SUFFIX = ".journal"
MAGIC = b"DS4JRNL\x01"
RECORD_MAGIC = b"REC1"
PREFIX = struct.Struct("<4sIQ")
DIGEST_BYTES = 32
FIRST_DIGEST = bytes(DIGEST_BYTES)  # stands for the digest before the first record
MAX_HEAD_BYTES = 16 << 20
DTYPES = ("<f2", "<f4")
KINDS = ("turn", "result", "call", "rewind")  # "call": calls end it, their results are events

_PIECE_BYTES = 1 << 20  # hashed at a time
_MAX_DIMENSIONS = 4
_MAX_COUNT = 1 << 40  # of anything: sums stay far below what an int64 of NumPy holds
_HINT = "The conversation goes on from the last whole record."


class JournalError(CheckpointError):
    """A journal of which nothing can be used."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place after which a message may follow."""

    tokens: int
    at: int  # Unix seconds
    kind: str  # of the record that ended there

    def as_list(self) -> list[Any]:
        """Return its form in a head."""
        return [self.tokens, self.at, self.kind]


@dataclass(frozen=True, slots=True)
class Base:
    """What a journal builds on: the first record."""

    stamp: str  # names one version of the checkpoint, see ``side_file.stamp``
    tokens: int
    tokens_sha256: str
    text_bytes: int
    boundaries: tuple[Boundary, ...] = ()  # before this journal, oldest first
    events: tuple[dict[str, Any], ...] = ()

    def head(self) -> dict[str, Any]:
        """Return the head of its record."""
        return {
            "kind": "base",
            "stamp": self.stamp,
            "tokens": self.tokens,
            "tokens_sha256": self.tokens_sha256,
            "text_bytes": self.text_bytes,
            "boundaries": [boundary.as_list() for boundary in self.boundaries],
            "events": list(self.events),
        }


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one array in a body."""

    name: str
    dtype: str
    first: int  # the row of the array that the first one replaces
    shape: tuple[int, ...]  # rows first

    @property
    def n_bytes(self) -> int:
        """Length in the body."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


@dataclass(frozen=True, slots=True)
class Record:
    """What one record adds. Offsets are those of the file."""

    kind: str
    at: int  # Unix seconds
    keep: int  # tokens that stay
    tokens: int  # afterwards
    keep_text: int  # bytes that stay
    text_bytes: int  # afterwards
    tokens_sha256: str
    n_vocab: int
    rows: tuple[Rows, ...]
    events: tuple[dict[str, Any], ...] = ()
    body: int = 0  # where it begins
    end: int = 0  # where the next record begins

    def head(self) -> dict[str, Any]:
        """Return the head of the record."""
        return {
            "kind": self.kind,
            "at": self.at,
            "keep": self.keep,
            "tokens": self.tokens,
            "keep_text": self.keep_text,
            "text_bytes": self.text_bytes,
            "tokens_sha256": self.tokens_sha256,
            "logits": self.n_vocab,
            "arrays": [[r.name, r.dtype, r.first, list(r.shape)] for r in self.rows],
            "events": list(self.events),
        }

    @property
    def body_bytes(self) -> int:
        """Length of the body."""
        values = self.tokens - self.keep + self.n_vocab
        return 4 * values + self.text_bytes - self.keep_text + sum(r.n_bytes for r in self.rows)

    def offsets(self) -> Iterator[int]:
        """Return where text, logits and each array begin; the tokens begin at ``body``."""
        at = self.body + 4 * (self.tokens - self.keep)
        yield at
        at += self.text_bytes - self.keep_text
        yield at
        at += 4 * self.n_vocab
        for rows in self.rows:
            yield at
            at += rows.n_bytes


@dataclass(frozen=True, slots=True)
class Journal:
    """The valid part of a file."""

    base: Base
    records: tuple[Record, ...]
    end: int  # where the valid part ends, and the next record goes
    digest: bytes  # of the last valid record
    file_bytes: int
    problem: str = ""  # why it ends before the file does

    @property
    def last(self) -> Base | Record:
        """What tells tokens and text after everything."""
        return self.records[-1] if self.records else self.base

    @property
    def max_tokens(self) -> int:
        """Most tokens that there ever are while the records are applied."""
        return max([self.base.tokens, *(record.tokens for record in self.records)])

    @property
    def boundaries(self) -> tuple[Boundary, ...]:
        """Every place where the conversation may be continued, oldest first."""
        found = list(self.base.boundaries)
        for record in self.records:
            found = [b for b in found if b.tokens <= record.keep and b.tokens < record.tokens]
            found.append(Boundary(record.tokens, record.at, record.kind))
        return tuple(found)

    @property
    def events(self) -> tuple[dict[str, Any], ...]:
        """Everything that was noted and still counts, oldest first."""
        noted = (*self.base.events, *(e for record in self.records for e in record.events))
        return tuple(lasting(noted))

    @property
    def dropped(self) -> str:
        """One line about what could not be used, "" when all of it could."""
        if not self.problem:
            return ""
        n_bytes = self.file_bytes - self.end
        return f"{self.problem}; its last {n_bytes:,} bytes were dropped"


def path_for(checkpoint: Path) -> Path:
    """Return the path of the journal of ``checkpoint``."""
    return checkpoint.with_name(checkpoint.name + SUFFIX)


def tokens_sha256(tokens: Sequence[int]) -> str:
    """Return the hex digest that names a list of tokens."""
    return hashlib.sha256(np.asarray(tokens, "<u4").tobytes()).hexdigest()


def pack_head(head: dict[str, Any]) -> bytes:
    """Return a head as the file has it."""
    data = json.dumps(head, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    if len(data) > MAX_HEAD_BYTES:
        raise JournalError(
            f"a record's head of {len(data)} bytes, expected {MAX_HEAD_BYTES} at most",
            "Save the whole conversation instead.",
        )
    return data


def scan(file: BinaryIO, *, verify: bool = True) -> Journal:
    """Read the heads of a journal and find its valid part.

    Args:
        file: a journal.
        verify: compare every digest, which reads the whole file. Without, only heads are read:
            good enough for a list.

    Raises:
        JournalError: it is none, or what it builds on can't be read.
        OSError: it can't be read.
    """
    file_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    magic = file.read(len(MAGIC))
    if magic != MAGIC:
        raise JournalError(f"not a journal: it begins with {magic!r}, expected {MAGIC!r}", _HINT)
    reader = _Reader(file, file_bytes, verify)
    try:
        base = _base(reader.next())
    except _Invalid as problem:
        raise JournalError(f"what the journal builds on can't be read: {problem}", _HINT) from None
    records: list[Record] = []
    before: Base | Record = base
    end, digest, problem = reader.at, reader.digest, ""
    while reader.at < file_bytes:
        start = reader.at
        try:
            before = _record(reader.next(), before, reader)
        except _Invalid as invalid:
            problem = f"record {len(records) + 1} of the journal, at byte {start}, {invalid}"
            break
        records.append(before)
        end, digest = reader.at, reader.digest
    return Journal(base, tuple(records), end, digest, file_bytes, problem)


def has_records(file: BinaryIO) -> bool:
    """Whether there is anything behind what a journal builds on, told from its first bytes.

    A list asks this of every session, and what a journal builds on may have megabytes of events.
    """
    file_bytes = file.seek(0, os.SEEK_END)
    file.seek(len(MAGIC))
    prefix = file.read(PREFIX.size)
    if len(prefix) < PREFIX.size:
        return False
    _, head_bytes, body_bytes = PREFIX.unpack(prefix)
    return file_bytes > len(MAGIC) + PREFIX.size + head_bytes + body_bytes + DIGEST_BYTES


class _Invalid(Exception):
    """Why a record doesn't count."""


@dataclass(slots=True)
class _Reader:
    """Goes from record to record."""

    file: BinaryIO
    file_bytes: int
    verify: bool
    at: int = len(MAGIC)
    digest: bytes = FIRST_DIGEST
    body: int = 0
    body_bytes: int = 0
    _head: dict[str, Any] = field(default_factory=dict)

    def next(self) -> dict[str, Any]:
        """Return the next head and stand behind its record."""
        self.file.seek(self.at)
        prefix = self.file.read(PREFIX.size)
        if len(prefix) < PREFIX.size:
            raise _Invalid("is cut off")
        magic, head_bytes, body_bytes = PREFIX.unpack(prefix)
        if magic != RECORD_MAGIC or head_bytes > MAX_HEAD_BYTES:
            raise _Invalid("is damaged")
        end = self.at + PREFIX.size + head_bytes + body_bytes + DIGEST_BYTES
        if end > self.file_bytes:
            raise _Invalid("is cut off")
        head = self.file.read(head_bytes)
        self.body, self.body_bytes = self.at + PREFIX.size + head_bytes, body_bytes
        if self.verify:
            digest = hashlib.sha256(self.digest + prefix + head)
            left = body_bytes
            while left and (piece := self.file.read(min(left, _PIECE_BYTES))):
                digest.update(piece)
                left -= len(piece)
            if left or self.file.read(DIGEST_BYTES) != digest.digest():
                raise _Invalid("has a wrong checksum")
            self.digest = digest.digest()
        try:
            content = json.loads(head)
        except (ValueError, RecursionError):
            raise _Invalid("has a head that is no JSON") from None
        if not isinstance(content, dict):
            raise _Invalid("has a head that is no object")
        self.at = end
        return content


def _base(head: dict[str, Any]) -> Base:
    if head.get("kind") != "base":
        raise _Invalid(f"the first record is of kind {head.get('kind')!r}")
    boundaries = head.get("boundaries")
    if not isinstance(boundaries, list):
        raise _Invalid("has no list of boundaries")
    found = []
    for entry in boundaries:
        if not isinstance(entry, list) or len(entry) != 3 or not isinstance(entry[2], str):
            raise _Invalid(f"has the boundary {str(entry)[:40]}")
        found.append(Boundary(_number(entry[0]), _number(entry[1]), entry[2]))
    return Base(
        _text(head, "stamp"),
        _number(head.get("tokens")),
        _text(head, "tokens_sha256"),
        _number(head.get("text_bytes")),
        tuple(found),
        _events(head),
    )


def _record(head: dict[str, Any], before: Base | Record, reader: _Reader) -> Record:
    kind = _text(head, "kind")
    if kind not in KINDS:
        raise _Invalid(f"is of the unknown kind {kind[:20]!r}")
    arrays = head.get("arrays")
    if not isinstance(arrays, list):
        raise _Invalid("has no list of arrays")
    record = Record(
        kind=kind,
        at=_number(head.get("at")),
        keep=_number(head.get("keep")),
        tokens=_number(head.get("tokens")),
        keep_text=_number(head.get("keep_text")),
        text_bytes=_number(head.get("text_bytes")),
        tokens_sha256=_text(head, "tokens_sha256"),
        n_vocab=_number(head.get("logits")),
        rows=tuple(_rows(entry) for entry in arrays),
        events=_events(head),
        body=reader.body,
        end=reader.at,
    )
    if not record.keep <= min(before.tokens, record.tokens) or record.tokens == 0:
        raise _Invalid(
            f"keeps {record.keep} of {before.tokens} tokens and ends with {record.tokens}"
        )
    if not record.keep_text <= min(before.text_bytes, record.text_bytes):
        raise _Invalid(f"keeps {record.keep_text} of {before.text_bytes} bytes of text")
    if record.body_bytes != reader.body_bytes:
        raise _Invalid(f"has {reader.body_bytes} bytes, its counts give {record.body_bytes}")
    return record


def _rows(entry: Any) -> Rows:
    if not isinstance(entry, list) or len(entry) != 4 or not isinstance(entry[3], list):
        raise _Invalid(f"has the array {str(entry)[:40]}")
    name, dtype, first, shape = entry
    if not isinstance(name, str) or dtype not in DTYPES or not 1 <= len(shape) <= _MAX_DIMENSIONS:
        raise _Invalid(f"has the array {str(entry)[:40]}")
    return Rows(name, dtype, _number(first), tuple(_number(n) for n in shape))


def lasting(events: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return events without those marked ``"passing": true`` that others follow: such a note is of
    the moment at which it was the last one."""
    return [e for i, e in enumerate(events) if i == len(events) - 1 or e.get("passing") is not True]


def _events(head: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    events = head.get("events")
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise _Invalid("has no list of events")
    return tuple(events)


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise _Invalid(f"has the number {str(value)[:20]}")
    return value


def _text(head: dict[str, Any], name: str) -> str:
    value = head.get(name)
    if not isinstance(value, str):
        raise _Invalid(f"has no {name}")
    return value
