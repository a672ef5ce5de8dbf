"""A whole checkpoint file: the envelope and the payload of a model family together."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from engine.state import SessionState
from sessions import kvc
from sessions.codecs import codec_for_family, codec_for_model_id
from sessions.errors import CheckpointError, TextOnly
from sessions.payload import PayloadCodec, PayloadSummary
from sessions.safe_file import open_regular

# 31 December 9999: the last day that every screen can show. A damaged header may say more.
MAX_TIME_S = 253_402_300_799
_PIECE_BYTES = 1 << 20  # hashed at a time


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An open file with a sound envelope, of a family that we read."""

    file: BinaryIO
    envelope: kvc.Envelope
    codec: PayloadCodec

    @property
    def header(self) -> kvc.Header:
        """The fixed header of the file."""
        return self.envelope.header

    def text(self) -> bytes:
        """Return the conversation as bytes."""
        return kvc.read_text(self.file, self.envelope)

    def title(self) -> bytes | None:
        """Return the title trailer."""
        return kvc.read_title(self.file, self.envelope)

    @property
    def is_stripped(self) -> bool:
        """Whether there is no payload: the text of a session and nothing else."""
        return not self.header.payload_bytes

    def summary(self) -> PayloadSummary:
        """Return what the payload says about itself."""
        if self.is_stripped:
            return PayloadSummary("", hashlib.sha256(self.text()).hexdigest())
        return self.codec.summary(self.file, self.envelope)

    def payload_sha256(self) -> str:
        """Hash the payload; hex digits."""
        digest = hashlib.sha256()
        self.file.seek(self.envelope.payload_offset)
        left = self.header.payload_bytes
        while left:
            piece = kvc.read_exactly(self.file, min(left, _PIECE_BYTES))
            digest.update(piece)
            left -= len(piece)
        return digest.hexdigest()

    def token_ids(self) -> tuple[int, ...]:
        """Return the tokens of the payload, none where it was stripped. Nothing is verified."""
        return () if self.is_stripped else self.codec.token_ids(self.file, self.envelope)

    def state(self, text: bytes) -> SessionState:
        """Read and verify the payload; ``text`` is what ``text()`` returned.

        Raises:
            TextOnly: there is none.
            CheckpointError: it is damaged.
        """
        if self.is_stripped:
            raise TextOnly(
                "only its text was kept",
                f"Load it with --prefill: its {self.header.tokens} tokens are then read again.",
            )
        return self.codec.read(self.file, self.envelope, text)


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Checkpoint]:
    """Open a checkpoint.

    Raises:
        ForeignFile: it is sound and belongs to another program or family.
        CheckpointError: it is damaged, incomplete or no checkpoint.
        OSError: it can't be read.
    """
    with open_regular(path) as file:
        envelope = kvc.read_envelope(file)
        yield Checkpoint(file, envelope, _codec_of(envelope.header))


def write(
    out: BinaryIO,
    state: SessionState,
    text: bytes,
    *,
    reason: kvc.Reason,
    created_at: int,
    last_used: int,
    title: bytes | None = None,
) -> Checkpoint:
    """Write a whole file into ``out``, which must be empty, and return it as it can be read.

    Raises:
        CheckpointError: the state can't be saved.
    """
    if not 0 <= created_at <= MAX_TIME_S:
        raise ValueError(f"created_at {created_at}, expected Unix seconds")
    codec = codec_for_family(state.family)
    model_id, quant_bits = codec.header_ids(state)
    header = kvc.Header(
        quant_bits=quant_bits,
        reason=reason,
        flags=0 if title is None else kvc.FLAG_TITLE,
        model_id=model_id,
        tokens=len(state.tokens),
        hits=0,
        ctx=state.ctx,
        created_at=created_at,
        last_used=last_used,
        payload_bytes=codec.n_bytes(state),
    )
    kvc.write(out, header, text, lambda file: codec.write(state, text, file), title)
    return Checkpoint(out, kvc.read_envelope(out), codec)


def reopened(file: BinaryIO) -> Checkpoint:
    """Read the envelope of a file that was just written, as ``opened`` does."""
    envelope = kvc.read_envelope(file)
    return Checkpoint(file, envelope, _codec_of(envelope.header))


def write_stripped(out: BinaryIO, checkpoint: Checkpoint, title: bytes, last_used: int) -> None:
    """Write a session without its state: the same header, text and title, and no payload.

    The C program lists such a file as stripped and reads its text again.
    """
    header = dataclasses.replace(checkpoint.header, payload_bytes=0, last_used=last_used)
    kvc.write(out, header, checkpoint.text(), lambda _: None, title)


class ForeignFile(CheckpointError):
    """A sound checkpoint of another program, or of a family that we don't read yet."""


def _codec_of(header: kvc.Header) -> PayloadCodec:
    codec = codec_for_model_id(header.model_id)
    if codec is None or header.profile is not kvc.Profile.DS4:
        raise ForeignFile(
            f"written for the model family {header.model_id} "
            f"(profile {header.profile.name.lower()}), which isn't read here",
            "Open it with the program that wrote it.",
        )
    if not header.payload_bytes and not header.flags & kvc.FLAG_TITLE:
        raise ForeignFile(
            "it holds the text of a conversation and no state",
            "Open it with the program that wrote it.",
        )
    return codec
