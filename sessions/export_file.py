"""One conversation as one small file, for another machine.

    8 s     magic "DS4MOVE\\0"
    u32     version, 1
    u8      1: what follows is under a passphrase, see ``sealed``; 0: it is not
    u32     length of the facts, 1 MiB at most
    ...     facts, JSON in ASCII
    32 s    SHA-256 of the facts
    ...     text, token ids, logits, then the arrays in the order of the facts: each as pieces
    32 s    SHA-256 of: the facts, the text, and all numbers as they are in memory

A piece is u32 length and the bytes of ``squeeze``; how many pieces there are follows from the
shapes. The text is u32 length and a deflate stream. Integers are little-endian.

The state is that of ``SessionState``: which device, backend or program computed it has no part in
it. Nothing is trusted before it was compared: the facts have a checksum of their own, the sizes in
them are compared with the size of the file before memory is taken, and memory is only taken for
numbers that were decoded.
"""

import hashlib
import json
import os
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from itertools import islice
from math import prod
from typing import Any, BinaryIO, Protocol, TypeVar

import numpy as np

from engine.state import SessionState
from sessions import squeeze
from sessions.errors import CheckpointError, ChecksumError
from sessions.sealed import SealedReader, SealedWriter
from sessions.streams import Progress

MAGIC = b"DS4MOVE\0"
VERSION = 1
SUFFIX = ".ds4session"
MAX_FACTS_BYTES = 1 << 20
_HEAD = struct.Struct("<8sIB")
_U32 = struct.Struct("<I")
_DTYPES = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}
_SPARE_BYTES = 64 << 20  # that a small file may decode to besides: text shrinks well
_MAX_DIMENSIONS = 4
_DAMAGED = "The file is damaged: copy or export it again."
_T, _R = TypeVar("_T"), TypeVar("_R")


class Source(Protocol):
    """Where bytes come from."""

    def read(self, n_bytes: int, /) -> bytes: ...


