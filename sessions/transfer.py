"""Moving a conversation to another machine: out of one store into a file, into another store."""

import os
from dataclasses import dataclass
from pathlib import Path

from sessions import export_file, folder, marks
from sessions.errors import CheckpointError
from sessions.export_file import Facts
from sessions.identity import SHORT_ID_DIGITS, normalise_title, session_id
from sessions.record import SessionMeta, SessionRecord
from sessions.safe_file import plain_errors, staged
from sessions.store import SessionStore
from sessions.streams import Progress


@dataclass(frozen=True, slots=True)
class Exported:
    """What an export wrote."""

    path: Path
    record: SessionRecord
    n_bytes: int


def export_session(
    store: SessionStore,
    id_prefix: str,
    path: Path | None = None,
    *,
    passphrase: str = "",
    program: str = "",
    progress: Progress | None = None,
) -> Exported:
    """Write a conversation as it was last saved, its journal included, to one file.

    A file that is there is only replaced when the new one is whole.

    Args:
        store: where it is.
        id_prefix: 1 to 40 hex digits that begin exactly one id.
        path: the file; ``<8 digits>.ds4session`` in the current folder when None.
        passphrase: "" for a file that everybody can read.
        program: name and version for the file.
        progress: called with bytes done and in all, first for reading, then for writing.

    Raises:
        CheckpointError: there is no such session, it is damaged or stripped, or the file can't be
            written.
    """
    restored = store.restore(id_prefix, progress)
    record = restored.record
    target = path or Path(f"{record.id[:SHORT_ID_DIGITS]}{export_file.SUFFIX}")
    facts = Facts(
        title=record.title,
        created_at=record.created_at,
        name=record.name,
        cwd=record.cwd,
        model=record.model,
        program=program,
        kv_bytes=record.file_bytes,
    )
    with plain_errors("export the session", target), staged(target.absolute()) as file:
        export_file.write(
            file.file, restored.state, restored.text, facts, passphrase, progress=progress
        )
        file.finish()
        file.publish()
    return Exported(target, record, target.stat().st_size)


def needs_passphrase(path: Path) -> bool:
    """Whether a file can only be read with a passphrase.

    Raises:
        CheckpointError: it is no exported session, or can't be read.
    """
    with plain_errors("import the session", path), path.open("rb") as file:
        return export_file.is_sealed(file)


def import_session(
    store: SessionStore,
    path: Path,
    *,
    passphrase: str = "",
    as_copy: bool = False,
    cwd: str = "",
    progress: Progress | None = None,
) -> SessionRecord:
    """Take a conversation from a file into a store.

    Args:
        store: where it goes.
        path: a file that ``export_session`` has written.
        passphrase: that it was written with.
        as_copy: make a second one where the conversation is there already.
        cwd: the folder it belongs to here; "" keeps its own where that exists on this machine.
        progress: called with bytes done and in all, first for reading, then for writing.

    Raises:
        CheckpointError: the file is damaged or no such file, the passphrase is wrong, the
            conversation is there already, or it can't be written.
    """
    with plain_errors("import the session", path), path.open("rb") as file:
        state, text, facts = export_file.read(file, passphrase, progress)
    created_at = _free_moment(store, facts, as_copy)
    identifier = session_id(normalise_title(facts.title).encode("utf-8"), created_at)
    own = facts.cwd if facts.cwd and os.path.isdir(facts.cwd) else ""
    with store.open_lock(identifier):
        saved = store.save(
            state,
            text,
            title=facts.title,
            created_at=created_at,
            meta=SessionMeta(cwd or own, facts.model),
            progress=progress,
        )
        if facts.name:
            with plain_errors("name the session", saved.path):
                marks.change(saved.path, name=facts.name)
    return store.find(saved.id)


def _free_moment(store: SessionStore, facts: Facts, as_copy: bool) -> int:
    """Return a time of creation whose id is free; it is part of the id."""
    title = normalise_title(facts.title).encode("utf-8")
    created_at = facts.created_at

    def is_taken(moment: int) -> bool:
        return folder.session_path(store.folder, session_id(title, moment)).exists()

    if is_taken(created_at) and not as_copy:
        short = session_id(title, created_at)[:SHORT_ID_DIGITS]
        raise CheckpointError(
            f"session {short} is here already",
            "Delete it first, or import with --copy to get a second one.",
        )
    while is_taken(created_at):
        created_at += 1
    return created_at
