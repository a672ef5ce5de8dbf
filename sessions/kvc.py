"""The envelope of a checkpoint file, shared with the C program.

    offset            bytes   content
    0                 48      header, see ``Header``
    48                4       length of the text, u32
    52                ...     text: the conversation as bytes, control tokens spelled out
    52 + text         ...     payload: the state of the model, ``header.payload_bytes`` long
    after the payload ...     one trailer: a tool map (flag 1) or a title (flag 8)
    anywhere after    ...     ignored

All integers are little-endian and nothing is aligned. A title trailer is its length, u32, and its
bytes; a tool map is what ``engine.chat.replay`` calls KTM. The header, with the profile ``ds4``
that we write:

    offset  type   field          profile ds4-may21, which is only read
    0       3 s    magic "KVC"
    3       u8     version, 1
    4       u8     quant bits, 2 or 4
    5       u8     reason, see ``Reason``
    6       u8     flags
    7       u8     model id       0
    8       u32    tokens, not 0
    12      u32    hits
    16      u32    context length
    20      u8     2              0
    21      3 s    zeros
    24      u64    created, Unix seconds
    32      u64    last used, Unix seconds
    40      u64    bytes of the payload

Every length is compared with the size of the file before anything is read or allocated.
"""

import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import BinaryIO

import numpy as np

from engine.chat.replay import read_ktm, write_ktm
from sessions.errors import CheckpointError

MAGIC = b"KVC"
VERSION = 1
HEADER_BYTES = 48
TEXT_OFFSET = 52  # header and the length of the text
MAX_TEXT_BYTES = 2**32 - 1
FLAG_TOOL_MAP = 1
FLAG_TITLE = 8

_MAX_TOOL_MAP_BYTES = 1 << 30  # twice what the program remembers
_HEADER = struct.Struct("<3sBBBBBIIIB3sQQQ")
_U32 = struct.Struct("<I")
_QUANT_BITS = (2, 4)
_INCOMPLETE = "The file is incomplete or damaged: load another session."


class Reason(IntEnum):
    """Why a checkpoint was written. Informational: nothing depends on it."""

    UNKNOWN = 0
    COLD = 1
    CONTINUED = 2
    EVICT = 3
    SHUTDOWN = 4
    AGENT_SYSTEM = 5
    AGENT_SESSION = 6


class Profile(Enum):
    """Which revision of the C program a file follows. The value is header byte 20."""

    DS4_MAY21 = 0
    DS4 = 2


@dataclass(frozen=True, slots=True)
class Header:
    """The fixed header. Field order is that of the file."""

    quant_bits: int
    reason: int
    flags: int
    model_id: int
    tokens: int
    hits: int
    ctx: int
    created_at: int  # Unix seconds
    last_used: int  # Unix seconds
    payload_bytes: int
    profile: Profile = Profile.DS4

    def pack(self) -> bytes:
        """Return the 48 bytes of the file."""
        return _HEADER.pack(
            MAGIC,
            VERSION,
            self.quant_bits,
            self.reason,
            self.flags,
            self.model_id,
            self.tokens,
            self.hits,
            self.ctx,
            self.profile.value,
            bytes(3),
            self.created_at,
            self.last_used,
            self.payload_bytes,
        )


@dataclass(frozen=True, slots=True)
class Envelope:
    """A header, and where the parts of its file lie."""

    header: Header
    text_bytes: int
    file_bytes: int

    @property
    def payload_offset(self) -> int:
        """Where the payload begins, bytes."""
        return TEXT_OFFSET + self.text_bytes

    @property
    def payload_end(self) -> int:
        """Where the payload ends and trailers may begin, bytes."""
        return self.payload_offset + self.header.payload_bytes


def parse_header(data: bytes) -> Header:
    """Read the header from the first 48 bytes of a file.

    Raises:
        CheckpointError: not a checkpoint, or of a variant that nobody we know writes.
    """
    if len(data) < HEADER_BYTES:
        raise CheckpointError(
            f"the file ends after {len(data)} bytes, expected {TEXT_OFFSET} at least", _INCOMPLETE
        )
    magic, version, quant, reason, flags, model_id, tokens, hits, ctx, profile, zeros, *rest = (
        _HEADER.unpack(data[:HEADER_BYTES])
    )
    created_at, last_used, payload_bytes = rest
    if magic != MAGIC:
        raise CheckpointError(
            f"not a checkpoint: it begins with {magic!r}, expected {MAGIC!r}", "Load another file."
        )
    newer = "It was written by another program or version: open it there."
    if version != VERSION:
        raise CheckpointError(f"envelope version {version}, expected {VERSION}", newer)
    if profile not in (Profile.DS4.value, Profile.DS4_MAY21.value) or zeros != bytes(3):
        found = bytes([profile]) + zeros
        raise CheckpointError(
            f"header bytes 20-23 are {found.hex(' ')}, expected 02 00 00 00", newer
        )
    if profile == Profile.DS4_MAY21.value and model_id:
        raise CheckpointError(f"model id {model_id} in a file of the first revision", newer)
    if quant not in _QUANT_BITS:
        raise CheckpointError(f"quant bits {quant}, expected 2 or 4", _INCOMPLETE)
    if tokens == 0:
        raise CheckpointError("the header counts 0 tokens, expected 1 at least", _INCOMPLETE)
    return Header(
        quant,
        reason if reason <= max(Reason) else Reason.UNKNOWN,
        flags,
        model_id,
        tokens,
        hits,
        ctx,
        created_at,
        last_used,
        payload_bytes,
        Profile(profile),
    )


