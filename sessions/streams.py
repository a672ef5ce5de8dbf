"""Files that are read or written front to back while the disk works, and hashing beside it.

Hashing takes as long as a fast disk, so it has a thread of its own. The kernel is told that a file
is read in order, and begins to write what was written, so that the disk never waits for this
program.
"""

import contextlib
import os
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import BinaryIO, Protocol

import numpy as np

# Bytes done, bytes in all. What it raises ends the reading or writing.
Progress = Callable[[int, int], None]

_MOST_PENDING = 8  # pieces that wait to be hashed; each may be some MiB
_INLINE_BYTES = 1 << 16  # less is hashed where it is: handing it over costs as much
_FLUSH_BYTES = 32 << 20  # written before the disk is set to work


def pieces_of(data: bytes | np.ndarray, n_bytes: int) -> Iterator[memoryview]:
    """Yield the memory of ``data`` in pieces of ``n_bytes``; those of an array are writable.

    Only an array that is not contiguous is copied.
    """
    if isinstance(data, np.ndarray):
        data = data.reshape(-1).view(np.uint8)
    view = memoryview(data)
    for start in range(0, len(view), n_bytes):
        yield view[start : start + n_bytes]


class Digest(Protocol):
    """What ``hashlib`` makes."""

    def update(self, data: "bytes | memoryview", /) -> None: ...

    def digest(self) -> bytes: ...

    def hexdigest(self) -> str: ...


class Aside:
    """Calls made one after the other in a thread of its own; its memory is the caller's business.

    What a call raises is raised by the ``settle`` that waits for it.
    """

    def __init__(self, thread_name: str) -> None:
        self._thread_name = thread_name
        self._pool: ThreadPoolExecutor | None = None
        self._pending: deque[Future[None]] = deque()

    def submit(self, call: Callable[..., None], *arguments: object, is_short: bool = False) -> None:
        """Make a call now or soon, in order. A short one is made at once if nothing is pending."""
        if self._pending or not is_short:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(1, thread_name_prefix=self._thread_name)
            try:
                self._pending.append(self._pool.submit(call, *arguments))
                return
            except RuntimeError:  # no more threads for this process: then it takes longer
                self.settle()
                # The call is queued there all the same, and a later thread would make it again.
                self._pool.shutdown(wait=False, cancel_futures=True)
                self._pool = None
        call(*arguments)

    def settle(self, most_pending: int = 0) -> None:
        """Wait until no more than the last so many calls are to be made."""
        while len(self._pending) > most_pending:
            self._pending.popleft().result()

    def close(self) -> None:
        """Finish, and end the thread."""
        try:
            self.settle()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None


class BackgroundDigest:
    """Hashes in a thread of its own, in the order of the updates.

    Memory that was handed over must stay as it is until ``settle`` says that it was hashed.
    """

    def __init__(self, digest: Digest) -> None:
        self._digest = digest
        self._aside = Aside("ds4-hash")

    def update(self, data: bytes | memoryview, /) -> None:
        """Hash bytes, now or soon."""
        self._aside.settle(_MOST_PENDING - 1)
        self._aside.submit(self._digest.update, data, is_short=len(data) < _INLINE_BYTES)

    def settle(self, most_pending: int = 0) -> None:
        """Wait until no more than the last so many updates are to be hashed."""
        self._aside.settle(most_pending)

    def digest(self) -> bytes:
        """Return the digest of everything."""
        self.close()
        return self._digest.digest()

    def hexdigest(self) -> str:
        """Return the digest of everything in hex."""
        self.close()
        return self._digest.hexdigest()

    def close(self) -> None:
        """End the thread. The digest can still be asked for."""
        self._aside.close()


class WatchedFile:
    """Passes everything on to a file that is read, or written, front to back."""

    def __init__(
        self,
        file: BinaryIO,
        n_bytes: int,
        progress: Progress | None = None,
    ) -> None:
        """Watch.

        Args:
            file: left open.
            n_bytes: what will pass in all.
            progress: called after each piece.
        """
        self._file = file
        self._n_bytes = n_bytes
        self._progress = progress
        self._done = 0
        self._is_in_order = False  # and the kernel knows
        self._flushed = 0
        self._flush: Future[None] | None = None
        self._flusher: ThreadPoolExecutor | None = None

    def read(self, n_bytes: int = -1) -> bytes:
        """Read as a file does."""
        self._read_in_order()
        data = self._file.read(n_bytes)
        self._passed(len(data))
        return data

    def readinto(self, view: memoryview) -> int:
        """Fill memory as a file does."""
        self._read_in_order()
        n_bytes = self._file.readinto(view)  # type: ignore[attr-defined] # BinaryIO hides it
        self._passed(n_bytes)
        return n_bytes

    def write(self, data: bytes | memoryview) -> int:
        """Write as a file does."""
        n_bytes = self._file.write(data)
        self._passed(len(data))
        if self._done - self._flushed >= _FLUSH_BYTES:
            self._start_disk()
        return n_bytes

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move as a file does."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position as a file does."""
        return self._file.tell()

    def _passed(self, n_bytes: int) -> None:
        self._done += n_bytes
        if self._progress is not None:
            self._progress(min(self._done, self._n_bytes), self._n_bytes)

    def _read_in_order(self) -> None:
        """Let the kernel read twice as far ahead as it would by itself.

        Asking for stretches (POSIX_FADV_WILLNEED) took up to twice as long: the call itself waits
        for the disk.
        """
        if self._is_in_order:
            return
        self._is_in_order = True
        with contextlib.suppress(OSError, AttributeError):  # no such call, or no file of a disk
            os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_SEQUENTIAL)

    def _start_disk(self) -> None:
        """Let the disk write what it has got, in a thread that only waits for it."""
        if self._flush is not None:
            if not self._flush.done():
                return
            self._flush.result()
        self._flushed = self._done
        if not hasattr(os, "fdatasync"):  # macOS has none, and an fsync there need not be fast
            return
        with contextlib.suppress(OSError):  # memory has no descriptor
            descriptor = self._file.fileno()
            if self._flusher is None:
                self._flusher = ThreadPoolExecutor(1, thread_name_prefix="ds4-flush")
            self._flush = self._flusher.submit(os.fdatasync, descriptor)

    def finish(self) -> None:
        """End the threads; the file stays open.

        Raises:
            OSError: the disk failed meanwhile. The kernel tells that once, so it counts here.
        """
        flush, self._flush = self._flush, None
        if self._flusher is not None:
            self._flusher.shutdown()
            self._flusher = None
        if flush is not None:
            flush.result()
