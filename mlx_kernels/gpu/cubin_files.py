"""Compiled CUDA kernels on the disk, so that a process compiles only what none did before.

A file is a cubin behind its SHA-256: one that is cut off or changed is as good as none.
"""

import hashlib
import logging
import os
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import platformdirs

_DIGEST_BYTES = hashlib.sha256().digest_size
_UNUSED_DAYS = 90  # then a file is removed: its text or its compiler is no longer here
_DAY_S = 24 * 60 * 60

_log = logging.getLogger(__name__)


class CubinFiles:
    """The kernels in a folder, by name."""

    def __init__(self, folder: Path) -> None:
        """Nothing is done yet: a first write makes the folder and removes what is long unused."""
        self._folder = folder
        self._is_cleared = False

    def read(self, name: str) -> bytes | None:
        """Return a kernel; None where there is none that is whole."""
        path = self._folder / f"{name}.cubin"
        try:
            content = path.read_bytes()
            os.utime(path)  # used today
        except OSError:
            return None
        digest, cubin = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
        return cubin if hashlib.sha256(cubin).digest() == digest else None

    def write(self, name: str, cubin: bytes) -> None:
        """Keep a kernel. Where that is impossible it is said in the log: it is compiled again."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._clear()
            with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
                try:
                    file.write(hashlib.sha256(cubin).digest() + cubin)
                    file.close()
                    os.replace(file.name, self._folder / f"{name}.cubin")
                except OSError:
                    with suppress(OSError):
                        os.unlink(file.name)
                    raise
        except OSError as error:
            _log.warning("a compiled CUDA kernel cannot be kept in %s: %s", self._folder, error)

    def _clear(self) -> None:
        if self._is_cleared:
            return
        self._is_cleared = True
        oldest = time.time() - _UNUSED_DAYS * _DAY_S
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another process was first
                if path.stat().st_mtime < oldest:
                    path.unlink()


@cache
def users_files() -> CubinFiles:
    """Those of all programs of the user."""
    return CubinFiles(platformdirs.user_cache_path("ds4-agent", appauthor=False) / "cuda")
