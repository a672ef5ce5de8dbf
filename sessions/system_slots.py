"""Checkpoints of the system prompt, so that a new conversation starts without prefill.

One file for each pair of weights and rendered prompt: ``sysprompt-<sha1>.kv`` with the SHA-1 of
the fingerprint, a zero byte and the text. The name isn't that of a session, so lists pass over it.
Beside it lies its checksum, ``.kv.meta``, as beside a session.
(The C program keeps a single ``sysprompt.kv``, which two models overwrite in turn.)

They are a cache: whatever doesn't fit is "not there", and the next save replaces it.
"""

import contextlib
import dataclasses
import hashlib
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from engine.state import SessionState
from sessions import checkpoint, checkpoint_files, kvc, session_file, side_file
from sessions.errors import CheckpointError
from sessions.folder import SUFFIX
from sessions.locks import folder_lock
from sessions.record import SavedFile, SessionMeta
from sessions.safe_file import plain_errors

PREFIX = "sysprompt-"
# Each project's instructions make another prompt. A slot costs some 25 MB for a small model.
MAX_SLOTS = 16

_log = logging.getLogger(__name__)


def slot_path(folder: Path, fingerprint: str, text: bytes) -> Path:
    """Return where the checkpoint of this prompt lies."""
    key = hashlib.sha1(fingerprint.encode("utf-8") + b"\0" + text).hexdigest()
    return folder / f"{PREFIX}{key}{SUFFIX}"


def save_slot(folder: Path, state: SessionState, text: bytes, now: int) -> SavedFile:
    """Write the checkpoint of a prompt and remove the slots that were not used for longest.

    Raises:
        CheckpointError: it can't be written.
    """
    path = slot_path(folder, state.fingerprint, text)
    with plain_errors("save the system prompt", path):
        saved = checkpoint_files.write(
            path,
            path.stem.removeprefix(PREFIX),
            state,
            text,
            meta=SessionMeta(),
            reason=kvc.Reason.AGENT_SYSTEM,
            created_at=now,
            last_used=now,
        )
        with folder_lock(folder):
            _remove_oldest(folder)
    return saved


def load_slot(
    folder: Path, fingerprint: str, text: bytes, tokens: Sequence[int]
) -> SessionState | None:
    """Return the state of a prompt, or ``None`` where there is none for exactly these weights,
    this text and these tokens."""
    path = slot_path(folder, fingerprint, text)
    try:
        with plain_errors("load the system prompt", path), checkpoint.opened(path) as opened:
            # A format without a fingerprint gives "": the name of the slot then stands for it.
            if opened.text() != text or opened.summary().fingerprint not in ("", fingerprint):
                return None
            facts = side_file.facts_of(path, session_file.stamp(opened))
            state = opened.state(text, sha256=facts.state_sha256)
            state = dataclasses.replace(state, fingerprint=fingerprint)
            if state.tokens != tuple(tokens):
                return None
            with contextlib.suppress(OSError):  # only the order of removal depends on it
                os.utime(path)
            return state
    except CheckpointError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            _log.warning("the saved system prompt is computed anew: %s", error)
        return None


def _remove_oldest(folder: Path) -> None:
    slots = sorted(folder.glob(f"{PREFIX}*{SUFFIX}"), key=_last_used, reverse=True)
    for path in slots[MAX_SLOTS:]:
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        with contextlib.suppress(FileNotFoundError):
            side_file.path_for(path).unlink()


def _last_used(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