def read_envelope(file: BinaryIO) -> Envelope:
    """Read the header at the start of ``file`` and check that the file holds what it promises.

    Raises:
        CheckpointError: damaged, incomplete, or not a checkpoint.
    """
    file_bytes = file.seek(0, os.SEEK_END)
    file.seek(0)
    start = file.read(TEXT_OFFSET)
    header = parse_header(start)
    if len(start) < TEXT_OFFSET:
        raise CheckpointError(
            f"the file ends after {len(start)} bytes, expected {TEXT_OFFSET} at least", _INCOMPLETE
        )
    envelope = Envelope(header, *_U32.unpack_from(start, HEADER_BYTES), file_bytes)
    if envelope.payload_end > file_bytes:
        raise CheckpointError(
            f"the file has {file_bytes} bytes, its header promises {envelope.payload_end}",
            _INCOMPLETE,
        )
    return envelope


def read_text(file: BinaryIO, envelope: Envelope) -> bytes:
    """Return the text."""
    file.seek(TEXT_OFFSET)
    return read_exactly(file, envelope.text_bytes)


def read_title(file: BinaryIO, envelope: Envelope) -> bytes | None:
    """Return the title trailer, or ``None`` where the header announces none.

    Raises:
        CheckpointError: the trailer is incomplete, or two trailers claim the same place.
    """
    flags = envelope.header.flags
    if not flags & FLAG_TITLE:
        return None
    if flags & FLAG_TOOL_MAP:
        raise CheckpointError(
            f"header flags {flags:#04x} announce both a title and a tool map", _INCOMPLETE
        )
    left = envelope.file_bytes - envelope.payload_end
    if left < _U32.size:
        raise CheckpointError(f"{left} bytes left for the length of the title", _INCOMPLETE)
    file.seek(envelope.payload_end)
    (title_bytes,) = _U32.unpack(read_exactly(file, _U32.size))
    if title_bytes > left - _U32.size:
        raise CheckpointError(
            f"the title has {title_bytes} bytes, the file {left - _U32.size}", _INCOMPLETE
        )
    return read_exactly(file, title_bytes)


def read_tool_map(file: BinaryIO, envelope: Envelope) -> list[tuple[str, bytes]]:
    """Return the tool map: (id of a call, its exact bytes). It is memory for a replay and no part
    of the state, so a damaged one gives what can be read of it, and never an error."""
    flags = envelope.header.flags
    if not flags & FLAG_TOOL_MAP or flags & FLAG_TITLE:
        return []
    file.seek(envelope.payload_end)
    left = max(0, envelope.file_bytes - envelope.payload_end)
    return read_ktm(file.read(min(left, _MAX_TOOL_MAP_BYTES)))


def read_exactly(file: BinaryIO, n_bytes: int) -> bytes:
    """Return the next ``n_bytes``, which the caller has found to be inside the file.

    Raises:
        CheckpointError: the file became shorter meanwhile.
    """
    data = file.read(n_bytes)
    if len(data) != n_bytes:
        raise CheckpointError(f"the file ended {n_bytes - len(data)} bytes early", _INCOMPLETE)
    return data


def read_into(file: BinaryIO, array: np.ndarray) -> None:
    """Fill a C-contiguous array, which the caller has found to be inside the file.

    Raises:
        CheckpointError: the file became shorter meanwhile.
    """
    view = memoryview(array.reshape(-1).view(np.uint8))
    done = 0
    while done < len(view):
        n_bytes = file.readinto(view[done:])  # type: ignore[attr-defined] # BinaryIO hides it
        if not n_bytes:
            missing = len(view) - done
            raise CheckpointError(f"the file ended {missing} bytes early", _INCOMPLETE)
        done += n_bytes


def write(
    out: BinaryIO,
    header: Header,
    text: bytes,
    write_payload: Callable[[BinaryIO], None],
    title: bytes | None = None,
    tool_map: Sequence[tuple[str, bytes]] = (),
) -> int:
    """Write a whole file and return its size.

    Args:
        out: an empty file; left open.
        header: ``payload_bytes`` must be what ``write_payload`` writes, ``flags`` must announce
            the title.
        text: at most ``MAX_TEXT_BYTES``.
        write_payload: writes the payload at the current position.
        title: the title trailer.
        tool_map: the tool map trailer, see ``engine.chat.replay``. No file has both.
    """
    assert bool(header.flags & FLAG_TITLE) == (title is not None)
    assert bool(header.flags & FLAG_TOOL_MAP) == bool(tool_map)
    if title is not None and tool_map:
        raise ValueError("a checkpoint has room for a title or a tool map, not for both")
    if len(text) > MAX_TEXT_BYTES:
        raise CheckpointError(
            f"the text has {len(text)} bytes, a checkpoint holds {MAX_TEXT_BYTES}",
            "Compact the conversation and save again.",
        )
    out.write(header.pack())
    out.write(_U32.pack(len(text)))
    out.write(text)
    write_payload(out)
    written = out.tell() - TEXT_OFFSET - len(text)
    assert written == header.payload_bytes, f"payload of {written}, not {header.payload_bytes}"
    if title is not None:
        out.write(_U32.pack(len(title)))
        out.write(title)
    out.write(write_ktm(tool_map))
    return out.tell()
