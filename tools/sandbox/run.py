"""The only place that starts a process a model chose.

One call: scan the workspace, make the policy, create what must exist to be protected, start the
mechanism, pass on output, and stop on exit, time-out, cancel or a limit. However it ends, no
process of the command is left when the call returns: they live in a process namespace of their
own, and the kernel ends all of them with its first process; or a supervisor ends them.
"""

import os
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from tools.errors import SandboxUnavailable, ToolError
from tools.sandbox.aftermath import check_after
from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.landlock import Landlock
from tools.sandbox.masks import scanned_and_masked
from tools.sandbox.mechanism import Mechanism
from tools.sandbox.policy import SandboxPolicy, base_policy, with_scan
from tools.sandbox.running import OnBytes, Running
from tools.text import one_line

MAX_COMMAND_BYTES = 100_000  # the kernel passes at most 128 KiB as one argument
Adjust = Callable[[SandboxPolicy], SandboxPolicy]
_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")


MECHANISMS: tuple[Mechanism, ...] = (Bubblewrap(), Landlock())  # strongest first


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How a command ended."""

    exit_code: int | None  # 128 + signal number when a signal ended it; None when we stopped it
    stopped_because: str = ""  # "timeout", "cancelled", or the limit it passed
    notes: tuple[str, ...] = ()  # what the model should know about protected paths
    has_output: bool = False
    seconds: float = 0.0


class Sandbox:
    """Runs commands in one workspace.

    Args:
        root: the workspace.
        mechanism: how they are confined.
        homes: the person's home folders, real paths.
        environ: this process's environment; the command gets only a few values of it.
    """

    def __init__(
        self,
        root: Path,
        mechanism: Mechanism,
        homes: tuple[Path, ...],
        environ: Mapping[str, str],
    ) -> None:
        self.root = Path(os.path.realpath(root))
        self.name = mechanism.name
        self._mechanism = mechanism
        why, what_next = mechanism.missing(self.root)
        if why:
            raise SandboxUnavailable(why, what_next)
        self._shell = next((path for path in _SHELLS if os.access(path, os.X_OK)), "/bin/sh")
        self._base = base_policy(self.root, homes, environ)

    def limit(self, **limits: int) -> None:
        """Change limits of this sandbox, such as ``memory_bytes``; see ``policy.Limits``."""
        self._base = replace(self._base, limits=replace(self._base.limits, **limits))

    @property
    def can_open_protected(self) -> bool:
        """True when a part of a protected folder can be made writable, and the rest not."""
        return self._mechanism.needs_masks

    def run(
        self,
        command: str,
        timeout_s: float,
        cancel: threading.Event,
        on_bytes: OnBytes,
        *,
        adjust: Adjust | None = None,
    ) -> CommandResult:
        """Run a shell command to its end.

        Args:
            command: text for the shell.
            timeout_s: wall time in seconds, after which everything is killed.
            cancel: kills everything when set.
            on_bytes: gets stdout and stderr, merged, as they come, on this thread.
            adjust: changes the policy of this command, for tools with fixed commands.

        Raises:
            SandboxUnavailable: it could not be confined; nothing was run.
        """
        if len(os.fsencode(command)) > MAX_COMMAND_BYTES:
            raise ToolError(
                f"the command has more than {MAX_COMMAND_BYTES} bytes",
                "Write it to a file and run the file.",
            )
        return self._run(command, time.monotonic() + timeout_s, cancel, on_bytes, adjust=adjust)

    def run_attached(
        self,
        program: Sequence[str],
        cancel: threading.Event,
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> CommandResult:
        """Run a program with our own standard streams, for as long as it takes.

        Args:
            program: its name or path, and its arguments.
            cancel: kills everything when set.
            environment: variables that the person hands over to it, beside those of every command.

        Raises:
            SandboxUnavailable: it could not be confined; nothing was run.
        """
        command = f"exec {shlex.join(program)}"

        def adjust(policy: SandboxPolicy) -> SandboxPolicy:
            return replace(policy, environment=(*policy.environment, *environment.items()))

        return self._run(command, float("inf"), cancel, _drop, is_attached=True, adjust=adjust)

    def _run(
        self,
        command: str,
        deadline: float,
        cancel: threading.Event,
        on_bytes: OnBytes,
        *,
        is_attached: bool = False,
        adjust: Adjust | None = None,
    ) -> CommandResult:
        started = time.monotonic()
        mechanism = self._mechanism
        with scanned_and_masked(self.root, creates=mechanism.needs_masks) as scan:
            policy = with_scan(self._base, scan)
            policy = adjust(policy) if adjust is not None else policy
            with (
                mechanism.launch(policy, self._shell, command) as launch,
                Running.start(
                    launch, policy, mechanism.is_supervisor, is_attached=is_attached
                ) as it,
            ):
                reason = it.follow(deadline, cancel, on_bytes)
            notes = check_after(self.root, scan)
        exit_code = it.exit_code
        if not reason and exit_code is None:
            said = one_line(it.first_output.decode("utf-8", errors="replace"))
            raise SandboxUnavailable(
                f"{self.name} could not start: {said or 'no reason given'}",
                mechanism.hint(said),
            )
        if exit_code:
            note = mechanism.failure_note(
                self.root, it.first_output.decode("utf-8", errors="replace")
            )
            notes += [note] if note else []
        return CommandResult(
            exit_code=None if reason else exit_code,
            stopped_because=reason,
            notes=tuple(notes),
            has_output=bool(it.n_output_bytes),
            seconds=time.monotonic() - started,
        )


def _drop(data: bytes) -> None:
    """Nothing comes here: the command writes to our own streams."""
