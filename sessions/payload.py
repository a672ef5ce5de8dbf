"""What a model family provides to have its states saved, and what all families have in common.

A codec knows the bytes between the text and the trailers of a checkpoint. The envelope tells
families apart by header byte 7, so a codec also owns a model id.
"""

from dataclasses import dataclass
from typing import BinaryIO, Protocol

import numpy as np

from engine.state import SessionState
from sessions.errors import CheckpointError
from sessions.kvc import Envelope, Profile, read_exactly
from sessions.state_digest import StateDigest

DAMAGED = "The file is damaged: load another session."


@dataclass(frozen=True, slots=True)
class PayloadSummary:
    """What can be told about a payload without reading its arrays."""

    fingerprint: str  # of the weights; "" when the format doesn't say
    digest: str  # hex; names these very bytes


class PayloadCodec(Protocol):
    """Reads and writes the payload of one family."""

    family: str  # as in ``SessionState.family``
    model_ids: tuple[int, ...]  # header byte 7 of the files that it reads

    def header_ids(self, state: SessionState) -> tuple[int, int]:
        """Return header bytes 7 and 4 for a state: model id and quant bits.

        Raises:
            CheckpointError: its arrays are not those of the family.
        """

    def n_bytes(self, state: SessionState) -> int:
        """Check that ``state`` can be written and return the size of its payload.

        Raises:
            CheckpointError: its arrays are not those of the family.
        """

    def write(
        self,
        state: SessionState,
        text: bytes,
        out: BinaryIO,
        profile: Profile = Profile.DS4,
        digest: StateDigest | None = None,
    ) -> None:
        """Write the payload that belongs to ``text``, in pieces of some megabytes.

        ``digest`` gets all of it where the payload has no checksum itself, else nothing.

        Raises:
            CheckpointError: there is no form of it for this revision of the C program.
        """

    def summary(self, file: BinaryIO, envelope: Envelope) -> PayloadSummary:
        """Read the fixed part of a payload.

        Raises:
            CheckpointError: it can't be a payload of this family, or it contradicts the envelope.
        """

    def token_ids(self, file: BinaryIO, envelope: Envelope) -> tuple[int, ...]:
        """Read the tokens alone, unverified.

        Raises:
            CheckpointError: as ``summary``.
        """

    def read(
        self,
        file: BinaryIO,
        envelope: Envelope,
        text: bytes,
        room: int = 0,
        digest: StateDigest | None = None,
    ) -> SessionState:
        """Read and verify a payload.

        Args:
            file: read from its payload on, front to back, each byte once.
            envelope: of the file.
            text: of the file.
            room: arrays that grow with the tokens begin memory for this many of them, so that a
                journal can be read behind what is in the file.
            digest: gets what it got from ``write``, also where the payload turns out to be wrong.

        Raises:
            CheckpointError: as ``summary``.
            ChecksumError: the text or the payload isn't what was written.
        """


def wrong_state(found: str, expected: str = "") -> CheckpointError:
    """Return what is raised for a state whose arrays are not those of its family."""
    return CheckpointError(
        f"this state can't be saved: it {found}" + (f", expected {expected}" if expected else ""),
        "Report this: it is a fault of the program, not of your session.",
    )


def read_token_ids(file: BinaryIO, n_tokens: int) -> tuple[int, ...]:
    """Read the tokens at the current position, unverified."""
    return tuple(np.frombuffer(read_exactly(file, 4 * n_tokens), "<u4").tolist())


def checked_token_ids(token_ids: np.ndarray, n_vocab: int) -> tuple[int, ...]:
    """Return the tokens of a payload, u32 [n], n at least 1.

    Raises:
        CheckpointError: one is not of the vocabulary.
    """
    if token_ids.max() >= n_vocab:
        raise CheckpointError(f"token id {token_ids.max()}, expected less than {n_vocab}", DAMAGED)
    return tuple(token_ids.tolist())
