"""A file whose bytes are counted and hashed on the way, in the pieces in which they come anyway."""

from collections.abc import Callable
from typing import BinaryIO, Protocol

# Bytes done, bytes in all. What it raises ends the reading or writing.
Progress = Callable[[int, int], None]


class Digest(Protocol):
    """What ``hashlib`` makes."""

    def update(self, data: "bytes | memoryview", /) -> None: ...

    def hexdigest(self) -> str: ...


class WatchedFile:
    """Passes everything on to a file that is read, or written, front to back.

    Bytes are hashed in the order in which they pass, so each must pass once.
    """

    def __init__(
        self,
        file: BinaryIO,
        n_bytes: int,
        progress: Progress | None = None,
        digest: Digest | None = None,
    ) -> None:
        """Watch.

        Args:
            file: left open.
            n_bytes: what will pass in all.
            progress: called after each piece.
            digest: gets every byte.
        """
        self._file = file
        self._n_bytes = n_bytes
        self._progress = progress
        self._digest = digest
        self._done = 0

    def read(self, n_bytes: int = -1) -> bytes:
        """Read as a file does."""
        data = self._file.read(n_bytes)
        self._passed(data)
        return data

    def readinto(self, view: memoryview) -> int:
        """Fill memory as a file does."""
        n_bytes = self._file.readinto(view)  # type: ignore[attr-defined] # BinaryIO hides it
        self._passed(view[:n_bytes])
        return n_bytes

    def write(self, data: bytes | memoryview) -> int:
        """Write as a file does."""
        n_bytes = self._file.write(data)
        self._passed(data)
        return n_bytes

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move as a file does."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position as a file does."""
        return self._file.tell()

    def _passed(self, data: bytes | memoryview) -> None:
        if self._digest is not None:
            self._digest.update(data)
        self._done += len(data)
        if self._progress is not None:
            self._progress(min(self._done, self._n_bytes), self._n_bytes)
