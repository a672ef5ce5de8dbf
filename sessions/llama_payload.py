"""The payload of the ``llama`` family: every key and value row, bit for bit.

    offset  type        field
    0       8 s         magic "DS4LLAMA"
    8       u32         version, 1
    12      u32         L, layers, 1024 at most
    16      u32         H, key/value heads
    20      u32         D, values of a head
    24      u32         V, tokens of the vocabulary
    28      u32         T, tokens of the state, 1 at least
    32      u32         context length of the session that wrote it, T at least
    36      u32         length of the fingerprint, 1 to 64
    40      64 s        fingerprint of the weights, ASCII, filled up with zeros
    104     u32 [T]     token ids, each below V
    ...     f32 [V]     logits for the next token
    ...     for each layer: keys f16 [T, H, D], already rotated, then values f16 [T, H, D]
    ...     32 s        SHA-256 of: length of the text as u64, the text, all bytes above

All numbers are little-endian and nothing is padded, so L, H, D, V and T give the size, which must
be exactly that of the envelope. The digest covers the text too: a state whose text doesn't spell
its tokens is worth nothing. T and the context length repeat the envelope's.

Arrays go to and come from the file in pieces, straight from and into their own memory. A second
copy of the state never exists.
"""

import hashlib
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from engine.state import SessionState
from sessions.errors import CheckpointError, ChecksumError
from sessions.kvc import Envelope, Profile, read_exactly, read_into
from sessions.payload import (
    DAMAGED,
    PayloadSummary,
    checked_token_ids,
    read_token_ids,
    wrong_state,
)
from sessions.state_digest import StateDigest
from sessions.streams import BackgroundDigest, pieces_of

MAGIC = b"DS4LLAMA"
VERSION = 1
DIGEST_BYTES = 32
MAX_FINGERPRINT_BYTES = 64
MAX_LAYERS = 1024  # the largest models have some 130; a lying count must not cost memory

_HEADER = struct.Struct(f"<8s8I{MAX_FINGERPRINT_BYTES}s")
_U32_MAX = 2**32 - 1
_PIECE_BYTES = 1 << 20  # stays in the cache of a core between hashing and copying
_NEWER = "It was written by another version of this program: update it, or load another session."


@dataclass(frozen=True, slots=True)
class _Shape:
    """The fixed part of a payload."""

    n_layers: int
    n_heads: int
    head_dim: int
    n_vocab: int
    n_tokens: int
    ctx: int
    fingerprint: str

    @property
    def rows(self) -> tuple[int, int, int]:
        """Shape of the keys, and of the values, of one layer: [T, H, D]."""
        return (self.n_tokens, self.n_heads, self.head_dim)

    @property
    def n_bytes(self) -> int:
        row_values = self.n_tokens * self.n_heads * self.head_dim
        arrays = 4 * self.n_tokens + 4 * self.n_vocab + self.n_layers * 2 * 2 * row_values
        return _HEADER.size + arrays + DIGEST_BYTES

    def pack(self) -> bytes:
        return _HEADER.pack(
            MAGIC,
            VERSION,
            self.n_layers,
            self.n_heads,
            self.head_dim,
            self.n_vocab,
            self.n_tokens,
            self.ctx,
            len(self.fingerprint),
            self.fingerprint.encode("ascii"),
        )


