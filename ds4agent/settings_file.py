"""Writing one setting into the person's own settings file. Comments and order survive."""

from pathlib import Path
from typing import Any

from ds4agent import paths
from ds4agent.config import Config, parse_value
from ds4agent.permissions.person_file import PersonFile


class SettingsFile:
    """The person's ``config.toml``; a project's file is never written."""

    def __init__(self) -> None:
        self._file = PersonFile(paths.config_file(), "settings")

    @property
    def path(self) -> Path:
        """Where it is."""
        return self._file.path

    def write(self, name: str, text: str) -> Any:
        """Set a setting to what a person typed, and return its value.

        Raises:
            ConfigError: the value is wrong, or the file cannot be read or written.
        """
        value = parse_value(name, text)
        with self._file.edited() as document:
            document[name] = value
        return value

    def remove(self, name: str) -> None:
        """Go back to the built-in value.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        with self._file.edited() as document:
            document.pop(name, None)

    def is_in_force(self, config: Config, name: str) -> bool:
        """Tell whether the person's file decides a setting: no project, variable or flag does."""
        origin = config.origin(name)
        return origin == "default" or origin.startswith(f"{self._file.path}:")

    def changed(self, config: Config, name: str) -> Config:
        """Return the settings with a value that was written, if the person's file decides it."""
        if not self.is_in_force(config, name):
            return config
        document = self._file.read()
        if name not in document:
            return config.with_values({name: getattr(Config(), name)}, "default")
        return config.with_values({name: document[name].unwrap()}, f"{self._file.path}:")
