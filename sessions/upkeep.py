"""Care for saved sessions without a model: name, pin, strip, verify, search.

Nothing here touches a session that is open elsewhere, except a name, a pin and reading.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sessions import checkpoint, folder, marks, side_file
from sessions.errors import CheckpointError
from sessions.identity import SHORT_ID_DIGITS, normalise_title
from sessions.keeper import fold_offline
from sessions.locks import folder_lock
from sessions.record import SessionRecord
from sessions.safe_file import plain_errors, staged
from sessions.store import SessionStore
from sessions.whole_text import whole_text

_SNIPPET_BYTES = 40  # of text around a hit, on each side


@dataclass(frozen=True, slots=True)
class Verified:
    """What a full reading of one file found."""

    path: Path
    id: str
    title: str
    problem: str  # "" when it is sound
    has_checksum: bool  # False: written by another program; all that can be checked was checked
    n_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Hit:
    """A session that holds the words that were looked for."""

    record: SessionRecord
    snippet: str  # the text around the first hit, "" when title or folder matched


def rename(store: SessionStore, id_prefix: str, name: str) -> SessionRecord:
    """Give a session a name; an empty one brings its title back.

    Raises:
        CheckpointError: there is no such session, or the name can't be written.
    """
    record = store.find(id_prefix)
    name = normalise_title(name) if name.strip() else ""
    if len(name.encode("utf-8")) > marks.MAX_NAME_BYTES:
        raise CheckpointError(
            f"a name of {len(name.encode('utf-8'))} bytes, expected {marks.MAX_NAME_BYTES} at most",
            "Choose a shorter one.",
        )
    with plain_errors("rename the session", record.path):
        marks.change(record.path, name=name)
    return store.find(record.id)


def set_pinned(store: SessionStore, id_prefix: str, is_pinned: bool) -> SessionRecord:
    """Keep a session from being removed to make room, or no longer.

    Raises:
        CheckpointError: there is no such session, or the mark can't be written.
    """
    record = store.find(id_prefix)
    with plain_errors("pin the session", record.path):
        marks.change(record.path, is_pinned=is_pinned)
    return store.find(record.id)


def strip(store: SessionStore, id_prefix: str) -> tuple[SessionRecord, int]:
    """Keep the text of a session and drop its state; return it and the bytes that became free.

    It can be opened again by reading its text, with any model that has the same vocabulary.

    Raises:
        CheckpointError: there is no such session, it is open, damaged or stripped already.
    """
    record = store.find(id_prefix)
    if record.is_stripped:
        raise CheckpointError(
            f"session {record.id[:SHORT_ID_DIGITS]} has no state to drop", "Choose another one."
        )
    fold_offline(store, record.id)  # what its journal says belongs to the text
    path = record.path
    with (
        store.open_lock(record.id),
        plain_errors("strip the session", path),
        checkpoint.opened(path) as opened,
        staged(path) as main,
        staged(side_file.path_for(path)) as side,
    ):
        title = opened.title()
        assert title is not None  # ``find`` has seen it
        stamp = side_file.stamp(opened.envelope.file_bytes, opened.summary().digest)
        facts = side_file.facts_of(path, stamp)
        checkpoint.write_stripped(main.file, opened, title, record.created_at)
        main.finish()
        stripped = checkpoint.reopened(main.file)
        new_stamp = side_file.stamp(stripped.envelope.file_bytes, stripped.summary().digest)
        side.file.write(
            side_file.SideFile(
                facts.meta, record.fingerprint, (new_stamp, stamp), "", "", record.created_at
            ).pack()
        )
        side.finish()
        with folder_lock(store.folder):
            side.publish()
            main.publish()
        freed = opened.envelope.file_bytes - stripped.envelope.file_bytes
    return store.find(record.id), freed


def verify(
    store: SessionStore, id_prefix: str = "", progress: Callable[[Path], None] | None = None
) -> Iterator[Verified]:
    """Read every byte of one session, or of all, and say what is wrong. Nothing is changed.

    Raises:
        CheckpointError: there is no such session, or the folder can't be read.
    """
    with plain_errors("look at the sessions", store.folder / folder.SUFFIX):
        paths = folder.session_paths(store.folder)
    if id_prefix:
        identifier = store.whole_id(id_prefix)
        paths = {identifier: paths[identifier]}
    for identifier, path in sorted(paths.items()):
        if progress is not None:
            progress(path)
        try:
            record, has_checksum = store.check(identifier)
            yield Verified(path, identifier, record.label, "", has_checksum, record.file_bytes)
        except checkpoint.ForeignFile as error:
            if id_prefix:
                yield Verified(path, identifier, "", str(error), False)
        except CheckpointError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # deleted meanwhile
                yield Verified(path, identifier, "", str(error), False)


def search(store: SessionStore, words: str) -> Iterator[Hit]:
    """Find the sessions whose name, title, folder or text holds all words, whatever their case.

    Only texts are read, no states. The last used come first.

    Raises:
        CheckpointError: the folder can't be read.
    """
    wanted = [word.casefold() for word in words.split()]
    for record in store.list():
        facts = f"{record.name}\n{record.title}\n{record.cwd}".casefold()
        if wanted and all(word in facts for word in wanted):
            yield Hit(record, "")
            continue
        try:
            text = whole_text(record.path).decode("utf-8", "replace")
        except CheckpointError:
            continue  # deleted meanwhile, or it became unreadable: a list tells that
        lower = text.casefold()
        if wanted and all(word in lower or word in facts for word in wanted):
            yield Hit(record, _around(text, wanted))


def _around(text: str, words: list[str]) -> str:
    """Return one line of the text around the first word that is in it."""
    lower = text.casefold()
    # Casefolding may change lengths: the place is then a little off, which a snippet can bear.
    at = min((lower.find(word) for word in words if word in lower), default=0)
    start, end = max(0, at - _SNIPPET_BYTES), at + _SNIPPET_BYTES
    piece = " ".join(text[start:end].split())
    return f"{'…' if start else ''}{piece}{'…' if end < len(text) else ''}"
