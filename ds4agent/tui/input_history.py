"""What the person sent, kept between runs: one JSON text a line, readable by its owner only."""

import contextlib
import fcntl
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from ds4agent import paths

LIMIT = 500  # messages
_LONGEST = 20_000  # characters of one message; a longer paste is no thing to recall
_LARGEST_BYTES = 4 << 20  # of the file, before its older half is dropped

_log = logging.getLogger(__name__)


class InputHistory:
    """A file of messages, oldest first; several agents may add to it at once.

    A history that cannot be read or written is no reason to stop anybody: that goes to the log.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path or paths.input_history_file()
        self._is_told = False  # that it cannot be written

    def read(self) -> list[str]:
        """Return the newest messages, oldest first, without neighbours that are the same."""
        try:
            with self._path.open("rb") as file:
                file.seek(0, os.SEEK_END)
                file.seek(max(0, file.tell() - _LARGEST_BYTES))
                lines = file.read().split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            _log.warning("cannot read the history %s: %s", self._path, error)
            return []
        texts: list[str] = []
        for line in lines:
            text = _text(line)
            if text and text != (texts[-1] if texts else ""):
                texts.append(text)
        return texts[-LIMIT:]

    def add(self, text: str) -> str:
        """Append one message, whole or not at all; return what the person is to be told.

        That is "" when it was kept, and after the first of several failures in a row.
        """
        if not text.strip() or len(text) > _LONGEST:
            return ""
        try:
            paths.make_private(self._path.parent)
            with self._locked() as file:
                if os.fstat(file).st_size > _LARGEST_BYTES:
                    self._drop_older(file)
                end = os.fstat(file).st_size
                cut = end > 0 and os.pread(file, 1, end - 1) != b"\n"
                try:
                    _write(file, "\n" * cut + json.dumps(text) + "\n", end)
                except OSError:
                    os.ftruncate(file, end)
                    raise
        except OSError as error:
            _log.warning("cannot write the history %s: %s", self._path, error)
            was_told, self._is_told = self._is_told, True
            return "" if was_told else f"not kept for the next run: {error.strerror}"
        self._is_told = False
        return ""

    def _drop_older(self, file: int) -> None:
        # Over its own beginning, which takes no room: a full disk must not cost the rest.
        kept = "".join(json.dumps(text) + "\n" for text in self.read())
        _write(file, kept, 0)
        os.ftruncate(file, len(kept))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def _write(file: int, text: str, at: int) -> None:
    view = memoryview(text.encode("ascii"))
    while view:  # the last room of a disk takes a part of it
        n_bytes = os.pwrite(file, view, at)
        view, at = view[n_bytes:], at + n_bytes


def _text(line: bytes) -> str:
    try:
        value = json.loads(line)
    except ValueError:  # empty, cut off, or somebody else's
        return ""
    return value if isinstance(value, str) else ""
