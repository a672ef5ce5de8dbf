"""The payload of DeepSeek V4 (Flash and Pro), shared with the C program.

    13 u32         magic "DSV4", version 2, context, prefill chunk, ring capacity, window W,
                   capacity of compressed rows, tokens n, layers L, width D of a row, width I of an
                   indexer row, vocabulary V, stored window rows
    u32 [n]        token ids
    f32 [V]        logits for the next token
    u32 [L]        compressed rows of each layer: n // R, or 0
    u32 [L]        indexer rows of each layer: n // 4 at R = 4, else 0
    for each layer:
      f32 [min(n, W), D]        window rows, oldest first
      f32 [n // R, D]           compressed rows                   R > 0
      f32 [c R, c D] twice      frontier: values, scores          c = 2 at R = 4, else 1
      f32 [n // 4, I]           indexer rows                      R = 4
      f32 [8, 2 I] twice        the indexer's frontier            R = 4

Nothing is padded. The ratios R are not in the file: they follow from the model id in the header,
0 for Flash (0, 0, then 4 and 128 in turn) and 1 for Pro (128, 128, then the same).

Rows are float16 here and float32 in the file; the CPU path of the C program rounds them too.
Version 1, of an earlier revision, differs in that number alone. It is read where it is asked for,
and never offered as a session of this revision.

The format has neither a fingerprint of the weights nor a checksum: the side file has both.
"""

import dataclasses
import hashlib
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from engine.state import SessionState
from sessions import half_rows
from sessions.errors import CheckpointError
from sessions.kvc import Envelope, Profile, read_exactly, read_into
from sessions.payload import (
    DAMAGED,
    PayloadSummary,
    checked_token_ids,
    read_token_ids,
    wrong_state,
)
from sessions.state_digest import StateDigest

