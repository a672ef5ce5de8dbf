"""The file of remembered rules: TOML in the person's settings folder, a table for each project.

::

    ["/home/me/project"]
    allow = ["bash(=make test)", "edit"]
    deny = ["bash(git push*)"]

It may be edited by hand; comments survive. It is written whole or not at all, and a lock beside
it keeps two agents from losing each other's rules.
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
from ds4agent.permissions.rules import OwnedRule, Rule, Verdict
from sessions.errors import CheckpointError
from sessions.safe_file import plain_errors, staged

_LARGEST_BYTES = 1 << 20  # a person's rules are some lines; more is no such file


class PermissionFile:
    """The remembered rules of one project.

    Args:
        project: the folder that they are about, see ``paths.project_root``.
        path: the file; None takes ``paths.permissions_file()``.
    """

    def __init__(self, project: Path, path: Path | None = None) -> None:
        self.project = project
        self.path = path or paths.permissions_file()

    def read(self) -> list[OwnedRule]:
        """Return the rules, in the order of the file.

        Raises:
            ConfigError: the file cannot be read or holds something else.
        """
        table = self._table(self._document())
        return [
            OwnedRule(verdict, self._rule(text), str(self.path))
            for verdict in Verdict
            for text in table.get(verdict.value, ())
        ]

    def add(self, verdict: Verdict, rule: Rule) -> None:
        """Remember a rule; what was said of the same rule before is forgotten.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        with self._locked():
            document = self._document()
            _drop(self._table(document), rule)
            table = document.setdefault(str(self.project), tomlkit.table())
            table.setdefault(verdict.value, tomlkit.array()).append(str(rule))
            self._write(document)

    def remove(self, rule: Rule) -> bool:
        """Forget a rule; False when there was none.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        with self._locked():
            document = self._document()
            was_there = _drop(self._table(document), rule)
            if was_there:
                self._write(document)
            return was_there

    def _document(self) -> tomlkit.TOMLDocument:
        try:
            if not self.path.exists():
                return tomlkit.document()
            if self.path.stat().st_size > _LARGEST_BYTES:
                raise ConfigError(f"{self.path} is too large for rules", "Move it away.")
            return tomlkit.parse(self.path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, TOMLKitError) as error:
            raise ConfigError(
                f"cannot read the rules in {self.path}: {error}", "Correct the file, or move it."
            ) from error

    def _table(self, document: tomlkit.TOMLDocument) -> dict:
        table = document.get(str(self.project), {})
        known = {verdict.value for verdict in Verdict}
        is_good = isinstance(table, dict) and all(
            name in known and isinstance(rules, list) and all(isinstance(r, str) for r in rules)
            for name, rules in table.items()
        )
        if not is_good:
            raise ConfigError(
                f"{self.path}: the table of {self.project} is not lists of rules named "
                f"{', '.join(sorted(known))}",
                "Correct the file, or move it away.",
            )
        return table

    def _rule(self, text: str) -> Rule:
        try:
            return Rule.parse(text)
        except ConfigError as error:
            raise ConfigError(f"{self.path}: {error}", error.hint) from error

    def _write(self, document: tomlkit.TOMLDocument) -> None:
        text = tomlkit.dumps(document).encode("utf-8")
        try:
            with plain_errors("write the rules to", self.path), staged(self.path) as new:
                new.file.write(text)
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


def _drop(table: dict, rule: Rule) -> bool:
    was_there = False
    for rules in table.values():
        while str(rule) in rules:
            rules.remove(str(rule))
            was_there = True
    return was_there
