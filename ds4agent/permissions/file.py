"""The file of remembered rules: TOML in the person's settings folder, a table for each project.

::

    ["/home/me/project"]
    allow = ["bash(=make test)", "edit"]
    deny = ["bash(git push*)"]

It may be edited by hand; see ``person_file``.
"""

from pathlib import Path

import tomlkit

from ds4agent import paths
from ds4agent.errors import ConfigError
from ds4agent.permissions.person_file import PersonFile
from ds4agent.permissions.rules import OwnedRule, Rule, Verdict


class PermissionFile:
    """The remembered rules of one project.

    Args:
        project: the folder that they are about, see ``paths.project_root``.
        path: the file; None takes ``paths.permissions_file()``.
    """

    def __init__(self, project: Path, path: Path | None = None) -> None:
        self.project = project
        self.path = path or paths.permissions_file()
        self._file = PersonFile(self.path, "rules")

    def read(self) -> list[OwnedRule]:
        """Return the rules, in the order of the file.

        Raises:
            ConfigError: the file cannot be read or holds something else.
        """
        table = self._table(self._file.read())
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
        with self._file.edited() as document:
            _drop(self._table(document), rule)
            table = document.setdefault(str(self.project), tomlkit.table())
            table.setdefault(verdict.value, tomlkit.array()).append(str(rule))

    def remove(self, rule: Rule) -> bool:
        """Forget a rule; False when there was none.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        with self._file.edited() as document:
            return _drop(self._table(document), rule)

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


def _drop(table: dict, rule: Rule) -> bool:
    was_there = False
    for rules in table.values():
        while str(rule) in rules:
            rules.remove(str(rule))
            was_there = True
    return was_there
