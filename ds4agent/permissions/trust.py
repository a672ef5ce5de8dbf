"""Which folders a person trusts: what such a project brings takes effect, see ``agent.project``.

::

    "/home/me/project" = true
    "/tmp/somebody-elses" = false

The file lies beside the settings: a repository must not be able to say this of itself.
"""

import os
from pathlib import Path

from ds4agent import paths
from ds4agent.errors import ConfigError


class TrustFile:
    """What was said of one folder.

    Args:
        project: the top of the repository, or the folder itself; see ``paths.project_root``.
        path: the file; None takes ``paths.trust_file()``.
    """

    def __init__(self, project: Path, path: Path | None = None) -> None:
        self.project = Path(os.path.realpath(project))
        self.path = path or paths.trust_file()

    def read(self) -> bool | None:
        """Return what was said, None when nobody has been asked yet.

        Raises:
            ConfigError: the file cannot be read, or says something else.
        """
        if not self.path.exists():
            return None  # mostly, and without the library
        from ds4agent.permissions.person_file import PersonFile

        said = PersonFile(self.path, "trusted folders").read().get(self._key)
        if said is None or isinstance(said, bool):
            return said
        raise ConfigError(
            f"{self.path}: {self._key} is {said!r}, expected true or false", "Correct the file."
        )

    def remember(self, trusted: bool) -> None:
        """Keep what was said.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        from ds4agent.permissions.person_file import PersonFile

        with PersonFile(self.path, "trusted folders").edited() as document:
            document[self._key] = trusted

    @property
    def _key(self) -> str:
        # The name of a folder need not be UTF-8, a TOML file must be.
        return os.fsencode(self.project).decode("utf-8", "backslashreplace")
