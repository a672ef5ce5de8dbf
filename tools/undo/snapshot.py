"""All entries of a workspace, so that what a shell command changes can be found and taken back.

Before a command every content is kept that is not kept yet; afterwards only what has another
stamp is read. The first time that costs the reading of the whole project, so it is bounded in time
and number: shallow folders first, and what is left has an unknown content. A change of such a
file is found all the same, but cannot be taken back, and that is said.
"""

import functools
import operator
import os
import stat
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tools.protected import is_hidden, is_protected_name
from tools.undo.state import Stamp, State, read_state, stamp_of

# Installed packages and what tools can make again. Commands may change it; it is not kept.
SKIPPED = frozenset(
    ("node_modules", "site-packages", "__pycache__", ".pytest_cache", ".ruff_cache", ".mypy_cache")
)
MAX_ENTRIES = 30_000
MAX_SECONDS = 2.0  # for one look; contents that were kept stay kept, so the next look gets further
_FOLDER = State("folder")
_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Snapshot:
    """What was found: a state and a stamp for each path relative to the workspace."""

    states: dict[str, State] = field(default_factory=dict)
    stamps: dict[str, Stamp] = field(default_factory=dict)
    is_complete: bool = True  # False: there are more entries than were looked at


def take_snapshot(
    root_fd: int,
    keep: Callable[[bytes], str],
    earlier: Snapshot | None = None,
    *,
    max_entries: int = MAX_ENTRIES,
    max_seconds: float = MAX_SECONDS,
) -> Snapshot:
    """Look at all entries and keep what is new.

    Args:
        root_fd: the workspace.
        keep: stores a content and returns its hash.
        earlier: contents of files with the same stamp are taken from here.
        max_entries: how many are looked at.
        max_seconds: after this, contents are not read any more.

    Raises:
        OSError: a content could not be kept. Passing over its file would make it one that the
            command created, and undo would remove it.
    """
    deadline = time.monotonic() + max_seconds
    found = Snapshot()
    old = earlier or Snapshot()
    # This runs twice a command: what is looked up for each file is looked up once.
    states, stamps = found.states, found.stamps
    known_state, known_stamp = old.states.get, old.stamps.get
    pending = deque([""])
    while pending:
        folder = pending.popleft()
        try:
            fd = os.open(folder or ".", _FLAGS, dir_fd=root_fd)
        except OSError:
            continue
        try:
            for entry in _entries(fd):
                name = entry.name
                kind = _kind(name)
                if kind == "skipped":
                    continue
                if len(states) >= max_entries:
                    found.is_complete = False
                    return found
                path = f"{folder}/{name}" if folder else name
                try:
                    if entry.is_dir(follow_symlinks=False):
                        states[path] = _FOLDER
                        pending.append(path)
                        continue
                    if kind == "secret":
                        continue  # secrets are not copied; no command can read or change them
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                stamp = stamp_of(status)
                known = known_state(path)
                if known is not None and known_stamp(path) == stamp and known.is_known:
                    state: State | None = known
                elif time.monotonic() > deadline:
                    state = State("file", "", stat.S_IMODE(status.st_mode))
                else:
                    state = read_state(fd, name, keep)
                if state is not None:
                    states[path] = state
                    stamps[path] = stamp
        finally:
            os.close(fd)
    return found


def _entries(fd: int) -> list[os.DirEntry[str]]:
    """Return what is in an open folder, by name; nothing where it cannot be read."""
    try:
        with os.scandir(fd) as entries:
            return sorted(entries, key=_name)
    except OSError:
        return []


@functools.lru_cache(4096)
def _kind(name: str) -> str:
    """Tell from its name how an entry is treated; most names come again with each look."""
    if name in SKIPPED or is_protected_name(name):
        return "skipped"
    return "secret" if is_hidden(name) else ""


_name = operator.attrgetter("name")


def differences(before: Snapshot, after: Snapshot) -> dict[str, tuple[State | None, State | None]]:
    """Return what changed between two looks: path -> (state before, state after)."""
    changed = {}
    for path in before.states.keys() | after.states.keys():
        old, new = before.states.get(path), after.states.get(path)
        if old == new and (old is None or old.is_known):
            continue
        if old == new and before.stamps.get(path) == after.stamps.get(path):
            continue
        if old is None and not before.is_complete:
            continue  # perhaps it was there, and only not looked at
        if new is None and not after.is_complete:
            continue
        changed[path] = (old, new)
    return changed
