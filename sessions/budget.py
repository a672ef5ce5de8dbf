"""Room on the disk: which sessions are worth least, and taking away their states.

The score is that of the C program: tokens that a hit saves for each byte, more for files that were
used often and lately, more for the anchors of a server, far less for what a longer file covers.

    score = (h + 1) tokens / bytes,  h = hits halved every six hours since the last use
    twice that for the reasons cold, evict and shutdown
    times 0.05 + 0.45 h / (h + 1) where a longer saved text begins with this one's

The lowest goes first. What a person said is never removed by this: a session is *stripped*, its
text stays and can be read again by the model. Sessions that are pinned or open are passed over.
Forks share a file, and its bytes become free with the last of them. The journal beside a checkpoint
counts too, and goes with its state; the score is of the checkpoint alone. Files of a server hold no
conversation of ours; they are a cache and go whole.
"""

import contextlib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sessions import checkpoint, folder, journal, kvc, marks, side_file, upkeep
from sessions.errors import CheckpointError
from sessions.identity import text_id
from sessions.locks import folder_lock, owner_of
from sessions.safe_file import plain_errors
from sessions.store import SessionStore

HIT_HALF_LIFE_S = 21600  # session-file policy of the C program
MIN_EFFECTIVE_HITS = 0.01
_ANCHORS = (kvc.Reason.COLD, kvc.Reason.EVICT, kvc.Reason.SHUTDOWN)


@dataclass(frozen=True, slots=True)
class Entry:
    """One checkpoint as the score sees it."""

    path: Path
    id: str
    label: str
    header: kvc.Header
    file_bytes: int  # of the checkpoint
    is_session: bool  # a conversation of the agent, not the cache of a server
    inode: tuple[int, int] = (0, 0)  # of the file: forks share one
    kept_because: str = ""  # "pinned", "open in ...", "" when it may go
    journal_bytes: int = 0  # of the journal beside it, which no other has

    @property
    def n_bytes(self) -> int:
        """What it takes with its journal."""
        return self.file_bytes + self.journal_bytes

    @property
    def is_stripped(self) -> bool:
        """Whether nothing can be won here."""
        return not self.header.payload_bytes


@dataclass(frozen=True, slots=True)
class Plan:
    """What has to go so that the rest fits."""

    total_bytes: int  # of checkpoints and journals now; a file that forks share counts once
    freed_bytes: int  # by the victims; a stripped session keeps its text of some kilobytes
    budget_bytes: int
    victims: tuple[Entry, ...]  # in the order in which they go
    kept: tuple[Entry, ...]  # would have gone by their score

    @property
    def is_enough(self) -> bool:
        """Whether the rest fits."""
        return self.total_bytes - self.freed_bytes <= self.budget_bytes


def score(header: kvc.Header, file_bytes: int, now: float, is_superseded: bool = False) -> float:
    """Return what a checkpoint is worth; the lowest goes first.

    Args:
        header: of the file.
        file_bytes: its size.
        now: Unix seconds.
        is_superseded: a longer file covers it.
    """
    if not file_bytes:
        return 0.0
    hits = _decayed_hits(header, now)
    worth = (hits + 1) * header.tokens / file_bytes
    if header.reason in _ANCHORS:
        worth *= 2.0
    if is_superseded:
        worth *= 0.05 + 0.45 * hits / (hits + 1)
    return worth


def _decayed_hits(header: kvc.Header, now: float) -> float:
    used = header.last_used or header.created_at
    if not used:
        return 0.0
    if now <= used:  # a clock that was set back: no decay
        return float(header.hits)
    hits = header.hits * 2.0 ** (-(now - used) / HIT_HALF_LIFE_S)
    return 0.0 if hits < MIN_EFFECTIVE_HITS else hits


