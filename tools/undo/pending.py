"""The step that is running, so that a program that is killed in it can still undo it later.

One small file for each program, locked as long as the program lives. It holds what the files were
before the step. A file that nobody locks is of a program that has died.
"""

import contextlib
import fcntl
import marshal
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tools.undo.private_folder import make_private_folder
from tools.undo.snapshot import Snapshot
from tools.undo.state import State


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A step that was cut off."""

    number: int
    title: str
    paths: tuple[str, ...] | None  # None: any path
    before: Snapshot


class Pending:
    """The running step of this program.

    Args:
        folder: of all programs in one workspace.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / secrets.token_hex(8)
        self._fd = -1

    def begin(self, step: Interrupted) -> None:
        """Keep what would be lost."""
        if self._fd < 0:
            make_private_folder(self._folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._fd = os.open(self._path, flags, 0o600)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        before = step.before
        states = {path: (s.kind, s.content, s.mode) for path, s in before.states.items()}
        data = (step.number, step.title, step.paths, states, before.stamps, before.is_complete)
        view, at = memoryview(marshal.dumps(data)), 0
        while view:  # the last room of a disk takes a part of it
            n_bytes = os.pwrite(self._fd, view, at)
            view, at = view[n_bytes:], at + n_bytes

    def end(self) -> None:
        """The step is recorded, or there was nothing to record."""
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._fd >= 0:
            with contextlib.suppress(OSError):  # not our folder any more: an empty file stays
                os.ftruncate(self._fd, 0)
                self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = -1


def interrupted(folder: Path) -> Iterator[Interrupted]:
    """Yield the steps of programs that have died. The file of one is removed when the next is
    asked for: whoever fails to record it finds it again."""
    for path in sorted(folder.glob("*")):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                data = os.pread(fd, os.fstat(fd).st_size, 0)
            except OSError:
                continue  # of a living program
            step = _read(data)
            if step is not None:
                yield step
            os.ftruncate(fd, 0)  # also where no name can be removed
            path.unlink(missing_ok=True)
        finally:
            os.close(fd)


def _read(data: bytes) -> Interrupted | None:
    """Return the step, None where there is none, or it was cut off while it was written."""
    try:
        number, title, paths, states, stamps, is_complete = marshal.loads(data)
        known = {path: State(*state) for path, state in states.items()}
    except (ValueError, EOFError, TypeError):
        return None
    return Interrupted(number, title, paths, Snapshot(known, stamps, is_complete))