class LlamaPayload:
    """The codec of the ``llama`` family, see the module's docstring."""

    family = "llama"
    # The C program knows the ids 0 to 6, a program derived from it those with bit 7 set. It
    # passes over files with an id that isn't its engine's, so it leaves ours alone.
    model_ids = (0x40,)
    # The envelope allows 2 and 4, the bits of a mixture's experts. There are no experts here.
    quant_bits = 4

    def header_ids(self, state: SessionState) -> tuple[int, int]:
        """Return model id and quant bits."""
        return self.model_ids[0], self.quant_bits

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
        """Write the payload that belongs to ``text``. It has a checksum, so ``digest`` gets
        nothing."""
        if profile is not Profile.DS4:
            raise CheckpointError(
                f"states of the llama family have no form of the profile {profile.name.lower()}",
                "Save it without a profile.",
            )
        shape = _shape_of(state)
        with closing(_digest_of(text)) as own:
            for part in _parts(state, shape):
                for piece in pieces_of(part, _PIECE_BYTES):
                    own.update(piece)
                    out.write(piece)
            out.write(own.digest())

    def summary(self, file: BinaryIO, envelope: Envelope) -> PayloadSummary:
        """Read the fixed part of a payload, and its digest without verifying it."""
        shape = _read_shape(file, envelope)
        file.seek(envelope.payload_end - DIGEST_BYTES)
        return PayloadSummary(shape.fingerprint, read_exactly(file, DIGEST_BYTES).hex())

    def token_ids(self, file: BinaryIO, envelope: Envelope) -> tuple[int, ...]:
        """Read the tokens alone, unverified."""
        shape = _read_shape(file, envelope)
        file.seek(envelope.payload_offset + _HEADER.size)
        return read_token_ids(file, shape.n_tokens)

    def read(
        self,
        file: BinaryIO,
        envelope: Envelope,
        text: bytes,
        room: int = 0,
        digest: StateDigest | None = None,
    ) -> SessionState:
        """Read and verify a payload."""
        shape = _read_shape(file, envelope)
        with closing(_digest_of(text)) as own:
            own.update(shape.pack())
            return self._read(file, envelope, shape, own, room)

    def _read(
        self,
        file: BinaryIO,
        envelope: Envelope,
        shape: _Shape,
        digest: BackgroundDigest,
        room: int,
    ) -> SessionState:
        try:
            token_ids = np.empty(shape.n_tokens, "<u4")
            logits = np.empty(shape.n_vocab, "<f4")
            memory = (max(shape.n_tokens, room), *shape.rows[1:])
            arrays = {
                f"layers.{layer}.{name}": np.empty(memory, "<f2")[: shape.n_tokens]
                for layer in range(shape.n_layers)
                for name in "kv"
            }
        except MemoryError as error:
            raise CheckpointError(
                f"not enough memory for its {shape.n_bytes / 2**20:.0f} MiB",
                "Close other programs and try again.",
            ) from error
        file.seek(envelope.payload_offset + _HEADER.size)
        for array in (token_ids, logits, *arrays.values()):
            for piece in pieces_of(array, _PIECE_BYTES):
                read_into(file, np.frombuffer(piece, np.uint8))
                digest.update(piece)
        expected = read_exactly(file, DIGEST_BYTES)
        if digest.digest() != expected:
            raise ChecksumError(
                f"checksum of text and state is {digest.digest().hex()[:16]}, "
                f"expected {expected.hex()[:16]}",
                DAMAGED,
            )
        tokens = checked_token_ids(token_ids, shape.n_vocab)
        return SessionState(self.family, shape.fingerprint, shape.ctx, tokens, logits, arrays)


def _shape_of(state: SessionState) -> _Shape:
    """Check the arrays of a state that is to be written."""
    n_layers, left = divmod(len(state.arrays), 2)
    names = [f"layers.{layer}.{name}" for layer in range(n_layers) for name in "kv"]
    if left or n_layers > MAX_LAYERS or any(name not in state.arrays for name in names):
        raise wrong_state(f"has the arrays {sorted(state.arrays)[:4]}", "layers.<i>.k and .v")
    first = state.arrays[names[0]].shape if names else (len(state.tokens), 0, 0)
    if not state.tokens or len(first) != 3 or first[0] != len(state.tokens):
        raise wrong_state(f"has {len(state.tokens)} tokens and rows {first}", "[tokens, H, D]")
    for name in names:
        array = state.arrays[name]
        if array.shape != first or array.dtype != np.float16:
            raise wrong_state(f"has {name} {array.dtype} {array.shape}", f"float16 {first}")
    if state.logits.ndim != 1 or state.logits.dtype != np.float32:
        raise wrong_state(f"has logits {state.logits.dtype} {state.logits.shape}", "float32 [V]")
    n_vocab = len(state.logits)
    for token_id in (min(state.tokens), max(state.tokens)):
        if not 0 <= token_id < n_vocab:
            raise wrong_state(f"has the token id {token_id}", f"0 to {n_vocab - 1}")
    if not len(state.tokens) <= state.ctx <= _U32_MAX:
        raise wrong_state(f"has {len(state.tokens)} tokens", f"{state.ctx} (its context) at most")
    if not state.fingerprint.isascii() or not 1 <= len(state.fingerprint) <= MAX_FINGERPRINT_BYTES:
        raise wrong_state(f"has the fingerprint {state.fingerprint!r}", "1 to 64 ASCII letters")
    return _Shape(
        n_layers, first[1], first[2], n_vocab, len(state.tokens), state.ctx, state.fingerprint
    )


