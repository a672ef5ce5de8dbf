"""One entry of a workspace as it is: a file with its content, a link, a folder, or nothing.

Everything is looked at relative to a folder's descriptor and without following links: a command
may have put a link where a file was.
"""

import hashlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

MAX_FILE_BYTES = 4 << 20  # larger files are seldom written by hand
Stamp = tuple[int, int, int, int, int]  # changes when a content does: no program can set a ctime


@dataclass(frozen=True, slots=True)
class State:
    """What is at a path. Equal states are equal for a person."""

    kind: str  # "file", "link", "folder"
    content: str = ""  # of a file the SHA-256, "" when it is not known; of a link its target
    mode: int = 0  # permission bits of a file

    @property
    def is_known(self) -> bool:
        """False when the content of a file is too large, or could not be read."""
        return self.kind != "file" or self.content != ""


def stamp_of(status: os.stat_result) -> Stamp:
    """Return what tells quickly that a file was not changed."""
    return (
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_size,
        status.st_ino,
        status.st_mode,
    )


def read_state(
    folder_fd: int, name: str, keep: Callable[[bytes], str] | None = None
) -> State | None:
    """Look at one entry of an open folder.

    Args:
        folder_fd: the folder.
        name: the entry's own name.
        keep: stores a content and returns its hash; None only computes the hash.

    Returns:
        None when there is nothing, or something that is no file, link or folder.
    """
    try:
        status = os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return State("link", os.fsdecode(os.readlink(name, dir_fd=folder_fd)))
        if stat.S_ISDIR(status.st_mode):
            return State("folder")
        if not stat.S_ISREG(status.st_mode):
            return None
        mode = stat.S_IMODE(status.st_mode)
        if status.st_size > MAX_FILE_BYTES:
            return State("file", "", mode)
        data = _read(folder_fd, name)
    except FileNotFoundError:
        return None
    except OSError:
        return State("file")
    if data is None:
        return State("file", "", mode)
    # Outside of the block above: that a content cannot be kept is another failure.
    return State("file", keep(data) if keep else hashlib.sha256(data).hexdigest(), mode)


def _read(folder_fd: int, name: str) -> bytes | None:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=folder_fd)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return None
        data = file.read(MAX_FILE_BYTES + 1)
    return data if len(data) <= MAX_FILE_BYTES else None
