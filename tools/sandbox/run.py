"""The only place that starts a process a model chose.

One call: scan the workspace, make the policy, create what must exist to be protected, start the
mechanism, pass on output, and stop on exit, time-out, cancel or a limit. However it ends, no
process of the command is left when the call returns: they live in a process namespace of their
own, and the kernel ends all of them with its first process.
"""

import json
import os
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tools.errors import SandboxUnavailable, ToolError
from tools.executables import find_trusted
from tools.sandbox.aftermath import check_after
from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.masks import scanned_and_masked
from tools.sandbox.policy import SandboxPolicy, base_policy, with_scan
from tools.sandbox.watch import INTERVAL_S, TreeWatch
from tools.text import one_line

MAX_COMMAND_BYTES = 100_000  # the kernel passes at most 128 KiB as one argument
_POLL_S = 0.05  # how late a cancel may be seen
_KILL_WAIT_S = 5.0  # the kernel ends a namespace in milliseconds; a full machine may need longer
_READ_BYTES = 65536
_SHELLS = ("/bin/bash", "/usr/bin/bash", "/bin/sh")
OnBytes = Callable[[bytes], object]


class Mechanism(Protocol):
    """One way to confine a command."""

    name: str  # for people
    program: str  # the executable it needs
    install_hint: str

    def arguments(
        self, policy: SandboxPolicy, shell: str, command: str, filter_fd: int, status_fd: int
    ) -> list[str]:
        """Return the arguments of ``program`` that run the command under the policy."""

    def system_call_filter(self) -> bytes:
        """Return what the program reads from ``filter_fd``."""

    def hint(self, reason: str) -> str:
        """Say what a person can do about a failure of the mechanism."""


MECHANISMS: tuple[Mechanism, ...] = (Bubblewrap(),)  # strongest first


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
        self._program = find_trusted(mechanism.program, self.root)
        if not self._program:
            raise SandboxUnavailable(
                f"{mechanism.program} is not installed", mechanism.install_hint
            )
        self._shell = next((path for path in _SHELLS if os.access(path, os.X_OK)), "/bin/sh")
        self._base = base_policy(self.root, homes, environ)

    def limit(self, **limits: int) -> None:
        """Change limits of this sandbox, such as ``memory_bytes``; see ``policy.Limits``."""
        self._base = replace(self._base, limits=replace(self._base.limits, **limits))

    def run(
        self, command: str, timeout_s: float, cancel: threading.Event, on_bytes: OnBytes
    ) -> CommandResult:
        """Run a shell command to its end.

        Args:
            command: text for the shell.
            timeout_s: wall time in seconds, after which everything is killed.
            cancel: kills everything when set.
            on_bytes: gets stdout and stderr, merged, as they come, on this thread.

        Raises:
            SandboxUnavailable: it could not be confined; nothing was run.
        """
        if len(os.fsencode(command)) > MAX_COMMAND_BYTES:
            raise ToolError(
                f"the command has more than {MAX_COMMAND_BYTES} bytes",
                "Write it to a file and run the file.",
            )
        started = time.monotonic()
        with scanned_and_masked(self.root) as scan:
            policy = with_scan(self._base, scan)
            with _Running.start(self._program, self._mechanism, policy, self._shell, command) as it:
                reason = it.follow(time.monotonic() + timeout_s, cancel, on_bytes)
            notes = check_after(self.root, scan)
        exit_code = it.exit_code
        if not reason and exit_code is None:
            said = one_line(it.first_output.decode("utf-8", errors="replace"))
            raise SandboxUnavailable(
                f"{self.name} could not start: {said or 'no reason given'}",
                self._mechanism.hint(said),
            )
        return CommandResult(
            exit_code=None if reason else exit_code,
            stopped_because=reason,
            notes=tuple(notes),
            has_output=bool(it.n_output_bytes),
            seconds=time.monotonic() - started,
        )


