"""SHA-256 of model files, remembered so that a file of many gigabytes is read once, not each time.

The result stands in a small file beside the model, with the size and the modification time that it
belongs to. It saves time; it protects from damage, not from somebody who can write to the folder.
"""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

Progress = Callable[[int, int], None]  # bytes done, bytes in all

_CHUNK_BYTES = 4 << 20  # large enough that the hash, not the loop, is what takes the time


def sha256_of(path: Path, progress: Progress | None = None) -> str:
    """Read a whole file and return its SHA-256 as hex digits."""
    digest = hashlib.sha256()
    total = path.stat().st_size
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, total)
    return digest.hexdigest()


def remembered_sha256(path: Path) -> str:
    """Return the hash noted for this very file, or "" when there is none or the file changed."""
    try:
        note = json.loads(_note_path(path).read_text(encoding="utf-8"))
        stat = path.stat()
        if (note["bytes"], note["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns):
            return str(note["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # no note, or not one of ours: the file is simply hashed again
    return ""


def remember_sha256(path: Path, sha256: str) -> None:
    """Note the hash of a file. A folder that cannot be written to only costs the next hashing."""
    stat = path.stat()
    note = {"sha256": sha256, "bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    try:
        _note_path(path).write_text(json.dumps(note) + "\n", encoding="utf-8")
    except OSError:
        return


def verified_sha256(path: Path, progress: Progress | None = None) -> str:
    """Return the hash of a file, from the note where it is still valid."""
    known = remembered_sha256(path)
    if not known:
        known = sha256_of(path, progress)
        remember_sha256(path, known)
    return known


def _note_path(path: Path) -> Path:
    return path.with_name(f".{path.name}.sha256.json")
