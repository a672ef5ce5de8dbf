"""What may run without asking: decided by rules, and by what a tool can change, never by its name.

Every decision is in the log.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from ds4agent.errors import ConfigError
from ds4agent.events import PermissionEntry
from ds4agent.permissions.file import PermissionFile
from ds4agent.permissions.rules import OwnedRule, Rule, Verdict, judge
from ds4agent.plain import one_line
from ds4agent.requests import Mode
from tools.base import Access

_THIS_RUN = "this run"  # where a rule stands that no file keeps
_log = logging.getLogger(__name__)


class Action(StrEnum):
    """The three edits of the rules that a person makes, and forgetting one."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Decision:
    """What happens to a call, and why."""

    verdict: Verdict
    reason: str  # for the model when denied, and for the log


class ApprovalPolicy:
    """The modes, and the rules of the settings and of the project."""

    def __init__(
        self,
        is_sandboxed: bool,
        rules: Sequence[OwnedRule] = (),
        file: PermissionFile | None = None,
    ) -> None:
        """Read the rules.

        Args:
            is_sandboxed: commands are confined.
            rules: those of the settings, in force as long as the process lives.
            file: the remembered ones of the project; None keeps "always" for this run only.

        Raises:
            ConfigError: the file cannot be read.
        """
        self._is_sandboxed = is_sandboxed
        self._settings = tuple(rules)
        self._file = file
        self._of_project: list[OwnedRule] = file.read() if file is not None else []

    def decide(self, tool: str, access: Access, mode: Mode, subject: str = "") -> Decision:
        """Say what happens to a call.

        =======  ========  =======  =======================================  =========
        mode     READ      WRITE    EXECUTE                                  others
        =======  ========  =======  =======================================  =========
        plan     allow     deny     deny                                     deny
        ask      allow     ask      ask                                      ask
        auto     allow     allow    allow in a sandbox, ask without one      ask
        full     allow     allow    allow                                    allow
        =======  ========  =======  =======================================  =========

        A rule that denies or asks holds in every mode. One that allows turns *ask* into *allow*;
        it never overrules *plan*.
        """
        decision = self._decide(tool, access, mode, subject)
        _log.info("%s: %s %s (%s)", decision.verdict, tool, one_line(subject, 120), decision.reason)
        return decision

    def remember(self, rule: Rule, verdict: Verdict = Verdict.ALLOW) -> None:
        """Keep a rule for this project.

        Raises:
            ConfigError: the file cannot be written; the rule then holds for this run.
        """
        origin = _THIS_RUN if self._file is None else str(self._file.path)
        self._of_project = [owned for owned in self._of_project if owned.rule != rule]
        self._of_project.append(OwnedRule(verdict, rule, origin))
        if self._file is not None:
            self._file.add(verdict, rule)

    def edit(self, action: str, text: str) -> None:
        """Carry out one edit of a person; ``action`` is one of ``Action``.

        Raises:
            ConfigError: the action or the rule is none, there is nothing to remove, or the file
                cannot be written.
        """
        if action not in {known.value for known in Action}:
            names = ", ".join(Action)
            raise ConfigError(
                f"{action!r} is nothing that can be done with a rule", f"Use one of {names}."
            )
        rule = Rule.parse(text)
        if action != Action.REMOVE:
            self.remember(rule, Verdict(action))
            return
        was_there = any(owned.rule == rule for owned in self._of_project)
        self._of_project = [owned for owned in self._of_project if owned.rule != rule]
        if self._file is not None:
            was_there = self._file.remove(rule) or was_there
        if not was_there:
            raise ConfigError(
                f"there is no remembered rule {text!r} for this project",
                "/permissions shows them; those of the settings are removed there.",
            )

    def entries(self) -> tuple[PermissionEntry, ...]:
        """Return all rules that hold here, those of the settings first."""
        return tuple(
            PermissionEntry(owned.verdict.value, str(owned.rule), owned.origin)
            for owned in (*self._settings, *self._of_project)
        )

    def _decide(self, tool: str, access: Access, mode: Mode, subject: str) -> Decision:
        is_command = access is Access.EXECUTE
        rules = (*self._settings, *self._of_project)
        found = judge(rules, tool, subject, is_command=is_command)
        if found is not None and found.verdict is Verdict.DENY:
            return Decision(Verdict.DENY, f"the rule {found.rule} forbids it")
        if access is not Access.READ and mode is Mode.PLAN:
            return Decision(Verdict.DENY, f"{mode.value} mode is read-only")
        if found is not None:
            return Decision(found.verdict, f"rule {found.rule} of {found.origin}")
        is_free = access is Access.READ or mode is Mode.FULL
        if mode is Mode.AUTO:
            is_free = is_free or access is Access.WRITE or (is_command and self._is_sandboxed)
        return Decision(Verdict.ALLOW if is_free else Verdict.ASK, f"{mode.value} mode")


def rule_for(tool: str, access: Access, subject: str) -> Rule:
    """Return what "always" means for a call: this very command, or the whole tool.

    A tool that changes files stays inside the workspace, whatever the path; another command may
    do anything.
    """
    return Rule.exactly(tool, subject) if access is Access.EXECUTE and subject else Rule(tool)
