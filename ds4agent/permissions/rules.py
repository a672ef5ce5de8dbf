"""Rules: a tool, a pattern, and what happens to a call that fits.

A rule is written ``TOOL`` or ``TOOL(PATTERN)``; ``*`` as the tool means every tool. What the
pattern is compared with is the subject of the call's preview: a path inside the workspace, or
the command.

=====================  ============================================================
``edit``               every edit
``write(docs/**)``     files below ``docs``; ``*`` ends at a slash, ``**`` does not
``bash(pytest *)``     commands that begin so and are one simple command
``bash(=ls *.py)``     exactly this command, stars and all
=====================  ============================================================

A rule that allows must not be widened by what a shell makes of a line: ``git status*`` has to
fit ``git status; rm -r .`` never. So a pattern that allows fits only a single simple command,
while one that asks or denies also fits each part of a longer one. That is a net for mistakes,
no wall: the sandbox decides what a command is able to do.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from ds4agent.errors import ConfigError

_RULE = re.compile(r"(?P<tool>[A-Za-z0-9_.\-]+|\*)(?:\((?P<pattern>.+)\))?", re.DOTALL)
_NOT_SIMPLE = re.compile(r"[;&|<>$`(){}\n\\#]")  # what a shell gives a meaning beyond one command
_SEPARATOR = re.compile(r"[;&|(){}\n]+|\$\(|`")


class Verdict(StrEnum):
    """What happens to a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; ``pattern`` is None when the tool alone decides."""

    tool: str
    pattern: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Rule":
        """Read a rule as people write it.

        Raises:
            ConfigError: it is none.
        """
        found = _RULE.fullmatch(text.strip())
        if found is None:
            raise ConfigError(
                f"{text!r} is no rule, expected TOOL or TOOL(PATTERN)",
                "For example edit(src/**) or bash(make test).",
            )
        return cls(found["tool"], found["pattern"])

    @classmethod
    def exactly(cls, tool: str, subject: str) -> "Rule":
        """Return the rule that fits this very call and no other."""
        return cls(tool, f"={subject}")

    def __str__(self) -> str:
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"

    def fits(self, tool: str, subject: str, *, is_command: bool, verdict: Verdict) -> bool:
        """Tell whether a call falls under this rule.

        Args:
            tool: its name.
            subject: its path or command.
            is_command: the subject is a command line.
            verdict: what the rule would say, see above.
        """
        if self.tool not in ("*", tool):
            return False
        if self.pattern is None:
            return True
        if self.pattern.startswith("="):
            return subject == self.pattern[1:]
        if not is_command:
            return _path_pattern(self.pattern).fullmatch(subject) is not None
        pattern = _command_pattern(self.pattern)
        if verdict is Verdict.ALLOW:
            return not _NOT_SIMPLE.search(subject) and pattern.fullmatch(subject) is not None
        parts = (subject, *_SEPARATOR.split(subject))
        return any(pattern.fullmatch(part.strip()) for part in parts)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The rule that decided, if one did."""

    verdict: Verdict
    rule: Rule
    origin: str  # where the rule stands


@dataclass(frozen=True, slots=True)
class OwnedRule:
    """A rule with its verdict and the place that it came from."""

    verdict: Verdict
    rule: Rule
    origin: str


_ORDER = (Verdict.DENY, Verdict.ASK, Verdict.ALLOW)  # the strictest that fits decides


def judge(
    rules: Iterable[OwnedRule], tool: str, subject: str, *, is_command: bool
) -> Judgement | None:
    """Return what the rules say of a call; None when none of them fits."""
    fitting = [
        owned
        for owned in rules
        if owned.rule.fits(tool, subject, is_command=is_command, verdict=owned.verdict)
    ]
    for verdict in _ORDER:
        for owned in fitting:
            if owned.verdict is verdict:
                return Judgement(verdict, owned.rule, owned.origin)
    return None


@lru_cache(maxsize=256)
def _path_pattern(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    meanings = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(meanings.get(part, re.escape(part)) for part in parts), re.DOTALL)


@lru_cache(maxsize=256)
def _command_pattern(pattern: str) -> re.Pattern[str]:
    parts = pattern.split("*")
    return re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)
