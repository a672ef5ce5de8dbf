"""A small TOML file of the person's own, beside the settings, that the program adds to.

It may be edited by hand; comments survive. It is written whole or not at all, and a lock beside
it keeps two agents from losing each other's entries.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ds4agent import paths
from ds4agent.errors import ConfigError
from sessions.errors import CheckpointError
from sessions.safe_file import plain_errors, staged

_LARGEST_BYTES = 1 << 20  # what a person has said is some lines; more is no such file


class PersonFile:
    """One file.

    Args:
        path: created with the first entry.
        what: what stands in it, for messages: "rules".
    """

    def __init__(self, path: Path, what: str) -> None:
        self.path = path
        self._what = what

    def read(self) -> tomlkit.TOMLDocument:
        """Return what the file holds, an empty document when there is none.

        Raises:
            ConfigError: it cannot be read.
        """
        try:
            if not self.path.exists():
                return tomlkit.document()
            if self.path.stat().st_size > _LARGEST_BYTES:
                raise ConfigError(f"{self.path} is too large for {self._what}", "Move it away.")
            return tomlkit.parse(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, TOMLKitError) as error:
            raise ConfigError(
                f"cannot read the {self._what} in {self.path}: {error}",
                "Correct the file, or move it.",
            ) from error

    @contextlib.contextmanager
    def edited(self) -> Iterator[tomlkit.TOMLDocument]:
        """Change what the file holds: written at the end of the block, if it is another then.

        Raises:
            ConfigError: it cannot be read or written.
        """
        with self._locked():
            document = self.read()
            before = tomlkit.dumps(document)
            yield document
            after = tomlkit.dumps(document)
            if after != before:
                self._write(after)

    def _write(self, text: str) -> None:
        try:
            with plain_errors(f"write the {self._what} to", self.path), staged(self.path) as new:
                new.file.write(text.encode("utf-8"))
                new.finish()
                new.publish()
        except CheckpointError as error:
            raise ConfigError(str(error), error.hint) from error

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        try:
            paths.make_private(self.path.parent)
            lock = os.open(
                self.path.with_name(self.path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600
            )
        except OSError as error:
            raise ConfigError(
                f"cannot write beside {self.path}: {error.strerror}", "Unlock the folder."
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)
