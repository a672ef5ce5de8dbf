"""Writing a checkpoint and its side file so that both appear together, whole, or not at all."""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

from engine.state import SessionState
from sessions import checkpoint, folder, session_file, side_file
from sessions.kvc import Reason
from sessions.locks import folder_lock
from sessions.record import SavedFile, SessionMeta
from sessions.safe_file import make_folder, staged
from sessions.state_digest import StateDigest
from sessions.streams import Progress


def write(
    path: Path,
    identifier: str,
    state: SessionState,
    text: bytes,
    *,
    meta: SessionMeta,
    reason: Reason,
    created_at: int,
    last_used: int,
    title: bytes | None = None,
    tool_map: Sequence[tuple[str, bytes]] = (),
    progress: Progress | None = None,
    make_room: Callable[[int], None] | None = None,
) -> SavedFile:
    """Write the checkpoint of a state at ``path``, in place of an earlier one, with its facts.

    Args:
        path: its folder is made where there is none.
        identifier: what it is called.
        state: what is written.
        text: the rendering of its tokens, or what a client sees of it.
        meta: kept in the side file.
        reason: kept in the header.
        created_at: Unix seconds.
        last_used: Unix seconds.
        title: of a session.
        tool_map: see ``checkpoint.write``.
        progress: called after each piece; what it raises ends the save, without a trace.
        make_room: called with the bytes of the file before it is published; the same holds.

    Raises:
        CheckpointError: the state can't be saved, or the folder is kept locked.
        OSError: of the disk. What was there is as it was.
    """
    make_folder(path.parent)
    with staged(path) as main, staged(side_file.path_for(path)) as side:
        digest = StateDigest()
        written = checkpoint.write(
            main.file,
            state,
            text,
            reason=reason,
            created_at=created_at,
            last_used=last_used,
            title=title,
            tool_map=tool_map,
            progress=progress,
            digest=digest,
        )
        n_bytes = written.envelope.file_bytes
        if make_room is not None:
            make_room(n_bytes)
        main.finish()
        # A payload that does not tell whose it is has no checksum either.
        is_plain = not written.summary().fingerprint
        checksum = digest.hexdigest() if is_plain else ""
        text_checksum = hashlib.sha256(text).hexdigest() if is_plain else ""
        own_stamp = session_file.stamp(written)
        with folder_lock(path.parent):
            folder.remove_leftovers(path.parent)
            stamps = (own_stamp, *session_file.stamps_at(path))
            facts = side_file.SideFile(
                meta, state.fingerprint, stamps, checksum, text_checksum, created_at
            )
            side.file.write(facts.pack())
            side.finish()
            side.publish()
            main.publish()
    return SavedFile(path, identifier, n_bytes, own_stamp)
