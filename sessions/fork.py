"""Forks: a second conversation that begins as a copy of one, without the bytes of a copy.

The fork's checkpoint is another name for the same file (a hard link), and its journal begins as a
copy of the other's. A checkpoint is never changed in place: a save, a strip and a removal put
another file under *one* name, so each of the two goes its own way, and the bytes stay as long as
either name needs them. Nothing has to be counted, and nobody is refused.

Title and time of creation make a session's id, and the file under both names has those of the
first. So the side file of a fork says when the fork was made, which makes its id; its next save as
a whole writes a file of its own. Until then the C program passes over the fork.

Where a file system has no hard links, the file is copied (by reference where it can do that).
"""

import contextlib
import os
from pathlib import Path

from sessions import checkpoint, folder, journal, marks, session_file, side_file
from sessions.errors import CheckpointError
from sessions.identity import SHORT_ID_DIGITS, session_id
from sessions.locks import folder_lock
from sessions.record import SessionRecord
from sessions.safe_file import open_regular, plain_errors, staged, sync_folder
from sessions.store import SessionStore

_PIECE_BYTES = 1 << 30  # asked of the kernel at a time


def fork(store: SessionStore, id_prefix: str, name: str = "") -> SessionRecord:
    """Make a fork of a session as it is on the disk now, its journal included.

    Args:
        store: the sessions.
        id_prefix: 1 to 40 hex digits that begin exactly one id. It may be open, here or elsewhere:
            what has not reached the disk is not in the fork.
        name: for lists; "" for "fork of" what the first one is called.

    Raises:
        CheckpointError: there is no such session, it is damaged, or the fork can't be written.
    """
    record = store.find(id_prefix)
    source = record.path
    with plain_errors("fork the session", source), folder_lock(store.folder):
        with checkpoint.opened(source) as opened:
            title, stamp = opened.title(), session_file.stamp(opened)
        if title is None:  # of an earlier agent of the C program
            raise CheckpointError(
                f"session {record.id[:SHORT_ID_DIGITS]} has no title of its own",
                "Open it and save it; then it can be forked.",
            )
        facts = side_file.facts_of(source, stamp)
        identifier, created_at = _free(store, title, record.created_at)
        target = folder.session_path(store.folder, identifier)
        live = session_file.find_journal(source, stamp, verify=True).live
        if live is not None:  # a spent one has nothing that the checkpoint lacks
            _copy_journal(journal.path_for(source), journal.path_for(target), live.end)
        with staged(side_file.path_for(target)) as side:
            side.file.write(
                side_file.SideFile(
                    facts.meta,
                    record.fingerprint,
                    (stamp,),
                    facts.state_sha256,
                    facts.text_sha256,
                    created_at,
                ).pack()
            )
            side.finish()
            side.publish()
        _link(source, target)
        sync_folder(store.folder)
    with plain_errors("name the fork", target):
        marks.change(target, name=name or f"fork of {record.label}"[: marks.MAX_NAME_BYTES // 4])
    return store.find(identifier)


def _free(store: SessionStore, title: bytes, created_at: int) -> tuple[str, int]:
    """Return an id that no session has, open ones included, and its time of creation."""
    for moment in range(created_at + 1, created_at + 1 + (1 << 20)):
        identifier = session_id(title, moment)
        path = folder.session_path(store.folder, identifier)
        if not path.exists() and not folder.lock_path(path).exists():
            return identifier, moment
    raise CheckpointError(
        f"session {session_id(title, created_at)[:SHORT_ID_DIGITS]} has too many forks",
        "Delete some of them.",
    )


def _copy_journal(source: Path, target: Path, n_bytes: int) -> None:
    """Copy the valid part of a journal, whose owner may just be appending to it."""
    with open_regular(source) as old, staged(target) as file:
        while n_bytes and (piece := old.read(min(n_bytes, 8 << 20))):
            file.file.write(piece)
            n_bytes -= len(piece)
        file.finish()
        file.publish()


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:  # no hard links here, or too many on this file: a copy serves as well
        with open(source, "rb") as old, staged(target) as file:
            _copy(old.fileno(), file.file.fileno(), os.fstat(old.fileno()).st_size)
            file.finish()
            file.publish()


def _copy(source: int, target: int, n_bytes: int) -> None:
    """Copy a file; Linux shares the bytes where the file system can."""
    done = 0
    if hasattr(os, "copy_file_range"):
        with contextlib.suppress(OSError):
            while done < n_bytes:
                n = os.copy_file_range(source, target, min(_PIECE_BYTES, n_bytes - done))
                if not n:
                    break
                done += n
    os.lseek(source, done, os.SEEK_SET)
    os.lseek(target, done, os.SEEK_SET)
    while piece := os.read(source, 8 << 20):
        view = memoryview(piece)
        while view:
            view = view[os.write(target, view) :]
