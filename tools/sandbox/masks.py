"""Empty folders that stand in for protected folders a workspace does not have.

A folder must exist to be mounted read-only, so a missing ``.git`` is created empty for the time of
a command and removed afterwards. Two commands may overlap, also of two programs, and removing the
folder under a running command would remove its protection. So a small register per workspace
counts: each command holds a shared lock while it runs, and whoever is last removes what the
register names, if it is still the same folder and still empty. After a crash the next command
does it, or the next start of the program in that workspace.
"""

import fcntl
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tools.errors import SandboxUnavailable
from tools.sandbox.scan import WorkspaceScan, scan_workspace

_UNKNOWN = 0  # no folder has this inode


@contextmanager
def scanned_and_masked(root: Path, *, creates: bool = True) -> Iterator[WorkspaceScan]:
    """Scan the workspace and create what it lacks; remove that again when the block ends.

    The scan happens under the lock. Else it could see a folder of another command that is gone
    when bubblewrap looks for it.
    """
    with _register_of(root) as (register, users):
        created = _load(register)
        scan = scan_workspace(root)
        if creates and scan.masks:
            # Before and after: a kill may come at any time.
            _store(register, [*created, *_planned(root, scan.masks)])
            for mask in scan.masks:
                created += _create(root, mask)
            _store(register, created)
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(register, fcntl.LOCK_UN)
        try:
            yield scan
        finally:
            fcntl.flock(register, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_UN)
            _sweep(register, users)


def remove_leftovers(root: Path) -> None:
    """Remove what a command left in the workspace whose program was killed."""
    with _register_of(root) as (register, users):
        _sweep(register, users)


@contextmanager
def _register_of(root: Path) -> Iterator[tuple[int, int]]:
    """Open a workspace's register, locked, and the file that its running commands lock."""
    name = hashlib.sha1(os.fsencode(root)).hexdigest()[:20]
    folder = _register_folder()
    register = os.open(folder / f"{name}.masks", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    users = os.open(folder / f"{name}.users", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(register, fcntl.LOCK_EX)
        yield register, users
    finally:
        os.close(users)
        os.close(register)


def _sweep(register: int, users: int) -> None:
    """Remove what the register names, unless a command is running."""
    if _is_last(users):
        for path, inode in reversed(_load(register)):
            _remove_if_ours(path, inode)
        _store(register, [])


def _register_folder() -> Path:
    folder = Path(tempfile.gettempdir()) / f"ds4-agent-{os.geteuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
        raise SandboxUnavailable(f"{folder} belongs to somebody else", "Remove it.")
    return folder


def _planned(root: Path, masks: Iterable[Path]) -> list[tuple[str, int]]:
    """Return the folders that do not exist yet; their inode is not known."""
    paths = dict.fromkeys(path for mask in masks for path in _folders(root, mask))
    return [(str(path), _UNKNOWN) for path in paths if not os.path.lexists(path)]


def _folders(root: Path, mask: Path) -> list[Path]:
    """Return a mask with its parents inside the workspace, the outermost first."""
    parents = [path for path in mask.parents if path != root and path.is_relative_to(root)]
    return [*reversed(parents), mask]


def _create(root: Path, mask: Path) -> list[tuple[str, int]]:
    created = []
    for path in _folders(root, mask):
        # Not through a link: a command that runs at the same time may put one there.
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.mkdir(path.name, 0o755, dir_fd=folder)
            inode = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_ino
            created.append((str(path), inode))
        except FileExistsError:
            continue
        finally:
            os.close(folder)
    return created


def _remove_if_ours(path: str, inode: int) -> None:
    try:
        if inode in (_UNKNOWN, os.lstat(path).st_ino):
            os.rmdir(path)  # fails, as it should, when somebody put something in
    except OSError:
        return


def _is_last(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _load(register: int) -> list[tuple[str, int]]:
    line, _, _ = os.pread(register, 1 << 20, 0).partition(b"\n")
    try:
        return [(str(path), int(inode)) for path, inode in json.loads(line or b"[]")]
    except ValueError:
        return []


def _store(register: int, entries: list[tuple[str, int]]) -> None:
    data = json.dumps(entries).encode("utf-8") + b"\n"
    # The first line counts, so that it is whole at every moment: nothing is cut off before.
    os.pwrite(register, data, 0)
    os.ftruncate(register, len(data))
