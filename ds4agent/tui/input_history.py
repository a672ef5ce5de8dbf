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

    def add(self, text: str) -> None:
        """Append one message."""
        if not text.strip() or len(text) > _LONGEST:
            return
        try:
            paths.make_private(self._path.parent)
            with self._locked() as file:
                if os.fstat(file).st_size > _LARGEST_BYTES:
                    kept = "".join(json.dumps(old) + "\n" for old in self.read())
                    os.ftruncate(file, 0)
                    os.write(file, kept.encode("ascii"))
                os.write(file, (json.dumps(text) + "\n").encode("ascii"))
        except OSError as error:
            _log.warning("cannot write the history %s: %s", self._path, error)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        file = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def _text(line: bytes) -> str:
    try:
        value = json.loads(line)
    except ValueError:  # empty, cut off, or somebody else's
        return ""
    return value if isinstance(value, str) else ""
