"""The tool that runs a shell command inside the sandbox."""

import threading
import time
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.errors import ToolError
from tools.jobs import Jobs
from tools.sandbox.run import CommandResult, Sandbox
from tools.text import TerminalStream, one_line, spell_controls

MAX_TIMEOUT_S = 1800  # a model that means milliseconds still gets an answer within half an hour
OUTPUT_INTERVAL_S = 0.1  # a screen repaints ten times a second
_FIRST_LOOK_S = 0.3  # a command that fails at once says so at once
_HEAD_SHARE = 0.4  # of the kept output; the end of a test run says more than its start


class ShellTool:
    """Run one command and wait for it, or start it in the background."""

    name = "bash"
    description = "Run a shell command, without network."
    access = Access.EXECUTE
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "timeout_s": {"type": "integer"},
            "background": {"type": "boolean"},
        },
        "required": ["command"],
    }
    defaults: dict[str, Any] = {"timeout_s": 120, "background": False}
    bounds = {"timeout_s": (1, MAX_TIMEOUT_S)}
    large_only = frozenset(("background",))  # a small model fills in every argument it sees

    def __init__(self, sandbox: Sandbox, jobs: Jobs, max_result_bytes: int) -> None:
        self._sandbox = sandbox
        self._jobs = jobs
        self._max_result_bytes = max_result_bytes

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Show the whole command."""
        command = _checked(arguments["command"])
        return Preview(
            title=_title(command), detail=spell_controls(command), subject=command.strip()
        )

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Run it and return its exit code with the start and the end of its output."""
        command = _checked(arguments["command"])
        if arguments["background"]:
            return self._start(command)
        output = OutputKeeper(self._max_result_bytes, on_output)
        timeout_s = arguments["timeout_s"]
        result = self._sandbox.run(command, float(timeout_s), cancel, output.feed)
        output.finish()
        status = _status(result, timeout_s)
        lines = [output.text(), *result.notes, status]
        return ToolResult(
            ok=result.exit_code == 0 and not result.stopped_because,
            text="\n".join(line for line in lines if line),
            title=_title(command),
            exit_code=result.exit_code,
        )

    def _start(self, command: str) -> ToolResult:
        job = self._jobs.start(command)
        job.done.wait(_FIRST_LOOK_S)
        output = self._jobs.take_output(job)
        text = (
            f"(job {job.number} {job.status()}; look at it with bash_status, end it with bash_stop)"
        )
        return ToolResult(
            ok=not job.error,
            text=f"{output}\n{text}" if output else text,
            title=f"{_title(command)} (job {job.number})",
        )


class OutputKeeper:
    """Keep the start and the end of a command's output; pass it on live, not too often."""

    def __init__(self, max_bytes: int, on_output: OnOutput) -> None:
        self._stream = TerminalStream()
        self._on_output = on_output
        self._max_head = int(max_bytes * _HEAD_SHARE)
        self._max_tail = max_bytes - self._max_head
        self._head: list[str] = []
        self._head_bytes = 0
        self._tail = ""
        self._n_dropped = 0  # bytes
        self._waiting = ""
        self._last_shown = 0.0

    def feed(self, data: bytes) -> None:
        self._add(self._stream.feed(data))

    def finish(self) -> None:
        self._add(self._stream.feed(b"", is_last=True))
        if self._waiting:
            self._on_output(self._waiting)

    def text(self) -> str:
        self._cut_tail()
        head = "".join(self._head)
        if not self._n_dropped:
            return (head + self._tail).rstrip("\n")
        cut = f"\n[… {self._n_dropped} bytes of output left out …]\n"
        return (head + cut + self._tail).rstrip("\n")

    def _add(self, text: str) -> None:
        self._waiting = (self._waiting + text)[-self._max_tail :]
        now = time.monotonic()
        if self._waiting and now - self._last_shown >= OUTPUT_INTERVAL_S:
            self._on_output(self._waiting)
            self._waiting, self._last_shown = "", now
        room = self._max_head - self._head_bytes
        if room > 0:
            taken = text[:room]
            self._head.append(taken)
            self._head_bytes += len(taken.encode("utf-8", errors="replace"))
            text = text[len(taken) :]
        self._tail += text
        if len(self._tail) > 2 * self._max_tail:
            self._cut_tail()

    def _cut_tail(self) -> None:
        data = self._tail.encode("utf-8", errors="replace")
        n_over = len(data) - self._max_tail
        if n_over > 0:
            self._n_dropped += n_over
            self._tail = data[n_over:].decode("utf-8", errors="ignore")


def _checked(command: str) -> str:
    if not command.strip() or "\0" in command:
        raise ToolError("the command is empty or malformed", "Give a shell command.")
    return command


def _title(command: str) -> str:
    return f"bash: {one_line(spell_controls(command), 100)}"


def _status(result: CommandResult, timeout_s: int) -> str:
    match result.stopped_because:
        case "timeout":
            return (
                f"Stopped after {timeout_s} s. Use a quicker command, or a larger timeout_s "
                f"(at most {MAX_TIMEOUT_S})."
            )
        case "cancelled":
            return "Stopped: interrupted by the user."
        case "":
            return "" if result.exit_code == 0 and result.has_output else _exit(result.exit_code)
    return f"Stopped: {result.stopped_because}."


def _exit(code: int) -> str:
    return f"Exit code {code}."
