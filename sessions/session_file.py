"""One saved session: its checkpoint, its side file and its journal, read together."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from engine.state import SessionState
from sessions import checkpoint, folder, journal, journal_state, marks, side_file
from sessions.checkpoint import Checkpoint, ForeignFile
from sessions.errors import CheckpointError
from sessions.identity import session_id, text_id, title_of_text
from sessions.journal import Boundary, Journal, JournalError
from sessions.kvc import FLAG_TITLE, FLAG_TOOL_MAP, Reason
from sessions.locks import owner_of
from sessions.record import SessionRecord
from sessions.safe_file import plain_errors
from sessions.streams import Progress

LIST_HINT = "List the sessions and choose another one."
_SERVER_FLAGS = FLAG_TOOL_MAP | 2 | 4  # the text of 2 and 4 is what a client sees


@dataclass(frozen=True, slots=True)
class Restored:
    """A session as it was last, from all of its files."""

    record: SessionRecord
    state: SessionState
    text: bytes
    stamp: str  # of the checkpoint
    journal: Journal | None  # that builds on the checkpoint; None: there is none, or it is spent
    boundaries: tuple[Boundary, ...]  # where the conversation could be continued, as far as known
    events: tuple[dict, ...]  # what the application noted
    notes: tuple[str, ...]  # what was left out, one line each for the person
    is_orphaned: bool = False  # a journal is there that belongs to something else


@dataclass(frozen=True, slots=True)
class FoundJournal:
    """The journal beside a checkpoint, judged."""

    live: Journal | None = None  # it goes on from the checkpoint
    spent: Journal | None = None  # the checkpoint has all of it already
    note: str = ""  # for the person
    is_orphaned: bool = False


def stamp(opened: Checkpoint) -> str:
    """Return what names this version of a checkpoint."""
    return side_file.stamp(opened.envelope.file_bytes, opened.summary().digest)


def stamps_at(path: Path) -> Sequence[str]:
    """Return the stamp of the checkpoint at ``path``, or nothing where there is no sound one."""
    try:
        with checkpoint.opened(path) as opened:
            return [stamp(opened)]
    except (OSError, CheckpointError):
        return []


def describe(opened: Checkpoint, identifier: str, path: Path) -> SessionRecord:
    """Describe an open session and check that it is the one that its name says.

    Of a journal only the heads are read, so its last record may turn out to be cut off.

    Raises:
        CheckpointError: it is no session, or another one.
    """
    header, summary = opened.header, opened.summary()
    own_stamp = stamp(opened)
    facts = side_file.facts_of(path, own_stamp)
    title, created_at = _identity(opened, identifier, facts.created_at)
    decided = marks.read(path)
    found = _journal_with_records(path, own_stamp)
    records = found.records if found else ()
    last_used = max([header.last_used, *(record.at for record in records)])
    return SessionRecord(
        id=identifier,
        title=title,
        cwd=facts.meta.cwd,
        model=facts.meta.model,
        fingerprint=summary.fingerprint or facts.fingerprint,
        tokens=records[-1].tokens if records else header.tokens,
        file_bytes=opened.envelope.file_bytes + (found.end if records and found else 0),
        created_at=min(created_at, checkpoint.MAX_TIME_S),
        last_used=min(last_used, checkpoint.MAX_TIME_S),
        path=path,
        family=opened.codec.family,
        ctx=header.ctx,
        name=decided.name,
        is_pinned=decided.is_pinned,
        is_stripped=opened.is_stripped,
        is_titled=bool(header.flags & FLAG_TITLE),
        open_in=owner_of(folder.lock_path(path)),
    )


def _identity(opened: Checkpoint, identifier: str, forked_at: int) -> tuple[str, int]:
    """Return title and time of creation of a session whose name says that it is this one.

    The file of a fork is that of the session it was forked from, with the time of that one; its
    side file has its own, ``forked_at``. Earlier agents of the C program wrote no title and named
    the file by its text.
    """
    header, title = opened.header, opened.title()
    if header.flags == FLAG_TITLE and title is not None:
        for created_at in (header.created_at, forked_at):
            if session_id(title, created_at) == identifier:
                return title.decode("utf-8", "replace"), created_at
        raise CheckpointError(
            "title and creation time don't belong to the name of the file", LIST_HINT
        )
    if header.flags & ~_SERVER_FLAGS:
        raise CheckpointError(
            f"header flags {header.flags:#04x}, expected {FLAG_TITLE:#04x} for a session",
            LIST_HINT,
        )
    text = opened.text()
    if text_id(text) != identifier:
        raise CheckpointError("its text doesn't belong to the name of the file", LIST_HINT)
    if header.flags or header.reason not in (Reason.UNKNOWN, Reason.AGENT_SESSION):
        raise ForeignFile(
            f"saved by a server ({Reason(header.reason).name.lower()}) for its own use",
            "Open it there.",
        )
    return title_of_text(text), header.created_at


def find_journal(path: Path, own_stamp: str, *, verify: bool) -> FoundJournal:
    """Find the journal of a checkpoint and judge whether it goes on from it.

    Args:
        path: the checkpoint.
        own_stamp: its stamp.
        verify: see ``journal.scan``.

    Raises:
        OSError: there is one that can't be read.
    """
    try:
        with journal_state.opened(path) as file:
            return _judged(file, path, own_stamp, verify)
    except JournalError as error:
        return _left_out(error)


def _journal_with_records(path: Path, own_stamp: str) -> Journal | None:
    try:
        with journal_state.opened(path) as file:
            if file is None or not journal.has_records(file):
                return None
            return _judged(file, path, own_stamp, verify=False).live
    except JournalError:
        return None


def _judged(file: BinaryIO | None, path: Path, own_stamp: str, verify: bool) -> FoundJournal:
    if file is None:
        return FoundJournal()
    try:
        found = journal.scan(file, verify=verify)
    except JournalError as error:
        return _left_out(error)
    if found.base.stamp == own_stamp:
        return FoundJournal(live=found, note=found.dropped)
    # The side file is renamed into place before the checkpoint that takes a journal up, and names
    # the version that it replaces.
    if found.base.stamp in side_file.facts_of(path, own_stamp).describes:
        return FoundJournal(spent=found)
    note = "its journal belongs to another version of the file and was left out"
    return FoundJournal(note=note, is_orphaned=True)


def _left_out(error: JournalError) -> FoundJournal:
    return FoundJournal(note=f"its journal was left out: {error}", is_orphaned=True)


def restore(
    opened: Checkpoint, identifier: str, path: Path, progress: Progress | None = None
) -> Restored:
    """Read a session and verify every byte of it.

    Args:
        opened: its checkpoint.
        identifier: its id.
        path: of the checkpoint.
        progress: called after each piece of the checkpoint.

    Raises:
        ChecksumError: the checkpoint isn't what was written.
        CheckpointError: it is damaged, or it is another session.
        OSError: a file can't be read.
    """
    try:
        with journal_state.opened(path) as file:
            found = _judged(file, path, stamp(opened), verify=True)
            return _restored(opened, identifier, path, found, file, progress)
    except JournalError as error:
        return _restored(opened, identifier, path, _left_out(error), None, progress)


def _restored(
    opened: Checkpoint,
    identifier: str,
    path: Path,
    found: FoundJournal,
    file: BinaryIO | None,
    progress: Progress | None,
) -> Restored:
    record, own_stamp = describe(opened, identifier, path), stamp(opened)
    room = found.live.max_tokens if found.live else 0
    text = opened.text()
    side_file.check(path, own_stamp, text)
    sha256 = side_file.facts_of(path, own_stamp).state_sha256
    state = opened.state(text, sha256=sha256, room=room, progress=progress)
    notes = [found.note] if found.note else []
    live, past = found.live, found.live or found.spent
    if live is not None and live.records:
        assert file is not None
        try:
            state, text = journal_state.applied(live, file, state, text)
            opened.codec.n_bytes(state)
        except CheckpointError as error:  # it contradicts the state, which is then read again
            notes.append(f"its journal was left out: {error}")
            live = past = None
            text = opened.text()
            state = opened.state(text, sha256=sha256)
    record = dataclasses.replace(record, tokens=len(state.tokens))
    return Restored(
        record=record,
        state=dataclasses.replace(state, fingerprint=record.fingerprint),
        text=text,
        stamp=own_stamp,
        journal=live,
        boundaries=past.boundaries if past else (),
        events=past.events if past else (),
        notes=tuple(notes),
        is_orphaned=found.is_orphaned or (found.live is not None and live is None),
    )


def outline(record: SessionRecord, state: SessionState, text: bytes) -> Restored:
    """Return what ``restore`` gives for a session whose tokens are known, without its rows.

    Args:
        record: of the session.
        state: its tokens; the rest is not looked at.
        text: the rendering of the tokens.

    Raises:
        CheckpointError: it has other tokens, or is damaged.
    """
    with plain_errors("open the session", record.path), checkpoint.opened(record.path) as opened:
        own_stamp = stamp(opened)
        found = find_journal(record.path, own_stamp, verify=True)
        last = found.live.last.tokens if found.live is not None else opened.header.tokens
    if last != len(state.tokens):
        raise CheckpointError(
            f"the session has {last} tokens, expected {len(state.tokens)}", LIST_HINT
        )
    past = found.live or found.spent
    return Restored(
        record=record,
        state=state,
        text=text,
        stamp=own_stamp,
        journal=found.live,
        boundaries=past.boundaries if past else (),
        events=past.events if past else (),
        notes=(),
        is_orphaned=found.is_orphaned,
    )


def verify(opened: Checkpoint, identifier: str, path: Path) -> bool:
    """Read and verify every byte of a session; say whether a checksum proved its checkpoint.

    A payload that says whose it is has a checksum of its own, which its codec looks at.

    Raises:
        ChecksumError: the checkpoint isn't what was written.
        CheckpointError: it is damaged, or some of its journal can't be used.
    """
    restored = restore(opened, identifier, path)
    # While it is open elsewhere, its last record may just be being written.
    if restored.notes and not restored.record.open_in:
        raise CheckpointError(restored.notes[0], "Open the session: it goes on without that part.")
    sha256 = side_file.facts_of(path, restored.stamp).state_sha256
    return bool(sha256 or opened.summary().fingerprint)
