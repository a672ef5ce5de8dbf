"""A state and its journal: put together they are the conversation as it was last.

Rows are read straight into the arrays of the state, which were allocated with room for them. What
changes as a whole is read once, from the last record.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from engine.state import SessionState
from sessions import journal
from sessions.errors import CheckpointError
from sessions.journal import Journal, JournalError, Record, Rows
from sessions.kvc import read_exactly, read_into
from sessions.safe_file import open_regular

_HINT = "The conversation goes on without its journal."


@contextlib.contextmanager
def opened(checkpoint: Path) -> Iterator[BinaryIO | None]:
    """Open the journal beside ``checkpoint``; ``None`` where there is none.

    What was verified of an open journal stays as it is: its owner only appends, and a fold puts
    another file in its place.

    Raises:
        JournalError: something else has that name.
        OSError: it can't be read.
    """
    try:
        file = open_regular(journal.path_for(checkpoint))
    except FileNotFoundError:
        yield None
        return
    except CheckpointError as error:  # a folder or a pipe
        raise JournalError(str(error), error.hint) from error
    with file:
        yield file


def checked_base(found: Journal, state: SessionState, text: bytes) -> None:
    """Check that a journal builds on this state, beyond what its stamp says.

    Raises:
        JournalError: it builds on another one.
    """
    base = found.base
    if base.tokens != len(state.tokens) or base.text_bytes != len(text):
        raise JournalError(
            f"the journal builds on {base.tokens} tokens and {base.text_bytes} bytes of text, "
            f"found {len(state.tokens)} and {len(text)}",
            _HINT,
        )
    if base.tokens_sha256 != journal.tokens_sha256(state.tokens):
        raise JournalError("the journal builds on other tokens", _HINT)


def applied(
    found: Journal, file: BinaryIO, state: SessionState, text: bytes
) -> tuple[SessionState, bytes]:
    """Return state and text after every record of a journal.

    Args:
        found: a verified scan of ``file``.
        file: the journal.
        state: what it builds on. Arrays that were allocated with room for ``found.max_tokens``
            are filled where they are; so ``state`` itself is worth nothing afterwards.
        text: its text.

    Raises:
        JournalError: the records contradict the state.
        CheckpointError: the file became shorter meanwhile.
    """
    checked_base(found, state, text)
    if not found.records:
        return state, text
    last = found.records[-1]
    tokens, whole_text = list(state.tokens), bytearray(text)
    for record in found.records:
        text_at, logits_at, *_ = record.offsets()
        file.seek(record.body)
        del tokens[record.keep :]
        ids = np.frombuffer(read_exactly(file, text_at - record.body), "<u4")
        tokens += ids.tolist()
        del whole_text[record.keep_text :]
        whole_text += read_exactly(file, logits_at - text_at)
    if journal.tokens_sha256(tokens) != last.tokens_sha256:
        raise JournalError("the journal's records don't give the tokens that they name", _HINT)
    _, logits_at, *_ = last.offsets()
    file.seek(logits_at)
    logits = np.frombuffer(read_exactly(file, 4 * last.n_vocab), "<f4").copy()
    arrays = _arrays(state, found.records, file)
    state = dataclasses.replace(state, tokens=tuple(tokens), logits=logits, arrays=arrays)
    return state, bytes(whole_text)


def _arrays(
    state: SessionState, records: tuple[Record, ...], file: BinaryIO
) -> dict[str, np.ndarray]:
    pieces: dict[str, list[tuple[Rows, int]]] = {name: [] for name in state.arrays}
    for record in records:
        if sorted(rows.name for rows in record.rows) != sorted(pieces):
            raise JournalError("a record of the journal has not the arrays of the state", _HINT)
        _, _, *starts = record.offsets()
        for rows, start in zip(record.rows, starts, strict=True):
            pieces[rows.name].append((rows, start))
    return {name: _array(state.arrays[name], pieces[name], file) for name in pieces}


def _array(array: np.ndarray, pieces: list[tuple[Rows, int]], file: BinaryIO) -> np.ndarray:
    """Read into one array what its pieces, (what, where in the file), leave of each other."""
    n_rows = len(array)
    for rows, _ in pieces:
        if rows.first > n_rows or rows.shape[1:] != array.shape[1:] or rows.dtype != array.dtype:
            raise JournalError(
                f"{rows.name} of the journal is {rows.dtype} {list(rows.shape)} from row "
                f"{rows.first} on, the state has {array.dtype} {[n_rows, *array.shape[1:]]}",
                _HINT,
            )
        n_rows = rows.first + rows.shape[0]
    n_kept = min([len(array), *(rows.first for rows, _ in pieces)])
    memory = _with_room(array, n_rows, n_kept)
    stop = n_rows
    for rows, start in reversed(pieces):  # so no row is read that a later piece replaces
        n_needed = min(rows.shape[0], stop - rows.first)
        if n_needed > 0:
            file.seek(start)
            read_into(file, memory[rows.first : rows.first + n_needed])
        stop = min(stop, rows.first)
    return memory[:n_rows]


def _with_room(array: np.ndarray, n_rows: int, n_kept: int) -> np.ndarray:
    """Return memory of ``n_rows`` that begins with the first rows of ``array``: its own memory
    where that is long enough, because it was allocated with room."""
    memory = array.base
    if (
        isinstance(memory, np.ndarray)
        and memory.dtype == array.dtype
        and memory.shape[1:] == array.shape[1:]
        and memory.ctypes.data == array.ctypes.data
        and memory.flags.c_contiguous
        and memory.flags.writeable
        and len(memory) >= n_rows
    ):
        return memory
    memory = np.empty((n_rows, *array.shape[1:]), array.dtype)
    memory[:n_kept] = array[:n_kept]
    return memory
