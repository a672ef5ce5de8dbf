"""The folder of saved conversations: save, load, list, delete.

One conversation is one file, ``<id>.kv`` (see ``kvc``), with our own facts beside it (see
``side_file``) and a journal of what came since (see ``session_file``). A file is written under a
temporary name and renamed, so every name always shows a whole checkpoint. A list reads some
hundred bytes of each file. A load verifies every byte.

A file is renamed to ``.corrupt`` in one case: all of it was read and its checksum is wrong. A file
that is too short, or unreadable, may be one that is being copied; it stays where it is. Nothing
broken is ever deleted.
"""

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from engine.state import SessionState
from sessions import (
    checkpoint,
    checkpoint_files,
    folder,
    journal,
    marks,
    session_file,
    side_file,
    system_slots,
)
from sessions.checkpoint import Checkpoint, ForeignFile
from sessions.errors import CheckpointError, ChecksumError
from sessions.identity import (
    SHORT_ID_DIGITS,
    is_session_id,
    normalise_title,
    session_id,
)
from sessions.kvc import Reason
from sessions.locks import SessionLock, folder_lock
from sessions.record import DamagedFile, SavedFile, SessionMeta, SessionRecord
from sessions.safe_file import make_folder, plain_errors, sync_folder
from sessions.session_file import LIST_HINT, Restored
from sessions.streams import Progress

_PREFIX = re.compile(r"[0-9a-f]{1,40}")
_MAX_CANDIDATES = 5  # in a message
_Records = list[SessionRecord]  # inside the class, `list` is its method
_Found = list[tuple[SessionRecord, int]]  # with the time of the file, ns


