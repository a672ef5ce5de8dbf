"""Two programs, one folder: who may change it now, and who has a session open.

Both locks are advisory ``flock`` locks. The system releases them when a process ends, however it
ends, so there is never a stale one.
"""

import contextlib
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from sessions.errors import CheckpointError
from sessions.safe_file import FILE_MODE

FOLDER_LOCK = ".lock"
# The folder is locked for two renames, some milliseconds. Longer means a stopped process.
FOLDER_LOCK_TIMEOUT_S = 10.0
_RETRY_S = 0.005
_MAX_HOST = 100  # letters
_PROBES = 4  # another program may look for a moment whether a session is open


@contextlib.contextmanager
def folder_lock(folder: Path, timeout_s: float = FOLDER_LOCK_TIMEOUT_S) -> Iterator[None]:
    """Keep other programs from changing ``folder`` meanwhile. Readers need no lock.

    Raises:
        CheckpointError: another process has held it all the time.
    """
    descriptor = _open_lock_file(folder / FOLDER_LOCK)
    try:
        deadline = time.monotonic() + timeout_s
        while not _try_lock(descriptor):
            if time.monotonic() >= deadline:
                raise CheckpointError(
                    f"another process keeps {folder} locked since {timeout_s:.0f} s",
                    "End stopped ds4-agent processes and try again.",
                )
            time.sleep(_RETRY_S)
        yield
    finally:
        os.close(descriptor)


class SessionLock:
    """The right to save one session, held until ``release`` or the end of a ``with`` block."""

    def __init__(self, path: Path, name: str) -> None:
        """Take the lock.

        Args:
            path: its lock file, removed at the release.
            name: how a message calls the session.

        Raises:
            CheckpointError: the session is open elsewhere; the message tells the process.
        """
        self._path = path
        while True:
            descriptor = _open_lock_file(path)
            if not _try_lock_for_a_moment(descriptor):
                owner = _owner(descriptor)
                os.close(descriptor)
                raise SessionInUse(
                    f"{name} is open in {owner}",
                    "Close it there, or open it here as a copy or read-only.",
                )
            if _is_same_file(descriptor, path):
                break
            os.close(descriptor)  # its owner removed it between our open and our lock
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # a full disk: the lock holds without a name in it
            os.ftruncate(descriptor, 0)
            host = socket.gethostname().encode("ascii", "replace").decode("ascii")[:_MAX_HOST]
            os.write(descriptor, f"{os.getpid()} {host}\n".encode("ascii"))

    def release(self) -> None:
        """Give the lock back. A second call does nothing."""
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):  # the lock ends with the descriptor in any case
            self._path.unlink()
        os.close(self._descriptor)
        self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class SessionInUse(CheckpointError):
    """The session is open in another process."""


def owner_of(path: Path) -> str:
    """Return who holds the lock file of a session, "process 12 on host", or "" when nobody does."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return ""  # the lock ends with the descriptor
    except BlockingIOError:
        return _owner(descriptor)
    finally:
        os.close(descriptor)


def _owner(descriptor: int) -> str:
    pid, _, host = os.pread(descriptor, 256, 0).decode("ascii", "replace").strip().partition(" ")
    where = f"process {pid}" if pid.isdecimal() else "an unknown process"
    return f"{where} on {host}" if host else where


def _open_lock_file(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
    if os.fstat(descriptor).st_mode & FILE_MODE != FILE_MODE:
        os.fchmod(descriptor, FILE_MODE)  # a strict umask would shut out our next process
    return descriptor


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_for_a_moment(descriptor: int) -> bool:
    for _ in range(_PROBES):
        if _try_lock(descriptor):
            return True
        time.sleep(_RETRY_S)
    return False


def _is_same_file(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
