"""Names in a sessions folder, and what crashed programs leave there."""

import contextlib
import os
import re
import time
from pathlib import Path

from sessions.identity import is_session_id

SUFFIX = ".kv"
LOCK_SUFFIX = ".lock"
CORRUPT_SUFFIX = ".corrupt"
LEFTOVER_AGE_S = 24 * 3600.0
# `<file>.tmp.<pid>`, ours with some random digits behind it.
_TEMPORARY = re.compile(r".+\.kv(?:\.[a-z]+)?\.tmp\.(\d{1,10})(?:\.[0-9a-f]{8})?")


def session_path(folder: Path, session_id: str) -> Path:
    """Return where the checkpoint of a session lies."""
    return folder / f"{session_id}{SUFFIX}"


def lock_path(checkpoint: Path) -> Path:
    """Return the lock file that says that a session is open."""
    return checkpoint.with_name(checkpoint.name + LOCK_SUFFIX)


def session_paths(folder: Path) -> dict[str, Path]:
    """Return the files named like session checkpoints, by id. A missing folder has none."""
    found = {}
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return {}
    for name in names:
        stem = name[: -len(SUFFIX)].lower()
        if name.endswith(SUFFIX) and is_session_id(stem):
            found[stem] = folder / name
    return found


def quarantine(path: Path) -> Path:
    """Rename a broken file out of the way and return its new path. Nothing is overwritten.

    The caller holds the folder's lock.
    """
    target = path.with_name(path.name + CORRUPT_SUFFIX)
    n = 1
    while target.exists():
        n += 1
        target = path.with_name(f"{path.name}{CORRUPT_SUFFIX}.{n}")
    path.rename(target)
    return target


def remove_leftovers(folder: Path) -> None:
    """Remove temporary files older than a day whose process is gone.

    The caller holds the folder's lock.
    """
    oldest = time.time() - LEFTOVER_AGE_S
    for entry in os.scandir(folder):
        match = _TEMPORARY.fullmatch(entry.name)
        if not match or _is_running(int(match[1])):
            continue
        with contextlib.suppress(FileNotFoundError):
            if entry.stat(follow_symlinks=False).st_mtime < oldest:
                os.unlink(entry.path)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True
