"""A whole checkpoint file: the envelope and the payload of a model family together."""

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from engine.state import SessionState
from sessions import kvc
from sessions.codecs import codec_for_family, codec_for_model_id
from sessions.errors import CheckpointError, ChecksumError, TextOnly
from sessions.payload import PayloadCodec, PayloadSummary
from sessions.safe_file import open_regular
from sessions.state_digest import StateDigest
from sessions.streams import Progress, WatchedFile

# 31 December 9999: the last day that every screen can show. A damaged header may say more.
MAX_TIME_S = 253_402_300_799


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

    def token_ids(self) -> tuple[int, ...]:
        """Return the tokens of the payload, none where it was stripped. Nothing is verified."""
        return () if self.is_stripped else self.codec.token_ids(self.file, self.envelope)

    def tool_map(self) -> list[tuple[str, bytes]]:
        """Return the exact tool calls of the conversation by their ids, oldest text first."""
        return kvc.read_tool_map(self.file, self.envelope)

    def state(
        self,
        text: bytes,
        *,
        sha256: str = "",
        room: int = 0,
        progress: Progress | None = None,
    ) -> SessionState:
        """Read and verify the payload.

        Args:
            text: what ``text()`` returned.
            sha256: what a ``StateDigest`` said when it was written; "" where nobody knows it.
            room: see ``PayloadCodec.read``.
            progress: called after each piece.

        Raises:
            TextOnly: there is none.
            ChecksumError: it isn't what was written.
            CheckpointError: it is damaged.
        """
        if self.is_stripped:
            raise TextOnly(
                "only its text was kept",
                f"/load ID prefill opens it: its {self.header.tokens} tokens are read again.",
            )
        watched = WatchedFile(self.file, self.header.payload_bytes, progress)
        problem: CheckpointError | None = None
        with contextlib.closing(StateDigest()) as digest:
            try:
                state = self.codec.read(
                    cast(BinaryIO, watched), self.envelope, text, room, digest if sha256 else None
                )
            except CheckpointError as error:
                problem = error
            finally:
                watched.finish()
            found = digest.hexdigest()
        # The checksum tells whether the bytes or the writer is wrong.
        if sha256 and found != sha256:
            raise ChecksumError(
                f"checksum of the state is {found[:16]}, expected {sha256[:16]}",
                "The file is damaged: load another session.",
            ) from problem
        if problem is not None:
            raise problem
        return state


@contextlib.contextmanager
def opened(path: Path, *, of_may21: bool = False) -> Iterator[Checkpoint]:
    """Open a checkpoint.

    Args:
        path: the file.
        of_may21: take one of the earlier revision too. The program that wrote it computed slightly
            differently, so its state is only taken where a person asked for it.

    Raises:
        ForeignFile: it is sound and belongs to another program or family.
        CheckpointError: it is damaged, incomplete or no checkpoint.
        OSError: it can't be read.
    """
    with open_regular(path) as file:
        envelope = kvc.read_envelope(file)
        yield Checkpoint(file, envelope, _codec_of(envelope.header, of_may21))


def write(
    out: BinaryIO,
    state: SessionState,
    text: bytes,
    *,
    reason: kvc.Reason,
    created_at: int,
    last_used: int,
    title: bytes | None = None,
    tool_map: Sequence[tuple[str, bytes]] = (),
    profile: kvc.Profile = kvc.Profile.DS4,
    progress: Progress | None = None,
    digest: StateDigest | None = None,
) -> Checkpoint:
    """Write a whole file into ``out``, which must be empty, and return it as it can be read.

    Args:
        out: an empty file.
        state: what is written.
        text: the rendering of its tokens.
        reason: kept in the header.
        created_at: Unix seconds.
        last_used: Unix seconds.
        title: the title trailer, of a session.
        tool_map: exact tool calls by id, of anything but a session: there is room for one trailer.
        profile: which revision of the C program is to read it. The earlier one knows no titles.
        progress: called after each piece of the payload.
        digest: gets the payload, where it has no checksum itself.

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
        flags=(0 if title is None else kvc.FLAG_TITLE) | (kvc.FLAG_TOOL_MAP if tool_map else 0),
        model_id=model_id,
        tokens=len(state.tokens),
        hits=0,
        ctx=state.ctx,
        created_at=created_at,
        last_used=last_used,
        payload_bytes=codec.n_bytes(state),
        profile=profile,
    )

    def write_payload(file: BinaryIO) -> None:
        watched = WatchedFile(file, header.payload_bytes, progress)
        try:
            codec.write(state, text, cast(BinaryIO, watched), profile, digest)
        finally:
            watched.finish()

    kvc.write(out, header, text, write_payload, title, tool_map)
    return Checkpoint(out, kvc.read_envelope(out), codec)


def reopened(file: BinaryIO) -> Checkpoint:
    """Read the envelope of a file that was just written, as ``opened`` does."""
    envelope = kvc.read_envelope(file)
    return Checkpoint(file, envelope, _codec_of(envelope.header))


def write_stripped(out: BinaryIO, checkpoint: Checkpoint, title: bytes, created_at: int) -> None:
    """Write a session without its state: the same header, text and title, and no payload.

    ``created_at`` is that of the session; the file of a fork may still have another's. The C
    program lists such a file as stripped and reads its text again.
    """
    header = dataclasses.replace(checkpoint.header, payload_bytes=0, created_at=created_at)
    kvc.write(out, header, checkpoint.text(), lambda _: None, title)


class ForeignFile(CheckpointError):
    """A sound checkpoint of another program, or of a family that we don't read yet."""


def _codec_of(header: kvc.Header, of_may21: bool = False) -> PayloadCodec:
    codec = codec_for_model_id(header.model_id)
    is_ours = header.profile is kvc.Profile.DS4 or of_may21
    if codec is None or not is_ours:
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
