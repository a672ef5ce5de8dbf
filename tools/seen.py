"""Which file contents the model has seen, by hash.

A file may be overwritten only when its present content is one that was read or written through
these tools. The hash of the content decides, not a time or a count of turns, so touching a file or
reading it again never blocks a correct change.
"""

import hashlib


class SeenFiles:
    """The last seen content of each file, for the lifetime of one toolbox."""

    def __init__(self) -> None:
        self._digests: dict[str, str] = {}

    def note(self, path: str, digest: str) -> None:
        """Remember that the model knows this content (SHA-256, hex) of the file."""
        self._digests[path] = digest

    def note_content(self, path: str, data: bytes) -> None:
        """Remember the content itself."""
        self.note(path, hashlib.sha256(data).hexdigest())

    def knows(self, path: str) -> bool:
        """True when some content of this file was seen."""
        return path in self._digests

    def is_current(self, path: str, data: bytes) -> bool:
        """True when ``data`` is what was last seen of the file."""
        return self._digests.get(path) == hashlib.sha256(data).hexdigest()