def _read_shape(file: BinaryIO, envelope: Envelope) -> _Shape:
    """Read and check the fixed part, before anything is allocated."""
    header = envelope.header
    if header.profile is not Profile.DS4 or header.quant_bits != LlamaPayload.quant_bits:
        raise CheckpointError(
            f"header with profile {header.profile.name} and {header.quant_bits} quant bits, "
            f"expected {Profile.DS4.name} and {LlamaPayload.quant_bits}",
            DAMAGED,
        )
    smallest = _HEADER.size + DIGEST_BYTES
    if header.payload_bytes < smallest:
        raise CheckpointError(
            f"a state of {header.payload_bytes} bytes, expected {smallest} at least", DAMAGED
        )
    file.seek(envelope.payload_offset)
    magic, version, *counts, fingerprint_bytes, padded = _HEADER.unpack(
        read_exactly(file, _HEADER.size)
    )
    if magic != MAGIC:
        raise CheckpointError(f"the state begins with {magic!r}, expected {MAGIC!r}", DAMAGED)
    if version != VERSION:
        raise CheckpointError(f"state version {version}, expected {VERSION}", _NEWER)
    fingerprint = padded[:fingerprint_bytes]
    if (
        not 1 <= fingerprint_bytes <= MAX_FINGERPRINT_BYTES
        or not fingerprint.isascii()
        or padded != fingerprint.ljust(MAX_FINGERPRINT_BYTES, b"\0")
    ):
        raise CheckpointError(f"fingerprint {padded!r} of length {fingerprint_bytes}", DAMAGED)
    shape = _Shape(*counts, fingerprint.decode("ascii"))
    if shape.n_layers > MAX_LAYERS:
        raise CheckpointError(
            f"a state of {shape.n_layers} layers, expected {MAX_LAYERS} at most", DAMAGED
        )
    if shape.n_bytes != header.payload_bytes:
        raise CheckpointError(
            f"a state of {header.payload_bytes} bytes, its counts give {shape.n_bytes}", DAMAGED
        )
    if shape.n_tokens != header.tokens or shape.ctx != header.ctx or shape.ctx < shape.n_tokens:
        raise CheckpointError(
            f"a state of {shape.n_tokens} tokens in a context of {shape.ctx}, "
            f"the header says {header.tokens} in {header.ctx}",
            DAMAGED,
        )
    return shape


def _parts(state: SessionState, shape: _Shape) -> Iterator[bytes | np.ndarray]:
    """Yield what the payload consists of, up to its digest."""
    yield shape.pack()
    yield np.asarray(state.tokens, "<u4")
    yield np.asarray(state.logits, "<f4")
    for layer in range(shape.n_layers):
        for name in "kv":
            yield np.asarray(state.arrays[f"layers.{layer}.{name}"], "<f2")


def _digest_of(text: bytes) -> BackgroundDigest:
    """Begin the digest of a payload that belongs to ``text``."""
    digest = BackgroundDigest(hashlib.sha256(len(text).to_bytes(8, "little")))
    digest.update(text)
    return digest
