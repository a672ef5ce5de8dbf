"""Files that appear whole or not at all, and errors of the disk in plain words."""

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from sessions.errors import CheckpointError

FILE_MODE = 0o600  # conversations hold prompts, files and command output verbatim
FOLDER_MODE = 0o700
_BUFFER_BYTES = 1 << 16

_DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM, errno.EROFS}


class StagedFile:
    """A temporary file in the folder of its destination, see ``staged``."""

    def __init__(self, path: Path, temporary: Path, file: BinaryIO) -> None:
        self.path = path
        self.file = file
        self._temporary = temporary
        self.is_published = False

    def finish(self) -> None:
        """Bring everything written to the disk. Slow: call it before a lock is taken."""
        self.file.flush()
        to_disk(self.file.fileno())

    def publish(self) -> None:
        """Put the finished file in place of the old one, for this and every other process."""
        os.replace(self._temporary, self.path)
        self.is_published = True
        sync_folder(self.path.parent)


@contextlib.contextmanager
def staged(path: Path) -> Iterator[StagedFile]:
    """Write a file that replaces ``path`` at ``publish()`` and vanishes if that never happens.

    The temporary name tells the process, so that ``folder.remove_leftovers`` knows what a killed
    program left.
    """
    temporary = path.with_name(f"{path.name}.tmp.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        with open(descriptor, "w+b", buffering=_BUFFER_BYTES) as file:
            os.fchmod(descriptor, FILE_MODE)  # whatever the umask says
            staged_file = StagedFile(path, temporary, file)
            yield staged_file
            if not staged_file.is_published:
                raise AssertionError(f"{path} was staged and never published")
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def to_disk(descriptor: int) -> None:
    """Bring a file's bytes and facts to the disk itself."""
    # On macOS, fsync only reaches the drive's own memory.
    if hasattr(fcntl, "F_FULLFSYNC"):
        try:
            fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
            return
        except OSError:
            pass  # a file system that has no such thing
    os.fsync(descriptor)


def data_to_disk(descriptor: int) -> None:
    """Bring a file's bytes, and the size that they need, to the disk itself."""
    if hasattr(os, "fdatasync") and not hasattr(fcntl, "F_FULLFSYNC"):
        os.fdatasync(descriptor)
    else:
        to_disk(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the renames in ``folder`` survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems can't sync a folder and needn't
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its parents, for this user only. Existing folders keep their mode."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for path in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            path.mkdir(FOLDER_MODE)
            path.chmod(FOLDER_MODE)  # whatever the umask says


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; never wait for the other end of a pipe.

    Raises:
        CheckpointError: it is a folder, a device or a pipe.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise CheckpointError(f"{path} is not a regular file", "Move it out of the folder.")
        return open(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


@contextlib.contextmanager
def plain_errors(action: str, path: Path) -> Iterator[None]:
    """Turn errors of the disk into a ``CheckpointError`` that says what to do.

    Args:
        action: what was attempted, as in "save the session".
        path: what it was attempted on, named where the system names nothing.
    """
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str | Path) else path
        problem = f"can't {action}: {os.strerror(error.errno or errno.EIO)}: {where}"
        if error.errno in _DISK_FULL:
            hint = "Make room on this disk and try again."
        elif error.errno in _NOT_ALLOWED:
            hint = f"Allow your user to read and write {path.parent}."
        elif error.errno in (errno.ENOTDIR, errno.EEXIST):
            hint = f"Move the file away that stands where the folder {path.parent} should be."
        else:
            hint = "Check the disk and try again."
        raise CheckpointError(problem, hint) from error
