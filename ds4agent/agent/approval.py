"""What may run without asking: decided by what a tool can change, never by its name."""

from enum import StrEnum

from ds4agent.events import Mode
from tools.base import Access


class Verdict(StrEnum):
    """What happens to a call."""

    ALLOW = "allow"
    ASK = "ask"
    REFUSE = "refuse"


class ApprovalPolicy:
    """The rules of the three modes, and the tools the person has said "always" to.

    Remembered answers live as long as the process: a right that was given on a whim must not
    outlast the moment.
    """

    def __init__(self, is_sandboxed: bool) -> None:
        self._is_sandboxed = is_sandboxed
        self._always: set[str] = set()

    def decide(self, tool_name: str, access: Access, mode: Mode) -> Verdict:
        """Return what to do with a call.

        =======  ========  =======  =======================================
        mode     READ      WRITE    EXECUTE
        =======  ========  =======  =======================================
        plan     allow     refuse   refuse
        ask      allow     ask      ask
        auto     allow     allow    allow in a sandbox, ask without one
        =======  ========  =======  =======================================

        An "always" turns *ask* into *allow*. It never overrules *plan*.
        """
        if access is Access.READ:
            return Verdict.ALLOW
        if mode is Mode.PLAN:
            return Verdict.REFUSE
        if tool_name in self._always:
            return Verdict.ALLOW
        if mode is Mode.AUTO and (access is Access.WRITE or self._is_sandboxed):
            return Verdict.ALLOW
        return Verdict.ASK

    def remember(self, tool_name: str) -> None:
        """Allow this tool from now on, in the modes that would ask."""
        self._always.add(tool_name)