class Sink(Protocol):
    """Where bytes go."""

    def write(self, data: bytes, /) -> int: ...


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about the conversation besides its state."""

    title: str
    created_at: int  # Unix seconds
    name: str = ""
    cwd: str = ""
    model: str = ""
    program: str = ""  # that wrote the file, with its version
    kv_bytes: int = 0  # of the checkpoint, for comparison


def write(
    out: BinaryIO,
    state: SessionState,
    text: bytes,
    facts: Facts,
    passphrase: str = "",
    progress: Progress | None = None,
) -> None:
    """Write a file.

    Args:
        out: an empty file; left open.
        state: the conversation.
        text: the rendering of its tokens.
        facts: the rest.
        passphrase: "" for a file that everybody can read.
        progress: called with bytes of the state done and in all.

    Raises:
        CheckpointError: a passphrase can't be used here.
    """
    out.write(_HEAD.pack(MAGIC, VERSION, bool(passphrase)))
    sink: Sink = SealedWriter(out, passphrase) if passphrase else out
    arrays = {name: _checked(name, array) for name, array in state.arrays.items()}
    head = asdict(facts) | {
        "family": state.family,
        "fingerprint": state.fingerprint,
        "ctx": state.ctx,
        "expert_bits": state.expert_bits,
        "n_tokens": len(state.tokens),
        "n_vocab": len(state.logits),
        "text_bytes": len(text),
        "arrays": [[name, a.dtype.name, list(a.shape)] for name, a in arrays.items()],
    }
    packed = json.dumps(head, ensure_ascii=True).encode("ascii")
    sink.write(_U32.pack(len(packed)) + packed + hashlib.sha256(packed).digest())
    squeezed = zlib.compress(text, 6)
    sink.write(_U32.pack(len(squeezed)) + squeezed)
    digest = hashlib.sha256(packed + text)
    numbers = [
        np.asarray(state.tokens, "<u4").view("<f4").reshape(-1, 1),
        np.asarray(state.logits, "<f4").reshape(-1, 1),
        *arrays.values(),
    ]
    total, done = sum(array.nbytes for array in numbers), 0
    all_pieces = (piece for array in numbers for piece in squeeze.pieces(array))

    def encoded(piece: np.ndarray) -> tuple[np.ndarray, bytes]:
        return piece, squeeze.encode(piece)

    for piece, data in _in_order(encoded, all_pieces):
        digest.update(np.ascontiguousarray(piece).view(np.uint8).reshape(-1))
        sink.write(_U32.pack(len(data)))
        sink.write(data)
        done += piece.nbytes
        if progress is not None:
            progress(done, total)
    sink.write(digest.digest())
    if isinstance(sink, SealedWriter):
        sink.finish()


def is_sealed(file: BinaryIO) -> bool:
    """Read the first bytes and say whether a passphrase is needed.

    Raises:
        CheckpointError: it is no such file.
    """
    file.seek(0)
    raw = file.read(_HEAD.size)
    if len(raw) != _HEAD.size or raw[:8] != MAGIC:
        raise CheckpointError(
            f"not an exported session: it begins with {raw[:8]!r}, expected {MAGIC!r}",
            "Choose a file that `ds4-agent sessions export` has written.",
        )
    _, version, sealed = _HEAD.unpack(raw)
    if version != VERSION or sealed > 1:
        raise CheckpointError(
            f"export version {version}.{sealed}, expected {VERSION}.0 or {VERSION}.1",
            "It was written by another version of this program: update it.",
        )
    return bool(sealed)


def read(
    file: BinaryIO, passphrase: str = "", progress: Progress | None = None
) -> tuple[SessionState, bytes, Facts]:
    """Read and verify a file.

    Raises:
        ChecksumError: what was decoded isn't what was written.
        CheckpointError: it is no such file, damaged, or the passphrase is wrong or missing.
    """
    file_bytes = os.fstat(file.fileno()).st_size
    source: Source = file
    if is_sealed(file):
        if not passphrase:
            raise CheckpointError("the file is under a passphrase", "Give it with --passphrase.")
        source = SealedReader(file, passphrase)
    head, packed = _read_facts(source)
    _check_sizes(head, file_bytes)
    text = _read_text(source, head["text_bytes"], file_bytes)
    digest = hashlib.sha256(packed + text)
    shapes: list[tuple[tuple[int, ...], np.dtype]] = [
        ((head["n_tokens"], 1), _DTYPES["float32"]),
        ((head["n_vocab"], 1), _DTYPES["float32"]),
        *((tuple(shape), _DTYPES[dtype]) for _, dtype, shape in head["arrays"]),
    ]
    total, done = sum(prod(shape) * dtype.itemsize for shape, dtype in shapes), 0
    parts: list[list[np.ndarray]] = [[] for _ in shapes]
    for index, piece in _in_order(_decoded, _coded_pieces(source, shapes, file_bytes)):
        digest.update(piece.view(np.uint8).reshape(-1))
        parts[index].append(piece)
        done += piece.nbytes
        if progress is not None:
            progress(done, total)
    if _exactly(source, digest.digest_size) != digest.digest() or source.read(1):
        raise ChecksumError("its checksum is not that of its content", _DAMAGED)
    tokens, logits, *arrays = (
        _joined(part, shape, dtype) for part, (shape, dtype) in zip(parts, shapes, strict=True)
    )
    state = SessionState(
        head["family"],
        head["fingerprint"],
        head["ctx"],
        tuple(tokens.view("<u4").reshape(-1).tolist()),
        logits.reshape(-1),
        {name: array for (name, _, _), array in zip(head["arrays"], arrays, strict=True)},
        head["expert_bits"],
    )
    return state, text, Facts(**{field.name: head[field.name] for field in fields(Facts)})


def _checked(name: str, array: np.ndarray) -> np.ndarray:
    if array.dtype.name not in _DTYPES:
        raise ValueError(f"{name} is {array.dtype}, expected one of {sorted(_DTYPES)}")
    return array


def _read_facts(source: Source) -> tuple[dict[str, Any], bytes]:
    (n_bytes,) = _U32.unpack(_exactly(source, _U32.size))
    if n_bytes > MAX_FACTS_BYTES:
        raise CheckpointError(f"facts of {n_bytes} bytes, expected 1 MiB at most", _DAMAGED)
    packed = _exactly(source, n_bytes)
    if hashlib.sha256(packed).digest() != _exactly(source, 32):
        raise ChecksumError("the checksum of its first part is wrong", _DAMAGED)
    try:
        head = json.loads(packed)
        texts = ("title", "name", "cwd", "model", "program", "family", "fingerprint")
        counts = ("created_at", "kv_bytes", "ctx", "expert_bits", "n_tokens", "n_vocab")
        good = all(isinstance(head[key], str) for key in texts) and all(
            type(head[key]) is int and 0 <= head[key] < 1 << 62 for key in (*counts, "text_bytes")
        )
        good = good and all(_is_array(entry) for entry in head["arrays"])
        good = good and len({name for name, _, _ in head["arrays"]}) == len(head["arrays"])
    except (ValueError, TypeError, KeyError, RecursionError):
        good = False
    if not good:
        raise CheckpointError("its first part is not what this version writes", _DAMAGED)
    return head, packed


def _is_array(entry: Any) -> bool:
    name, dtype, shape = entry
    return (
        isinstance(name, str)
        and dtype in _DTYPES
        and 1 <= len(shape) <= _MAX_DIMENSIONS
        and all(type(n) is int and 0 <= n < 1 << 40 for n in shape)
    )


def _check_sizes(head: dict[str, Any], file_bytes: int) -> None:
    promised = 4 * (head["n_tokens"] + head["n_vocab"]) + head["text_bytes"]
    promised += sum(prod(shape) * _DTYPES[dtype].itemsize for _, dtype, shape in head["arrays"])
    if promised > squeeze.MOST_EXPANSION * file_bytes + _SPARE_BYTES:
        raise CheckpointError(
            f"it promises {promised:,} bytes, which its {file_bytes:,} cannot hold", _DAMAGED
        )


def _read_text(source: Source, text_bytes: int, file_bytes: int) -> bytes:
    (n_bytes,) = _U32.unpack(_exactly(source, _U32.size))
    if n_bytes > file_bytes:
        raise CheckpointError(f"a text of {n_bytes} bytes in a file of {file_bytes}", _DAMAGED)
    decoder = zlib.decompressobj()
    try:
        text = decoder.decompress(_exactly(source, n_bytes), text_bytes + 1)
    except zlib.error as error:
        raise CheckpointError(f"its text cannot be decoded: {error}", _DAMAGED) from error
    if len(text) != text_bytes or not decoder.eof:
        raise CheckpointError(f"a text of {len(text)} bytes, expected {text_bytes}", _DAMAGED)
    return text


_Coded = tuple[int, bytes, int, int, np.dtype]  # which array, the piece, rows, columns


def _coded_pieces(
    source: Source, shapes: Iterable[tuple[tuple[int, ...], np.dtype]], file_bytes: int
) -> Iterator[_Coded]:
    for index, (shape, dtype) in enumerate(shapes):
        for n_rows, width in squeeze.piece_shapes(shape, dtype):
            (n_bytes,) = _U32.unpack(_exactly(source, _U32.size))
            if n_bytes > min(file_bytes, squeeze.most_bytes(n_rows, width, dtype)):
                raise CheckpointError(f"{n_bytes} bytes for {n_rows} rows of {width}", _DAMAGED)
            yield index, _exactly(source, n_bytes), n_rows, width, dtype


def _decoded(coded: _Coded) -> tuple[int, np.ndarray]:
    index, data, n_rows, width, dtype = coded
    return index, squeeze.decode(data, n_rows, width, dtype)


def _joined(parts: list[np.ndarray], shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    if not parts:
        return np.zeros(shape, dtype)  # of no bytes
    array = parts[0] if len(parts) == 1 else np.concatenate(parts)
    parts.clear()
    return array.reshape(shape)


def _exactly(source: Source, n_bytes: int) -> bytes:
    data = source.read(n_bytes)
    if len(data) != n_bytes:
        raise CheckpointError(f"the file ends {n_bytes - len(data)} bytes early", _DAMAGED)
    return data


def _in_order(work: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """Work on items in threads and yield the results in order, a few items ahead.

    NumPy, zlib and hashlib let other threads run meanwhile.
    """
    n_threads = min(8, os.cpu_count() or 1)
    waiting: list[Future[_R]] = []
    left = iter(items)
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            waiting.extend(pool.submit(work, item) for item in islice(left, 2 * n_threads))
            while waiting:
                result = waiting.pop(0).result()
                waiting.extend(pool.submit(work, item) for item in islice(left, 1))
                yield result
        finally:
            for future in waiting:
                future.cancel()
