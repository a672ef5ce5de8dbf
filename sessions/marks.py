"""What a person decided about a session: its name, and that it is to be kept.

``<id>.kv.marks`` beside the checkpoint, JSON:

    {"version": 1, "name": ..., "is_pinned": ...}

The title in a checkpoint is part of the session's id, so it never changes; a name stands in its
place on every screen. Saves leave this file alone, and it belongs to the session, not to one
version of it. A missing or unreadable file means that nothing was decided.
"""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path

from sessions.errors import CheckpointError
from sessions.locks import folder_lock
from sessions.safe_file import open_regular, staged, sync_folder

SUFFIX = ".marks"
VERSION = 1
MAX_NAME_BYTES = 1024
_MAX_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Marks:
    """The content of the file."""

    name: str = ""  # "": the title of the checkpoint
    is_pinned: bool = False  # never removed to make room


def path_for(checkpoint: Path) -> Path:
    """Return the path of the marks of ``checkpoint``."""
    return checkpoint.with_name(checkpoint.name + SUFFIX)


def read(checkpoint: Path) -> Marks:
    """Return the marks of a session, empty where there are none."""
    try:
        with open_regular(path_for(checkpoint)) as file:
            content = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError, CheckpointError):
        return Marks()
    if not isinstance(content, dict) or content.get("version") != VERSION:
        return Marks()
    name, is_pinned = content.get("name"), content.get("is_pinned")
    return Marks(name if isinstance(name, str) else "", is_pinned is True)


def change(checkpoint: Path, **changes: object) -> Marks:
    """Replace some marks of a session and return all of them.

    Raises:
        OSError: they can't be written. Those that were there are as they were.
    """
    folder = checkpoint.parent
    with folder_lock(folder):  # two programs that change different marks keep both
        marks = dataclasses.replace(read(checkpoint), **changes)
        if marks == Marks():
            path_for(checkpoint).unlink(missing_ok=True)
            sync_folder(folder)
            return marks
        content = {"version": VERSION, "name": marks.name, "is_pinned": marks.is_pinned}
        with staged(path_for(checkpoint)) as file:
            file.file.write(json.dumps(content, indent=1).encode("ascii") + b"\n")
            file.finish()
            file.publish()
    return marks