class SessionStore:
    """The saved conversations of one folder. Holds no state but what ``list`` found broken."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        """Name the folder; it is created at the first save.

        Args:
            path: the folder.
            clock: returns Unix seconds.
        """
        self.folder = Path(path)
        self.damaged: tuple[DamagedFile, ...] = ()  # what the last ``list`` left out
        self._clock = clock

    def save(
        self,
        state: SessionState,
        text: bytes,
        *,
        title: str,
        created_at: int,
        meta: SessionMeta,
        reason: Reason = Reason.AGENT_SESSION,
        progress: Progress | None = None,
    ) -> SavedFile:
        """Save a conversation; its id follows from ``title`` and ``created_at``.

        An earlier save of the same id is replaced once the new one is safely on the disk. Its
        journal stays where it is and is spent from then on.

        Args:
            state: what the engine returned; 1 token at least.
            text: the rendering of its tokens.
            title: the first prompt, normalised here.
            created_at: Unix seconds of the first turn.
            meta: kept in the side file.
            reason: kept in the header.
            progress: called after each piece; what it raises ends the save, without a trace.

        Raises:
            CheckpointError: it can't be written. An earlier save is as it was.
        """
        title_bytes = normalise_title(title).encode("utf-8")
        identifier = session_id(title_bytes, created_at)
        path = folder.session_path(self.folder, identifier)
        with plain_errors("save the session", path):
            return checkpoint_files.write(
                path,
                identifier,
                state,
                text,
                meta=meta,
                reason=reason,
                created_at=created_at,
                last_used=int(self._clock()),
                title=title_bytes,
                progress=progress,
            )

    def load(self, id_prefix: str) -> tuple[SessionState, SessionRecord]:
        """Read a conversation, with its journal, and verify every byte; see ``restore``."""
        restored = self.restore(id_prefix)
        return restored.state, restored.record

    def restore(
        self, id_prefix: str, progress: Progress | None = None, *, attempts: int = 3
    ) -> Restored:
        """Read a conversation as it was last, with its journal, and verify every byte of it.

        Args:
            id_prefix: 1 to 40 hex digits that begin exactly one id, in either case.
            progress: called after each piece that was read.
            attempts: how often to begin again when its owner replaced its files meanwhile.

        Raises:
            CheckpointError: none, several, damaged, or of another program.
        """
        identifier, path = self._find(id_prefix)
        with (
            _about(identifier),
            plain_errors("load the session", path),
            checkpoint.opened(path) as opened,
        ):
            try:
                restored = session_file.restore(opened, identifier, path, progress)
                if attempts and not _is_at(opened, path):
                    return self.restore(identifier, progress, attempts=attempts - 1)
                return restored
            except ChecksumError as error:
                kept = self._quarantine(opened, path)
                if kept is None:
                    raise
                hint = f"Load another session; the damaged file is kept as {kept.name}."
                raise ChecksumError(str(error), hint) from error

    def check(self, id_prefix: str) -> tuple[SessionRecord, bool]:
        """Read and verify every byte of a session as ``load`` does, and leave it where it is.

        Returns:
            What it is, and whether a checksum proved it. Without one (other programs write none)
            every count and value was checked.

        Raises:
            CheckpointError: none, several, damaged, or of another program.
        """
        identifier, path = self._find(id_prefix)
        with plain_errors("read the session", path), checkpoint.opened(path) as opened:
            record = session_file.describe(opened, identifier, path)
            return record, not opened.is_stripped and session_file.verify(opened, identifier, path)

    def whole_id(self, id_prefix: str) -> str:
        """Return the one id that begins so, of a damaged conversation too.

        Raises:
            CheckpointError: none, or several.
        """
        return self._find(id_prefix)[0]

    def find(self, id_prefix: str) -> SessionRecord:
        """Return the one saved conversation whose id begins so, without reading its payload.

        Raises:
            CheckpointError: none, several, or it is damaged.
        """
        identifier, _ = self._find(id_prefix)
        for record in self.list():
            if record.id == identifier:
                return record
        reasons = [bad.reason for bad in self.damaged if bad.path.stem == identifier]
        reason = reasons[0] if reasons else "it is of another kind"
        short = identifier[:SHORT_ID_DIGITS]
        raise CheckpointError(f"session {short} cannot be read: {reason}", LIST_HINT)

    def delete(self, id_prefix: str) -> str:
        """Remove a conversation's files and return its id. Damaged ones can be removed too.

        Raises:
            CheckpointError: none, several, or it can't be removed.
        """
        identifier, path = self._find(id_prefix)
        with plain_errors("delete the session", path), folder_lock(self.folder):
            path.unlink()
            side_file.path_for(path).unlink(missing_ok=True)
            journal.path_for(path).unlink(missing_ok=True)
            marks.path_for(path).unlink(missing_ok=True)
            sync_folder(self.folder)
        return identifier

    def open_lock(self, session_id: str) -> SessionLock:
        """Claim a session, so that no second program continues it at the same time.

        Args:
            session_id: a whole id. Nothing need be saved yet.

        Raises:
            CheckpointError: it is open elsewhere; the message tells the process.
        """
        if not is_session_id(session_id):
            raise ValueError(f"session id {session_id!r}, expected 40 hex digits")
        path = folder.lock_path(folder.session_path(self.folder, session_id))
        with plain_errors("lock the session", path):
            make_folder(self.folder)
            return SessionLock(path, f"session {session_id[:SHORT_ID_DIGITS]}")

    def save_system(self, state: SessionState, text: bytes) -> SavedFile:
        """Keep the state of a system prompt for its model. See ``system_slots``.

        Raises:
            CheckpointError: it can't be written.
        """
        return system_slots.save_slot(self.folder, state, text, int(self._clock()))

    def load_system(
        self, fingerprint: str, text: bytes, tokens: Sequence[int]
    ) -> SessionState | None:
        """Return the state of a system prompt, or ``None`` where it has to be computed."""
        return system_slots.load_slot(self.folder, fingerprint, text, tokens)

    def latest(self, cwd: str | Path) -> SessionRecord | None:
        """Return the conversation that was used last in this folder."""
        return next((record for record in self.list() if record.cwd == str(cwd)), None)

    def list(self) -> _Records:
        """Return the conversations, last used first, without reading their states.

        Files of other programs are passed over. Broken ones are told in ``damaged``.

        Raises:
            CheckpointError: the folder can't be read.
        """
        records, damaged = self._scan()
        self.damaged = tuple(damaged)
        return records

    def _scan(self) -> tuple[_Records, Sequence[DamagedFile]]:
        """Describe every session, last used first, and every broken file."""
        found: _Found = []
        damaged = []
        with plain_errors("list the sessions", self.folder / folder.SUFFIX):
            paths = folder.session_paths(self.folder)
        for identifier, path in paths.items():
            try:
                with plain_errors("read it", path), checkpoint.opened(path) as opened:
                    # Seconds are too coarse for two saves in a row.
                    written_ns = os.fstat(opened.file.fileno()).st_mtime_ns
                    found.append((session_file.describe(opened, identifier, path), written_ns))
            except ForeignFile:
                continue
            except CheckpointError as error:
                if not isinstance(error.__cause__, FileNotFoundError):  # deleted meanwhile
                    damaged.append(DamagedFile(path, str(error)))
        found.sort(key=lambda entry: (entry[0].last_used, entry[1]), reverse=True)
        return [record for record, _ in found], damaged

    def _find(self, id_prefix: str) -> tuple[str, Path]:
        """Return the id that a prefix stands for, and its file."""
        prefix = id_prefix.strip().lower()
        if not _PREFIX.fullmatch(prefix):
            raise CheckpointError(
                f"{id_prefix!r} is not a session id, expected 1 to 40 hex digits", LIST_HINT
            )
        with plain_errors("look for the session", self.folder / folder.SUFFIX):
            paths = folder.session_paths(self.folder)
        matches = {key: path for key, path in paths.items() if key.startswith(prefix)}
        if len(matches) > 1:  # what can't be loaded can't be meant
            sound = {record.id: record for record in self._scan()[0] if record.id in matches}
            if len(sound) == 1:
                matches = {key: path for key, path in matches.items() if key in sound}
            else:
                raise _ambiguous(prefix, sound, sorted(matches))
        if not matches:
            raise CheckpointError(f"no saved session begins with {prefix}", LIST_HINT)
        return next(iter(matches.items()))

    def _quarantine(self, opened: Checkpoint, path: Path) -> Path | None:
        """Rename a broken file unless it was replaced meanwhile; return its new path."""
        with contextlib.suppress(OSError, CheckpointError), folder_lock(self.folder):
            if _is_at(opened, path):
                with contextlib.suppress(FileNotFoundError):
                    folder.quarantine(journal.path_for(path))
                return folder.quarantine(path)
        return None


def _is_at(opened: Checkpoint, path: Path) -> bool:
    """Whether ``path`` still stands for this file."""
    try:
        return os.path.samestat(os.fstat(opened.file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _ambiguous(
    prefix: str, sound: dict[str, SessionRecord], identifiers: Sequence[str]
) -> CheckpointError:
    candidates = [
        f"{key[:12]} {sound[key].title[:40]!r}" if key in sound else f"{key[:12]} (unreadable)"
        for key in identifiers[:_MAX_CANDIDATES]
    ]
    more = ", ..." if len(identifiers) > _MAX_CANDIDATES else ""
    return CheckpointError(
        f"{len(identifiers)} saved sessions begin with {prefix}: {', '.join(candidates)}{more}",
        "Type more digits of the id.",
    )


@contextlib.contextmanager
def _about(identifier: str) -> Iterator[None]:
    """Say in every error which session it is about."""
    try:
        yield
    except CheckpointError as error:
        message = f"session {identifier[:SHORT_ID_DIGITS]}: {error}"
        raise type(error)(message, error.hint or LIST_HINT) from error
