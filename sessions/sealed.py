"""A stream under a passphrase: scrypt makes the key, ChaCha20-Poly1305 seals every chunk.

    16 s    salt
    u8      log2 N of scrypt, then r and p, each u8
    chunks  u32 length of the sealed bytes, the sealed bytes

A chunk is 1 MiB of the stream, the last one shorter, and 16 bytes longer when it is sealed. Its
nonce is its number: the salt is random, so no key is ever used for a second file. What a chunk is
sealed with besides says whether it is the last one, and repeats salt and parameters: chunks cannot
be left out, put elsewhere or cut off unnoticed.

All of the cryptography is the package ``cryptography``, an optional dependency. scrypt: RFC 7914;
ChaCha20-Poly1305: RFC 8439.
"""

import os
import struct
from typing import BinaryIO, Protocol

from sessions.errors import CheckpointError

_SALT_BYTES = 16
_PARAMETERS = struct.Struct("<BBB")
_LENGTH = struct.Struct("<I")
_LOG2_N, _R, _P = 16, 8, 1  # 64 MiB of memory and some 0.2 s for every guess
_MAX_SCRYPT_BYTES = 256 << 20  # what a file may ask of this machine
CHUNK_BYTES = 1 << 20
_TAG_BYTES = 16
_DAMAGED = "The file is damaged: copy or export it again."


def require_cryptography() -> None:
    """Say what to install when passphrases cannot work here.

    Raises:
        CheckpointError: the package is missing.
    """
    try:
        import cryptography  # noqa: F401
    except ImportError as error:
        raise CheckpointError(
            "a passphrase needs the Python package cryptography, which is not installed",
            "Install it with `pip install cryptography`, or leave the passphrase out.",
        ) from error


class SealedWriter:
    """A file for writing whose bytes are sealed on their way to another one."""

    def __init__(self, out: BinaryIO, passphrase: str) -> None:
        """Write salt and parameters; this takes some 0.2 s."""
        require_cryptography()
        salt = os.urandom(_SALT_BYTES)
        self._head = salt + _PARAMETERS.pack(_LOG2_N, _R, _P)
        out.write(self._head)
        self._out = out
        self._cipher = _cipher(passphrase, salt, _LOG2_N, _R, _P)
        self._held = bytearray()
        self._n_chunks = 0

    def write(self, data: bytes | memoryview) -> int:
        """Take bytes of the stream."""
        self._held += data
        while len(self._held) > CHUNK_BYTES:  # not >=: the last chunk must be known as the last
            self._seal(bytes(self._held[:CHUNK_BYTES]), is_last=False)
            del self._held[:CHUNK_BYTES]
        return len(data)

    def finish(self) -> None:
        """Seal the rest. The file below is left open."""
        self._seal(bytes(self._held), is_last=True)
        self._held.clear()

    def _seal(self, chunk: bytes, is_last: bool) -> None:
        sealed = self._cipher.encrypt(_nonce(self._n_chunks), chunk, self._head + bytes([is_last]))
        self._n_chunks += 1
        self._out.write(_LENGTH.pack(len(sealed)))
        self._out.write(sealed)


class SealedReader:
    """The stream of a sealed file. Nothing is returned before it was proved."""

    def __init__(self, file: BinaryIO, passphrase: str) -> None:
        """Read salt and parameters.

        Raises:
            CheckpointError: they are none, or the package is missing.
        """
        require_cryptography()
        self._head = file.read(_SALT_BYTES + _PARAMETERS.size)
        if len(self._head) != _SALT_BYTES + _PARAMETERS.size:
            raise CheckpointError("the file ends in its first bytes", _DAMAGED)
        log2_n, r, p = _PARAMETERS.unpack_from(self._head, _SALT_BYTES)
        if not (1 <= log2_n <= 24 and r and p <= 4 and p) or (128 * r << log2_n) > (
            _MAX_SCRYPT_BYTES
        ):
            raise CheckpointError(f"scrypt with N = 2^{log2_n}, r = {r}, p = {p}", _DAMAGED)
        self._file = file
        self._cipher = _cipher(passphrase, self._head[:_SALT_BYTES], log2_n, r, p)
        self._held = memoryview(b"")
        self._n_chunks = 0
        self._is_over = False

    def read(self, n_bytes: int) -> bytes:
        """Return the next bytes, fewer only at the end of the stream.

        Raises:
            CheckpointError: another passphrase, or another file than the one that was written.
        """
        parts = []
        while n_bytes > 0:
            if not self._held:
                if self._is_over:
                    break
                self._held = memoryview(self._next_chunk())
                continue
            part = self._held[:n_bytes]
            self._held = self._held[len(part) :]
            n_bytes -= len(part)
            parts.append(part)
        return b"".join(parts)

    def _next_chunk(self) -> bytes:
        raw = self._file.read(_LENGTH.size)
        length = _LENGTH.unpack(raw)[0] if len(raw) == _LENGTH.size else 0
        if not _TAG_BYTES <= length <= CHUNK_BYTES + _TAG_BYTES:
            raise CheckpointError("a sealed chunk is missing or has an impossible length", _DAMAGED)
        sealed = self._file.read(length)
        # Only the last chunk may be short; it may be full as well, so both are tried then.
        for is_last in (True, False) if length < CHUNK_BYTES + _TAG_BYTES else (False, True):
            chunk = self._open(sealed, is_last)
            if chunk is not None:
                self._n_chunks += 1
                self._is_over = is_last
                return chunk
        if self._n_chunks:
            raise CheckpointError(f"chunk {self._n_chunks + 1} was changed", _DAMAGED)
        raise CheckpointError(
            "the passphrase is wrong, or the file was changed",
            "Type the passphrase that the session was exported with.",
        )

    def _open(self, sealed: bytes, is_last: bool) -> bytes | None:
        from cryptography.exceptions import InvalidTag

        try:
            return self._cipher.decrypt(
                _nonce(self._n_chunks), sealed, self._head + bytes([is_last])
            )
        except InvalidTag:
            return None


class _Cipher(Protocol):
    """What is used of the package's cipher."""

    def encrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes: ...

    def decrypt(self, nonce: bytes, data: bytes, associated_data: bytes) -> bytes: ...


def _cipher(passphrase: str, salt: bytes, log2_n: int, r: int, p: int) -> _Cipher:
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    key = Scrypt(salt=salt, length=32, n=1 << log2_n, r=r, p=p).derive(passphrase.encode("utf-8"))
    return ChaCha20Poly1305(key)


def _nonce(number: int) -> bytes:
    return number.to_bytes(12, "little")
