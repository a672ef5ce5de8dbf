"""Contents of files, each kept once under the hash of its bytes.

A content is written to a temporary file and renamed, so what has a name is whole. Nothing is
flushed to the disk by force: a power cut may cost undo, never the project's files.
"""

import hashlib
import os
import secrets
import zlib
from collections.abc import Container
from pathlib import Path

from tools.undo.private_folder import make_private_folder

_SHRUNK, _PLAIN = b"z", b"-"  # the first byte of a kept file
_SAMPLE_BYTES = 4096  # what does not shrink here, an archive or an image, is kept as it is
_LEVEL = 1  # source shrinks to a third at several hundred MB a second


class ObjectStore:
    """A folder of contents.

    Args:
        folder: created when the first content is kept.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, data: bytes) -> str:
        """Keep a content; returns its SHA-256 in hex.

        Raises:
            OSError: it cannot be written.
        """
        digest = hashlib.sha256(data).hexdigest()
        path = self._path(digest)
        if not path.exists():
            make_private_folder(path.parent)
            temporary = path.with_name(f".{secrets.token_hex(6)}.tmp")
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                with os.fdopen(fd, "wb") as file:
                    file.write(_packed(data))
                os.replace(temporary, path)
            except BaseException:  # on a full disk, half a content would take the last room
                temporary.unlink(missing_ok=True)
                raise
        return digest

    def has(self, digest: str) -> bool:
        """True when the content is kept."""
        return self._path(digest).exists()

    def get(self, digest: str) -> bytes | None:
        """Return a content, None when it is not kept, or not whole any more."""
        try:
            packed = self._path(digest).read_bytes()
            data = zlib.decompress(packed[1:]) if packed[:1] == _SHRUNK else packed[1:]
        except (OSError, zlib.error):
            return None
        return data if hashlib.sha256(data).hexdigest() == digest else None

    def total_bytes(self) -> int:
        """Return what the kept contents take on the disk."""
        return sum(path.stat().st_size for path in self._folder.glob("*/*"))

    def remove_all_but(self, wanted: Container[str]) -> None:
        """Remove every content that is not among ``wanted``."""
        for path in self._folder.glob("*/*"):
            if path.parent.name + path.name not in wanted:
                path.unlink(missing_ok=True)

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest[2:]


def _packed(data: bytes) -> bytes:
    sample = data[:_SAMPLE_BYTES]
    if len(zlib.compress(sample, _LEVEL)) > len(sample) * 0.8:
        return _PLAIN + data
    return _SHRUNK + zlib.compress(data, _LEVEL)