def plan(store: SessionStore, budget_bytes: int, now: float | None = None) -> Plan:
    """Decide what has to go so that everything together takes ``budget_bytes`` at most.

    Args:
        store: the sessions.
        budget_bytes: for everything that lists count, pinned and open sessions too.
        now: Unix seconds; the present when None.

    Raises:
        CheckpointError: the folder can't be read.
    """
    now = time.time() if now is None else now
    entries = []
    covered = _Covered()
    with plain_errors("look at the sessions", store.folder / folder.SUFFIX):
        paths = folder.session_paths(store.folder)
    for identifier, path in paths.items():
        # Unreadable files are neither counted nor removed: they may be somebody's copy in progress.
        with contextlib.suppress(CheckpointError, OSError), checkpoint.opened(path) as opened:
            entries.append(_entry(opened, identifier, path))
            covered.add(opened)
    scored = [
        (score(e.header, e.file_bytes, now, covered.is_covered(e)), e.header.last_used, i)
        for i, e in enumerate(entries)
    ]
    names_left = Counter(entry.inode for entry in entries)
    total = sum({entry.inode: entry.file_bytes for entry in entries}.values())
    total += sum(entry.journal_bytes for entry in entries)
    left, victims, kept = total, [], []
    for _, _, i in sorted(scored):
        if left <= budget_bytes:
            break
        entry = entries[i]
        if entry.is_stripped:
            continue
        if entry.kept_because:
            kept.append(entry)
            continue
        victims.append(entry)
        names_left[entry.inode] -= 1
        left -= entry.journal_bytes
        if not names_left[entry.inode]:
            left -= entry.file_bytes
    return Plan(total, total - left, budget_bytes, tuple(victims), tuple(kept))


def carry_out(
    store: SessionStore, victims: Iterable[Entry], failed: Callable[[Entry, str], None]
) -> int:
    """Strip sessions and remove the caches of servers; return the bytes that became free.

    Args:
        store: the sessions.
        victims: of a ``Plan``. What was opened, pinned or replaced meanwhile is left alone.
        failed: called with what could not be removed, and why.
    """
    freed = 0
    for entry in victims:
        try:
            if entry.is_session:
                if marks.read(entry.path).is_pinned:
                    failed(entry, "it was pinned meanwhile")
                    continue
                before = _size_with_journal(entry.path)
                upkeep.strip(store, entry.id)
                freed += before - _size_with_journal(entry.path)
            else:
                with (
                    plain_errors("remove the checkpoint", entry.path),
                    folder_lock(store.folder),
                ):
                    entry.path.unlink(missing_ok=True)
                    side_file.path_for(entry.path).unlink(missing_ok=True)
                freed += entry.file_bytes
        except CheckpointError as error:
            failed(entry, str(error))
    return freed


def _entry(opened: checkpoint.Checkpoint, identifier: str, path: Path) -> Entry:
    title = opened.title()
    decided = marks.read(path)
    because = "pinned" if decided.is_pinned else ""
    if not because and (owner := owner_of(folder.lock_path(path))):
        because = f"open in {owner}"
    stat = os.fstat(opened.file.fileno())
    label = decided.name or (title or b"").decode("utf-8", "replace")
    return Entry(
        path,
        identifier,
        label,
        opened.header,
        opened.envelope.file_bytes,
        title is not None,
        (stat.st_dev, stat.st_ino),
        because,
        _size_of(journal.path_for(path)),
    )


def _size_with_journal(path: Path) -> int:
    return _size_of(path) + _size_of(journal.path_for(path))


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


class _Covered:
    """Which `continued` files of a server are the beginning of a longer text.

    The name of such a file is the hash of its text, so texts of others are hashed, and only to
    the lengths that occur.
    """

    def __init__(self) -> None:
        self._lengths: dict[str, tuple[int, kvc.Header]] = {}
        self._texts: list[tuple[bytes, kvc.Header]] = []

    def add(self, opened: checkpoint.Checkpoint) -> None:
        text = opened.text()
        if opened.header.reason == kvc.Reason.CONTINUED:
            self._lengths[text_id(text)] = (len(text), opened.header)
        self._texts.append((text, opened.header))

    def is_covered(self, entry: Entry) -> bool:
        if entry.id not in self._lengths or entry.header.reason != kvc.Reason.CONTINUED:
            return False
        length, header = self._lengths[entry.id]
        return any(
            len(text) > length > 0
            and other.model_id == header.model_id
            and other.ctx <= header.ctx
            and text_id(text[:length]) == entry.id
            for text, other in self._texts
        )
