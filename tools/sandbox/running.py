"""One started command: its processes, its output, its end."""

import contextlib
import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event

from tools.errors import SandboxUnavailable
from tools.sandbox.mechanism import Launch
from tools.sandbox.policy import SandboxPolicy
from tools.sandbox.watch import INTERVAL_S, TreeWatch

OnBytes = Callable[[bytes], object]
_POLL_S = 0.05  # how late a cancel may be seen
_KILL_WAIT_S = 5.0  # the kernel ends a namespace in milliseconds; a full machine may need longer
_READ_BYTES = 65536
_GATE_WAIT_S, _GATE_POLL_S = 0.5, 0.0005


class Running:
    """One started command: its process, its output, and the status lines of the mechanism."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        output: int,
        status: int,
        policy: SandboxPolicy,
        is_supervisor: bool,
        gate: int = -1,
    ) -> None:
        self._process = process
        self._gate = gate  # a line written there lets the command begin; -1 when it has begun
        self._output = output  # -1 when the command writes to our own streams
        self._status = status
        self._limits = policy.limits
        self._is_supervisor = is_supervisor
        self._status_text = b""
        self._first_fd = -1  # refers to the first process in the sandbox, also when it has ended
        self._watch: TreeWatch | None = None
        self.first_output = b""
        self.n_output_bytes = 0
        self.exit_code: int | None = None
        for fd in (output, status):
            if fd >= 0:
                os.set_blocking(fd, False)

    @classmethod
    @contextmanager
    def start(
        cls,
        launch: Launch,
        policy: SandboxPolicy,
        is_supervisor: bool,
        *,
        is_attached: bool = False,
    ) -> Iterator["Running"]:
        """Start the command; when the block ends, all its processes are dead.

        Args:
            launch: what the mechanism made of the policy.
            policy: gives the limits, and the user to start as.
            is_supervisor: see ``Mechanism``.
            is_attached: the command gets our own standard streams, instead of an empty input and
                pipes.
        """
        payload = os.memfd_create("payload")
        output, output_in = (-1, -1) if is_attached else os.pipe2(os.O_CLOEXEC)
        status, status_in = os.pipe2(os.O_CLOEXEC)
        user, group = (None, None) if is_supervisor else policy.run_as or (None, None)
        is_gated = not is_attached and not is_supervisor
        gate_out, gate = os.pipe2(os.O_CLOEXEC) if is_gated else (-1, -1)
        arguments = launch.arguments(payload, status_in, is_gated)
        try:
            os.write(payload, launch.payload)
            os.lseek(payload, 0, os.SEEK_SET)
            process = subprocess.Popen(
                arguments,
                stdin=gate_out if is_gated else None if is_attached else subprocess.DEVNULL,
                stdout=None if is_attached else output_in,
                stderr=None if is_attached else output_in,
                cwd="/",
                env={},  # the first process of the sandbox shows the environment it came with
                close_fds=True,
                pass_fds=(payload, status_in),
                start_new_session=True,
                user=user,
                group=group,
                extra_groups=None if user is None else [],
            )
        except OSError as error:
            for fd in (output, status, gate):
                if fd >= 0:
                    os.close(fd)
            raise SandboxUnavailable(
                f"{arguments[0]} could not be started: {error.strerror}", "Run doctor for details."
            ) from error
        finally:
            for fd in (payload, output_in, status_in, gate_out):
                if fd >= 0:
                    os.close(fd)
        running = cls(process, output, status, policy, is_supervisor, gate)
        try:
            yield running
        finally:
            running._end()

    def follow(self, deadline: float, cancel: Event, on_bytes: OnBytes) -> str:
        """Pass on output until the command ends; return why it must be stopped, "" if not."""
        poller = select.poll()
        for fd in (self._output, self._status):
            if fd >= 0:
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
        while self._output >= 0 and self._read_output(on_bytes):
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
        self._open_gate(pid)

    def _open_gate(self, pid: int) -> None:
        """Let the command begin, now that the kernel ends it with us.

        Until the first process has asked for that, a kill of this program would leave it running.
        It has when it has a child. A kill before is noticed by the command itself: it waits for a
        line that never comes.
        """
        if self._gate < 0:
            return
        deadline = time.monotonic() + _GATE_WAIT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
                    if file.read(1):
                        break
            except OSError:
                break  # it has ended, or this kernel does not tell
            time.sleep(_GATE_POLL_S)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._gate, b"\n")
        os.close(self._gate)
        self._gate = -1

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
        if self._is_supervisor:
            self._process.terminate()
            try:
                self._process.wait(_KILL_WAIT_S)
                return
            except subprocess.TimeoutExpired:
                pass  # end it all the same, as far as it goes
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
        for fd in (self._output, self._status, self._first_fd, self._gate):
            if fd >= 0:
                os.close(fd)


def _read_some(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_BYTES)
    except BlockingIOError:
        return b""
