"""Our own facts about a session, in ``<id>.kv.meta`` beside its checkpoint.

A checkpoint has no room for the folder that a conversation works in. The side file is JSON:

    {"version": 1, "cwd": ..., "model": ..., "fingerprint": ..., "describes": [STAMP, ...],
     "state_sha256": ..., "text_sha256": ..., "created_at": ...}

A stamp is ``<bytes of the .kv>-<hex digest of its payload>``. A side file counts only for a
checkpoint that it names. It is renamed into place just before its checkpoint and names the one
that is being replaced too, so a crash between the two renames loses nothing. The checksum is of the
payload of the first that it names, and empty where the payload has one itself; that of the text is
there with it. The time of creation is that of the session: the checkpoint of a fork may still have
another's. Whatever is missing or wrong here means "unknown" and never hinders a load.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessions.errors import CheckpointError, ChecksumError
from sessions.record import SessionMeta
from sessions.safe_file import open_regular

SUFFIX = ".meta"
VERSION = 1
_MAX_BYTES = 1 << 20  # a path and a name are far shorter


@dataclass(frozen=True, slots=True)
class SideFile:
    """The content of a side file."""

    meta: SessionMeta
    fingerprint: str
    describes: tuple[str, ...]  # stamps of checkpoints
    state_sha256: str = ""  # hex, of the first one's
    text_sha256: str = ""  # hex, where there is a ``state_sha256``
    created_at: int = 0  # Unix seconds, of the session; 0: not known

    def pack(self) -> bytes:
        """Return the bytes of the file."""
        content = {
            "version": VERSION,
            "cwd": self.meta.cwd,
            "model": self.meta.model,
            "fingerprint": self.fingerprint,
            "describes": list(self.describes),
            "state_sha256": self.state_sha256,
            "text_sha256": self.text_sha256,
            "created_at": self.created_at,
        }
        return json.dumps(content, indent=1).encode("ascii") + b"\n"


def stamp(file_bytes: int, digest: str) -> str:
    """Return what names one version of a checkpoint."""
    return f"{file_bytes}-{digest}"


def path_for(checkpoint: Path) -> Path:
    """Return the path of the side file of ``checkpoint``."""
    return checkpoint.with_name(checkpoint.name + SUFFIX)


def check(checkpoint: Path, checkpoint_stamp: str, text: bytes) -> None:
    """Compare what a checksum of the payload does not reach: the text, and what makes the stamp.

    Raises:
        ChecksumError: the text isn't what was written.
        CheckpointError: tokens or logits are not those that were saved.
    """
    facts = facts_of(checkpoint, checkpoint_stamp)
    if facts.text_sha256 and hashlib.sha256(text).hexdigest() != facts.text_sha256:
        raise ChecksumError(
            "the checksum of its text is wrong", "The file is damaged: load another session."
        )
    content = _content(checkpoint)
    known = content.get("describes")
    # A damaged stamp must not make a state pass for one that was saved by another program. That
    # one would be longer: a session is saved again when something was said.
    n_bytes = checkpoint_stamp.partition("-")[0]
    if (
        not facts.describes
        and content.get("state_sha256")
        and isinstance(known, list)
        and any(isinstance(entry, str) and entry.startswith(f"{n_bytes}-") for entry in known)
    ):
        raise CheckpointError(
            "its tokens or logits are not those that were saved",
            f"If another program has saved it, remove {path_for(checkpoint).name}.",
        )


def _content(checkpoint: Path) -> dict[str, Any]:
    """Return the JSON object of a side file, empty where there is none that we read."""
    try:
        with open_regular(path_for(checkpoint)) as file:
            content = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError, CheckpointError):
        return {}
    is_ours = isinstance(content, dict) and content.get("version") == VERSION
    return content if is_ours else {}


def facts_of(checkpoint: Path, checkpoint_stamp: str) -> SideFile:
    """Return what the side file says about this version of a checkpoint, or empty fields."""
    nothing, content = SideFile(SessionMeta(), "", ()), _content(checkpoint)
    cwd, model, describes = (content.get(name) for name in ("cwd", "model", "describes"))
    if not isinstance(cwd, str) or not isinstance(model, str) or not isinstance(describes, list):
        return nothing
    if checkpoint_stamp not in describes:
        return nothing
    text_sha256 = content.get("text_sha256")
    # Earlier versions wrote no checksum; it is that of the first checkpoint alone.
    fingerprint, checksum = content.get("fingerprint"), content.get("state_sha256")
    is_first = describes[0] == checkpoint_stamp
    created_at = content.get("created_at")
    return SideFile(
        SessionMeta(cwd, model),
        fingerprint if isinstance(fingerprint, str) else "",
        tuple(describes),
        checksum if is_first and isinstance(checksum, str) else "",
        text_sha256 if is_first and isinstance(text_sha256, str) else "",
        created_at if type(created_at) is int and 0 <= created_at < 1 << 63 else 0,
    )