MAGIC = int.from_bytes(b"DSV4", "little")
FLASH, PRO = 0, 1  # model ids
_VERSIONS = {Profile.DS4_MAY21: 1, Profile.DS4: 2}
_HEADER = struct.Struct("<13I")
_WINDOW = 128
_MAX_LAYERS = 1024
_MAX_WIDTH = 1 << 16
_MAX_CHUNK = {FLASH: 4096, PRO: 8192}  # of prefill; no reader looks at it
_MAX_CHUNK_MAY21 = 2048
_PIECE_VALUES = 1 << 18  # converted at a time: 1 MiB stays in the cache of a core
_N_BUFFERS = 4  # pieces that are narrowed while the next one is read


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the sizes of all sections follow from."""

    model_id: int
    ctx: int
    n_tokens: int
    n_layers: int
    width: int  # D
    index_width: int  # I
    n_vocab: int

    def ratio(self, layer: int) -> int:
        """R of a layer."""
        if layer < 2:
            return 0 if self.model_id == FLASH else 128
        return 4 if layer % 2 == 0 else 128

    @property
    def window(self) -> int:
        return min(_WINDOW, self.ctx)

    def arrays(self) -> Iterator[tuple[str, tuple[int, int], type]]:
        """Names, shapes and types of a state's arrays, in the order of the file."""
        n = self.n_tokens
        for i in range(self.n_layers):
            prefix, ratio = f"layers.{i}.", self.ratio(i)
            yield f"{prefix}window", (min(n, self.window), self.width), np.float16
            if ratio:
                yield from _compressor(prefix, ratio, n, self.width)
            if ratio == 4:
                yield from _compressor(f"{prefix}indexer.", ratio, n, self.index_width)

    @property
    def counts(self) -> np.ndarray:
        """Compressed rows, then indexer rows of all layers."""
        ratios = [self.ratio(i) for i in range(self.n_layers)]
        compressed = [self.n_tokens // ratio if ratio else 0 for ratio in ratios]
        indexed = [self.n_tokens // 4 if ratio == 4 else 0 for ratio in ratios]
        return np.array(compressed + indexed, "<u4")

    @property
    def n_bytes(self) -> int:
        values = self.n_tokens + self.n_vocab + 2 * self.n_layers
        return _HEADER.size + 4 * (values + sum(a * b for _, (a, b), _ in self.arrays()))

    def pack(self, version: int) -> bytes:
        chunk = _MAX_CHUNK_MAY21 if version == 1 else _MAX_CHUNK[self.model_id]
        return _HEADER.pack(
            MAGIC,
            version,
            self.ctx,
            min(self.ctx, chunk),
            self.window,
            self.window,
            self.ctx // 4 + 2,
            self.n_tokens,
            self.n_layers,
            self.width,
            self.index_width,
            self.n_vocab,
            min(self.n_tokens, self.window),
        )


def _compressor(
    prefix: str, ratio: int, n_tokens: int, width: int
) -> Iterator[tuple[str, tuple[int, int], type]]:
    c = 2 if ratio == 4 else 1
    yield f"{prefix}compressed", (n_tokens // ratio, width), np.float16
    for part in ("kv", "score"):
        yield f"{prefix}compressor.{part}", (c * ratio, c * width), np.float32


class DeepseekV4Payload:
    """The codec of the ``deepseek_v4`` family, see the module's docstring."""

    family = "deepseek_v4"
    model_ids = (FLASH, PRO)

    def header_ids(self, state: SessionState) -> tuple[int, int]:
        """Return model id and the bits of the experts' class."""
        return _shape_of(state).model_id, state.expert_bits or 2

    def n_bytes(self, state: SessionState) -> int:
        """Check that ``state`` can be written and return the size of its payload."""
        return _shape_of(state).n_bytes

    def write(
        self,
        state: SessionState,
        text: bytes,
        out: BinaryIO,
        profile: Profile = Profile.DS4,
        digest: StateDigest | None = None,
    ) -> None:
        """Write the payload. ``text`` has no part in it."""
        shape = _shape_of(state)
        for data in (
            shape.pack(_VERSIONS[profile]),
            np.asarray(state.tokens, "<u4").tobytes(),
            np.asarray(state.logits, "<f4").tobytes(),
            shape.counts.tobytes(),
        ):
            if digest is not None:
                digest.update(data)
            out.write(data)
        buffer = np.empty(0, "<f4")
        for name, (n_rows, width), dtype in shape.arrays():
            for piece in _pieces(n_rows, width):
                rows = np.ascontiguousarray(state.arrays[name][piece])
                if digest is not None:
                    (digest.update_rows if dtype == np.float16 else digest.update)(rows)
                values = rows.reshape(-1)
                if dtype == np.float16:
                    if buffer.size < rows.size:
                        buffer = np.empty(max(rows.size, _PIECE_VALUES), "<f4")
                    values = buffer[: rows.size]
                    half_rows.widen(rows, values)
                out.write(memoryview(values).cast("B"))

    def summary(self, file: BinaryIO, envelope: Envelope) -> PayloadSummary:
        """Read the fixed part, and a digest of it with tokens and logits: they name the state."""
        shape, header = _read_shape(file, envelope)
        digest = hashlib.sha256(header)
        digest.update(read_exactly(file, 4 * (shape.n_tokens + shape.n_vocab)))
        return PayloadSummary("", digest.hexdigest())

    def token_ids(self, file: BinaryIO, envelope: Envelope) -> tuple[int, ...]:
        """Read the tokens alone, unverified."""
        shape, _ = _read_shape(file, envelope)
        return read_token_ids(file, shape.n_tokens)

    def read(
        self,
        file: BinaryIO,
        envelope: Envelope,
        text: bytes,
        room: int = 0,
        digest: StateDigest | None = None,
    ) -> SessionState:
        """Read a payload. The fingerprint of the state is empty: the format has none."""
        shape, header = _read_shape(file, envelope)
        parts = [read_exactly(file, 4 * n) for n in (shape.n_tokens, shape.n_vocab)]
        counts = read_exactly(file, 8 * shape.n_layers)
        if digest is not None:
            for data in (header, *parts, counts):
                digest.update(data)
        token_ids = np.frombuffer(parts[0], "<u4")
        logits = np.frombuffer(parts[1], "<f4").copy()
        with closing(half_rows.Narrower(digest)) as narrower:
            arrays = self._read_arrays(file, shape, room, narrower, digest)
        if counts != shape.counts.tobytes():
            raise CheckpointError(
                f"its counts of compressed rows are not those of {shape.n_tokens} tokens", DAMAGED
            )
        if narrower.bad:
            raise CheckpointError(f"{narrower.bad[0]} of the state is not finite", DAMAGED)
        tokens = checked_token_ids(token_ids, shape.n_vocab)
        if not np.isfinite(logits).all():
            raise CheckpointError("the logits of the state are not finite", DAMAGED)
        bits = envelope.header.quant_bits
        return SessionState(self.family, "", shape.ctx, tokens, logits, arrays, bits)

    @staticmethod
    def _read_arrays(
        file: BinaryIO,
        shape: _Shape,
        room: int,
        narrower: half_rows.Narrower,
        digest: StateDigest | None,
    ) -> dict[str, np.ndarray]:
        arrays, n_read = {}, 0
        buffers = [np.empty(0, "<f4")] * _N_BUFFERS
        roomy = dataclasses.replace(shape, n_tokens=max(shape.n_tokens, room))
        for (name, (n_rows, width), dtype), (_, (n_memory, _), _) in zip(
            shape.arrays(), roomy.arrays(), strict=True
        ):
            array = arrays[name] = np.empty((n_memory, width), dtype)[:n_rows]
            for piece in _pieces(n_rows, width):
                rows = array[piece]
                if dtype == np.float16:
                    narrower.settle(_N_BUFFERS - 1)  # the buffer that comes is free
                    place, n_read = n_read % _N_BUFFERS, n_read + 1
                    if buffers[place].size < rows.size:
                        buffers[place] = np.empty(max(rows.size, _PIECE_VALUES), "<f4")
                    values = buffers[place][: rows.size]
                    read_into(file, values)
                    narrower.submit(name, values, rows)
                    continue
                read_into(file, rows)
                if digest is not None:
                    digest.update(rows)
                # A place without a token may hold a score of minus infinity. A NaN is its own
                # maximum.
                is_bad = np.isnan if name.endswith("score") else _is_not_finite
                if is_bad(rows.max(initial=0)) or is_bad(rows.min(initial=0)):
                    narrower.bad.append(name)
        return arrays


def _is_not_finite(value: np.float32) -> bool:
    return not np.isfinite(value)


def _pieces(n_rows: int, width: int) -> Iterator[slice]:
    step = max(1, _PIECE_VALUES // width)
    for start in range(0, n_rows, step):
        yield slice(start, min(n_rows, start + step))


def _shape_of(state: SessionState) -> _Shape:
    """Check the arrays of a state that is to be written."""
    arrays = state.arrays
    n_layers = sum(name.endswith("window") for name in arrays)
    window = arrays.get("layers.0.window")
    if window is None or window.ndim != 2 or not state.tokens or state.logits.ndim != 1:
        raise wrong_state("has no window rows, tokens or logits")
    index = arrays.get("layers.2.indexer.compressed")
    shape = _Shape(
        model_id=PRO if "layers.0.compressed" in arrays else FLASH,
        ctx=state.ctx,
        n_tokens=len(state.tokens),
        n_layers=n_layers,
        width=window.shape[1],
        index_width=128 if index is None else index.shape[1],
        n_vocab=len(state.logits),
    )
    expected = {name: (dimensions, dtype) for name, dimensions, dtype in shape.arrays()}
    if arrays.keys() != expected.keys():
        wrong = sorted(arrays.keys() ^ expected.keys())[0]
        raise wrong_state(f"has layers as no published model: {wrong} is missing or unknown")
    for name, (dimensions, dtype) in expected.items():
        if arrays[name].shape != dimensions or arrays[name].dtype != dtype:
            raise wrong_state(
                f"has {name} {arrays[name].dtype} {list(arrays[name].shape)}, "
                f"expected {np.dtype(dtype)} {list(dimensions)}"
            )
    if not 0 <= min(state.tokens) <= max(state.tokens) < shape.n_vocab:
        raise wrong_state(f"has token ids outside of 0 to {shape.n_vocab - 1}")
    if shape.n_tokens > state.ctx:
        raise wrong_state(f"has {shape.n_tokens} tokens in a context of {state.ctx}")
    return shape


def _read_shape(file: BinaryIO, envelope: Envelope) -> tuple[_Shape, bytes]:
    """Read and check the fixed part, before anything is allocated."""
    header = envelope.header
    if header.payload_bytes < _HEADER.size:
        raise CheckpointError(
            f"a state of {header.payload_bytes} bytes, expected {_HEADER.size} at least",
            "Open it with the program that wrote it: only its text was kept.",
        )
    file.seek(envelope.payload_offset)
    raw = read_exactly(file, _HEADER.size)
    magic, version, ctx, _, ring, window, room, n, n_layers, width, index_width, n_vocab, live = (
        _HEADER.unpack(raw)
    )
    if magic != MAGIC or version != _VERSIONS[header.profile]:
        raise CheckpointError(
            f"the state begins with {raw[:4]!r} version {version}, "
            f"expected b'DSV4' version {_VERSIONS[header.profile]}",
            "Open it with the program that wrote it.",
        )
    shape = _Shape(header.model_id, ctx, n, n_layers, width, index_width, n_vocab)
    if not 0 < n_layers <= _MAX_LAYERS or not 0 < max(width, index_width) <= _MAX_WIDTH:
        raise CheckpointError(
            f"a state of {n_layers} layers and rows of {width} and {index_width} values", DAMAGED
        )
    if n != header.tokens or ctx != header.ctx or not 0 < n <= ctx:
        raise CheckpointError(
            f"a state of {n} tokens in a context of {ctx}, "
            f"the header says {header.tokens} in {header.ctx}",
            DAMAGED,
        )
    if window != shape.window or live != min(n, window):
        raise CheckpointError(
            f"a window of {window} with {live} rows, "
            f"expected {shape.window} with {min(n, shape.window)}",
            DAMAGED,
        )
    # How a ring was cut up is the writer's choice (the C program's differs by device), but it held
    # the window; and it had room for a compressed row of every fourth token.
    if ring < window or room != shape.ctx // 4 + 2:
        raise CheckpointError(
            f"a ring of {ring} rows and room for {room} compressed ones, "
            f"expected {window} at least and {shape.ctx // 4 + 2}",
            DAMAGED,
        )
    if shape.n_bytes != header.payload_bytes:
        raise CheckpointError(
            f"a state of {header.payload_bytes} bytes, its counts give {shape.n_bytes}", DAMAGED
        )
    return shape, raw
