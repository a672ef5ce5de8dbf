"""``! command``: the person's own shell, outside the conversation and outside the sandbox.

It is the person who runs it, so nothing is asked. It has no terminal: what needs one says so.
"""

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ds4agent.ending import ends_with_program
from ds4agent.plain import plain

MAX_SHOWN_LINES = 200
_MAX_FILE_BYTES = 64 << 20  # of output, before the command is ended
_MAX_READ_BYTES = 200_000  # of its end
_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class ShellResult:
    """How a command ended."""

    command: str
    output: str  # its end, without control sequences
    exit_code: int  # negative: the signal that ended it
    problem: str = ""  # why it could not be run, or was ended

    @property
    def text(self) -> str:
        """The command, its output and how it ended, to show or to send."""
        lines = self.output.rstrip("\n").split("\n") if self.output.strip() else []
        hidden = len(lines) - MAX_SHOWN_LINES
        if hidden > 0:
            lines = [f"({hidden} lines before)", *lines[hidden:]]
        end = self.problem or (f"exit {self.exit_code}" if self.exit_code else "")
        return "\n".join([f"$ {self.command}", *lines, *([f"({end})"] if end else [])])


class OwnShell:
    """Runs one command at a time, in a thread."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    @property
    def is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def run(self, command: str, folder: Path, on_done: Callable[[ShellResult], None]) -> None:
        """Start a command; ``on_done`` is called from the thread when it has ended."""
        self._is_stopped = False
        self._thread = threading.Thread(
            target=lambda: on_done(self._run_to_end(command, folder)), name="own-shell", daemon=True
        )
        self._thread.start()

    def stop(self) -> bool:
        """End the running command with everything it started; False when there is none."""
        if not self.is_running:
            return False
        self._is_stopped = True
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        return True

    def _run_to_end(self, command: str, folder: Path) -> ShellResult:
        with ends_with_program(self.stop):
            return self._run(command, folder)

    def _run(self, command: str, folder: Path) -> ShellResult:
        shell = os.environ.get("SHELL") or "/bin/sh"
        problem = ""
        # A file and no pipe: a child in the background that keeps a pipe open would hold us up.
        with tempfile.TemporaryFile() as output:
            try:
                process = subprocess.Popen(
                    [shell, "-c", command],
                    cwd=folder,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else str(error)
                return ShellResult(command, "", 127, f"cannot run it: {reason}")
            self._process = process
            while True:
                try:
                    code = process.wait(_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    if os.fstat(output.fileno()).st_size > _MAX_FILE_BYTES:
                        problem = "too much output"
                    if problem or self._is_stopped:
                        self.stop()
            self._process = None
            size = os.fstat(output.fileno()).st_size
            output.seek(max(0, size - _MAX_READ_BYTES))
            text = plain(output.read().decode("utf-8", "replace"))
        return ShellResult(command, text, code, problem or ("stopped" if self._is_stopped else ""))
