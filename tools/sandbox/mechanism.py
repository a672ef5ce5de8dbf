"""What every way to confine a command has to provide."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tools.sandbox.policy import SandboxPolicy


@dataclass(frozen=True, slots=True)
class Launch:
    """One command, ready to be started.

    The started program reads ``payload`` from a descriptor and writes lines of JSON to another:
    ``{"child-pid": N}`` names the first process of the command as seen from outside,
    ``{"exit-code": N}`` how it ended (128 + signal number when a signal ended it).
    """

    # (payload fd, status fd, is gated) -> program and arguments. Gated: the command waits for a
    # line on its standard input. A supervisor is never asked for that: it watches its own parent.
    arguments: Callable[[int, int, bool], list[str]]
    payload: bytes


class Mechanism(Protocol):
    """One way to confine a command."""

    key: str  # on a command line
    name: str  # for people
    needs_masks: bool  # a missing protected folder must exist while a command runs
    # True: the started program changes to the user of the policy, and ends the command's processes
    # when it gets SIGTERM. False: it is started as that user, and the kernel ends the processes
    # with the first of them.
    is_supervisor: bool

    def missing(self, root: Path) -> tuple[str, str]:
        """Return why it cannot work for this workspace and what to do, ("", "") when it may."""

    def launch(
        self, policy: SandboxPolicy, shell: str, command: str
    ) -> AbstractContextManager[Launch]:
        """Translate the policy for one command; what it needs lives as long as the block."""

    def hint(self, reason: str) -> str:
        """Say what a person can do about a failure of the mechanism."""

    def failure_note(self, root: Path, output: str) -> str:
        """Explain a failed command's output to the model where the mechanism is the cause."""
