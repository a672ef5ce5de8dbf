"""The names of the files here, for completion behind ``@``. Read in a thread of its own.

What ``.gitignore`` names is left out, as are links, ``.git``, and names that cannot be shown as
they are. The walk ends at a number of names and after some seconds: a huge tree gives what was
found so far.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ds4agent.completion.fuzzy import best, subsequence
from ds4agent.readable import printable

if TYPE_CHECKING:
    from tools.grep_walk import IgnoreRule

    _Rules = list[tuple[str, list[IgnoreRule]]]  # a folder, and what its .gitignore says

MAX_NAMES = 20_000
_MAX_SECONDS = 5.0
_FRESH_S = 10.0  # a list this old is read anew when it is asked for
_MAX_IGNORE_BYTES = 1 << 16
_MAX_STARS = 6  # of one rule: more of them make matching slow, and nobody means it


@dataclass(frozen=True, slots=True)
class Entry:
    """One file, or one folder (its path ends with a slash), relative to the top."""

    path: str
    folded: str  # the path in one case, for comparing
    changed_at: float  # Unix seconds


class FileIndex:
    """The names below one folder.

    Args:
        folder: says which; asked before each walk.
    """

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._entries: tuple[Entry, ...] = ()
        self._read_at = -_FRESH_S
        self._read_folder: Path | None = None
        self._thread: threading.Thread | None = None
        self._last: tuple[str, tuple[Entry, ...]] = ("", ())

    @property
    def is_reading(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def refresh(self, on_read: Callable[[], None]) -> None:
        """Read the names again if they are not fresh; calls back from the thread when done."""
        folder = self._folder()
        is_fresh = time.monotonic() - self._read_at < _FRESH_S and folder == self._read_folder
        if self.is_reading or is_fresh:
            return
        self._thread = threading.Thread(
            target=self._read, args=(folder, on_read), name="file-index", daemon=True
        )
        self._thread.start()

    def wait(self, timeout_s: float) -> None:
        """Wait for the names that are being read, but not for ever."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    def find(self, query: str, limit: int = 8) -> list[Entry]:
        """Return what fits best; without a query, what was changed last."""
        wanted = query.casefold()
        entries = self._candidates(wanted)
        if not wanted:
            files = (entry for entry in entries if not entry.path.endswith("/"))
            return sorted(files, key=lambda entry: -entry.changed_at)[:limit]
        return best(
            wanted,
            entries,
            lambda entry: entry.folded,
            lambda entry: (entry.path.count("/"), -entry.changed_at),
            limit,
        )

    def _candidates(self, wanted: str) -> tuple[Entry, ...]:
        """Return the names that can still fit: one more letter leaves a part of those before."""
        before, narrowed = self._last
        if not (before and wanted.startswith(before)):
            narrowed = self._entries
        if wanted:
            pattern = subsequence(wanted)
            narrowed = tuple(entry for entry in narrowed if pattern.search(entry.folded))
        self._last = (wanted, narrowed)
        return narrowed

    def _read(self, folder: Path, on_read: Callable[[], None]) -> None:
        entries = tuple(walk(folder))
        self._entries = entries
        self._last = ("", ())
        self._read_at, self._read_folder = time.monotonic(), folder
        on_read()


def walk(
    folder: Path, max_names: int = MAX_NAMES, max_seconds: float = _MAX_SECONDS
) -> Iterator[Entry]:
    """Yield the entries below a folder, those near the top first."""
    deadline = time.monotonic() + max_seconds
    waiting: deque[tuple[str, _Rules]] = deque([("", [])])
    n_names = 0
    while waiting:
        inside, rules = waiting.popleft()
        try:
            with os.scandir(folder / inside) as found:
                items = sorted(found, key=lambda item: os.fsencode(item.name))
        except OSError:
            continue
        if any(item.name == ".gitignore" for item in items):
            rules = [*rules, (inside, _ignore_rules(folder / inside / ".gitignore"))]
        for item in items:
            entry = _entry(item, inside, rules)
            if entry is None:
                continue
            yield entry
            if entry.path.endswith("/"):
                waiting.append((entry.path, rules))
            n_names += 1
            if n_names >= max_names or time.monotonic() > deadline:
                return


def _entry(item: os.DirEntry[str], inside: str, rules: "_Rules") -> Entry | None:
    try:
        is_folder = item.is_dir(follow_symlinks=False)
        if not is_folder and not item.is_file(follow_symlinks=False):
            return None
        changed_at = item.stat(follow_symlinks=False).st_mtime
    except OSError:
        return None
    name = item.name
    path = inside + name
    if name == ".git" or "\n" in name or printable(name) != name or '"' in name:
        return None
    ignored = False
    for base, base_rules in rules:
        relative = path[len(base) :]
        for rule in base_rules:
            if (is_folder or not rule.folders_only) and rule.pattern.fullmatch(relative):
                ignored = not rule.is_negated
    if ignored:
        return None
    path += "/" if is_folder else ""
    return Entry(path, path.casefold(), changed_at)


def _ignore_rules(path: Path) -> "list[IgnoreRule]":
    try:
        if path.is_symlink():
            return []
        with path.open("rb") as file:
            text = file.read(_MAX_IGNORE_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    from tools.grep_walk import parse_ignore

    lines = (line for line in text.splitlines() if line.count("*") <= _MAX_STARS)
    return parse_ignore("\n".join(lines))