class _Running:
    """One started command: its process, its output, and the status lines of the mechanism."""

    def __init__(
        self, process: subprocess.Popen[bytes], output: int, status: int, policy: SandboxPolicy
    ) -> None:
        self._process = process
        self._output = output
        self._status = status
        self._limits = policy.limits
        self._status_text = b""
        self._first_fd = -1  # refers to the first process in the sandbox, also when it has ended
        self._watch: TreeWatch | None = None
        self.first_output = b""
        self.n_output_bytes = 0
        self.exit_code: int | None = None
        for fd in (output, status):
            os.set_blocking(fd, False)

    @classmethod
    @contextmanager
    def start(
        cls,
        program: str,
        mechanism: Mechanism,
        policy: SandboxPolicy,
        shell: str,
        command: str,
    ) -> Iterator["_Running"]:
        """Start the command; when the block ends, all its processes are dead."""
        filter_fd = os.memfd_create("filter")
        output, output_in = os.pipe2(os.O_CLOEXEC)
        status, status_in = os.pipe2(os.O_CLOEXEC)
        user, group = policy.run_as or (None, None)
        try:
            os.write(filter_fd, mechanism.system_call_filter())
            os.lseek(filter_fd, 0, os.SEEK_SET)
            arguments = mechanism.arguments(policy, shell, command, filter_fd, status_in)
            process = subprocess.Popen(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output_in,
                stderr=output_in,
                cwd="/",
                env={},  # the first process of the sandbox shows the environment it came with
                close_fds=True,
                pass_fds=(filter_fd, status_in),
                start_new_session=True,
                user=user,
                group=group,
                extra_groups=None if policy.run_as is None else [],
            )
        except OSError as error:
            os.close(output)
            os.close(status)
            raise SandboxUnavailable(
                f"{program} could not be started: {error.strerror}", mechanism.install_hint
            ) from error
        finally:
            for fd in (filter_fd, output_in, status_in):
                os.close(fd)
        running = cls(process, output, status, policy)
        try:
            yield running
        finally:
            running._end()

    def follow(self, deadline: float, cancel: threading.Event, on_bytes: OnBytes) -> str:
        """Pass on output until the command ends; return why it must be stopped, "" if not."""
        poller = select.poll()
        for fd in (self._output, self._status):
            poller.register(fd, select.POLLIN)
        process_fd = os.pidfd_open(self._process.pid)
        poller.register(process_fd, select.POLLIN)
        next_watch = time.monotonic() + INTERVAL_S
        reason = ""
        try:
            while not reason:
                ready = dict(poller.poll(_POLL_S * 1000))
                if self._status in ready and not self._read_status():
                    poller.unregister(self._status)
                if self._output in ready and not self._read_output(on_bytes):
                    poller.unregister(self._output)
                if process_fd in ready:
                    break
                now = time.monotonic()
                if cancel.is_set():
                    reason = "cancelled"
                elif now > deadline:
                    reason = "timeout"
                elif self.n_output_bytes > self._limits.output_bytes:
                    reason = f"it wrote more than {self._limits.output_bytes >> 20} MiB of output"
                elif self._watch is not None and now > next_watch:
                    reason = self._watch.exceeded()
                    next_watch = time.monotonic() + INTERVAL_S
        finally:
            os.close(process_fd)
        self._kill()
        # What was written before the end is still in the pipe; nobody can write any more.
        while self._read_output(on_bytes):
            if self.n_output_bytes > 2 * self._limits.output_bytes:
                break
        while self._read_status():
            pass
        return reason

    def _read_output(self, on_bytes: OnBytes) -> bool:
        data = _read_some(self._output)
        self.n_output_bytes += len(data)
        if data:
            if len(self.first_output) < _READ_BYTES:
                self.first_output += data
            on_bytes(data)
        return bool(data)

    def _read_status(self) -> bool:
        data = _read_some(self._status)
        self._status_text += data
        for line in self._status_text.splitlines():
            try:
                said = json.loads(line)
            except ValueError:
                continue  # not complete yet
            if not isinstance(said, dict):
                continue
            if "child-pid" in said and self._first_fd < 0:
                self._attach(int(said["child-pid"]))
            if "exit-code" in said:
                self.exit_code = int(said["exit-code"])
        return bool(data)

    def _attach(self, pid: int) -> None:
        try:
            self._first_fd = os.pidfd_open(pid)
        except ProcessLookupError:
            return  # it has ended already, and with it everything in its namespace
        self._watch = TreeWatch(pid, self._limits)

    def _learn_first(self) -> None:
        """Wait until the first process in the sandbox is known, or there will be none.

        A mechanism that is killed while it starts leaves that process behind: it waits for a
        word of its parent, for ever, and nothing tells it that the parent is gone.
        """
        poller = select.poll()
        poller.register(self._status, select.POLLIN)
        deadline = time.monotonic() + _KILL_WAIT_S
        while self._first_fd < 0 and self._process.poll() is None and time.monotonic() < deadline:
            if poller.poll(_POLL_S * 1000) and not self._read_status():
                break  # nothing more will come

    def _kill(self) -> None:
        """End every process of the sandbox and wait until the kernel says so."""
        self._learn_first()
        if self._first_fd >= 0:
            try:
                signal.pidfd_send_signal(self._first_fd, signal.SIGKILL)
            except ProcessLookupError:
                pass  # ended by itself
        self._process.kill()
        self._process.wait()
        if self._first_fd >= 0:
            poller = select.poll()
            poller.register(self._first_fd, select.POLLIN)
            poller.poll(_KILL_WAIT_S * 1000)

    def _end(self) -> None:
        self._kill()
        for fd in (self._output, self._status, self._first_fd):
            if fd >= 0:
                os.close(fd)


def _read_some(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return b""
