"""Commands that run in the background, and the tools that look at them and stop them.

Each job is a thread that waits for one confined command. Jobs end with the toolbox, and with the
program: nothing of them outlives either.
"""

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.errors import ToolError
from tools.sandbox.run import CommandResult, Sandbox
from tools.text import TerminalStream, one_line, spell_controls

MAX_JOBS = 8  # at a time; a model that starts more has lost track
MAX_JOB_S = 4 * 3600.0
_WAIT_S = 10  # longest wait of a look at a job
_JOIN_S = 10.0  # a job ends within a fraction of a second of its cancel


@dataclass(slots=True)
class Job:
    """One command in the background."""

    number: int
    command: str
    started: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    result: CommandResult | None = None
    error: str = ""
    cancel: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def status(self) -> str:
        """Return how it stands in a few words."""
        seconds = (self.ended or time.monotonic()) - self.started
        if not self.done.is_set():
            return f"running for {seconds:.0f} s"
        if self.error:
            return f"failed: {self.error}"
        assert self.result is not None
        if self.result.stopped_because:
            return f"stopped after {seconds:.0f} s: {self.result.stopped_because}"
        return f"ended after {seconds:.0f} s with exit code {self.result.exit_code}"


class Jobs:
    """The background commands of one toolbox.

    Args:
        sandbox: where they run.
        max_unread_bytes: of output that nobody has looked at; the oldest is dropped.
    """

    def __init__(self, sandbox: Sandbox, max_unread_bytes: int) -> None:
        self._sandbox = sandbox
        self._max_unread = max_unread_bytes
        self._lock = threading.Lock()
        self._jobs: dict[int, Job] = {}
        self._unread: dict[int, str] = {}
        self._n_dropped: dict[int, int] = {}
        self._has_changed = False

    def start(self, command: str) -> Job:
        """Start a command; returns at once.

        Raises:
            ToolError: too many are running.
        """
        with self._lock:
            running = [job for job in self._jobs.values() if not job.done.is_set()]
            if len(running) >= MAX_JOBS:
                raise ToolError(f"{MAX_JOBS} jobs are running already", "Stop one with bash_stop.")
            job = Job(len(self._jobs) + 1, command)
            self._jobs[job.number], self._unread[job.number] = job, ""
            self._n_dropped[job.number] = 0
        job.thread = threading.Thread(
            target=self._run, args=(job,), name=f"job-{job.number}", daemon=True
        )
        job.thread.start()
        return job

    def find(self, number: int) -> Job:
        """Return a job.

        Raises:
            ToolError: there is none of this number.
        """
        job = self._jobs.get(number)
        if job is None:
            known = ", ".join(map(str, self._jobs)) or "none"
            raise ToolError(f"there is no job {number}", f"The jobs are: {known}.")
        return job

    def all(self) -> list[Job]:
        """Return all jobs, oldest first."""
        return list(self._jobs.values())

    def take_output(self, job: Job) -> str:
        """Return what it has printed since the last call, the oldest left out when it is much."""
        with self._lock:
            text, self._unread[job.number] = self._unread[job.number], ""
            n_dropped, self._n_dropped[job.number] = self._n_dropped[job.number], 0
        cut = f"[… {n_dropped} characters of output left out …]\n" if n_dropped else ""
        return (cut + text).rstrip("\n")

    def stop(self, job: Job) -> None:
        """End a job and all its processes; returns when they are gone."""
        job.cancel.set()
        if job.thread is not None:
            job.thread.join(_JOIN_S)

    def take_changed(self) -> bool:
        """True when a job ran since the last call: it may have changed files."""
        has_changed, self._has_changed = self._has_changed, False
        return has_changed or any(not job.done.is_set() for job in self.all())

    def close(self) -> None:
        """End all jobs."""
        for job in self.all():
            job.cancel.set()
        for job in self.all():
            self.stop(job)

    def _run(self, job: Job) -> None:
        stream = TerminalStream()

        def feed(data: bytes, is_last: bool = False) -> None:
            text = stream.feed(data, is_last)
            with self._lock:
                unread = self._unread[job.number] + text
                n_over = max(0, len(unread) - self._max_unread)
                self._unread[job.number] = unread[n_over:]
                self._n_dropped[job.number] += n_over

        try:
            job.result = self._sandbox.run(job.command, MAX_JOB_S, job.cancel, feed)
            feed(b"", True)
            notes = "\n".join(job.result.notes)
            if notes:
                feed(f"\n{notes}\n".encode())
        except (ToolError, OSError) as error:
            job.error = str(error)
        finally:
            job.ended = time.monotonic()
            self._has_changed = True
            job.done.set()


class JobStatusTool:
    """Look at the background jobs."""

    name = "bash_status"
    description = "Show a background job and its new output, or all jobs."
    access = Access.READ
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {"job": {"type": "integer"}, "wait_s": {"type": "integer"}},
        "required": [],
    }
    defaults: dict[str, Any] = {"job": 0, "wait_s": 0}
    bounds = {"job": (0, 1 << 31), "wait_s": (0, _WAIT_S)}

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Name the job."""
        return Preview(title=_title("status of", arguments["job"]))

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Return the state and what is new; waits for the end of the job when asked to."""
        title = _title("status of", arguments["job"])
        if not arguments["job"]:
            lines = [
                f"job {job.number}: {job.status()}: {one_line(job.command, 80)}"
                for job in self._jobs.all()
            ]
            return ToolResult(ok=True, text="\n".join(lines) or "There are no jobs.", title=title)
        job = self._jobs.find(arguments["job"])
        deadline = time.monotonic() + arguments["wait_s"]
        while not job.done.wait(0.05) and not cancel.is_set() and time.monotonic() < deadline:
            pass
        return _report(self._jobs, job, title)


class JobStopTool:
    """End a background job."""

    name = "bash_stop"
    description = "Stop a background job."
    access = Access.READ  # it ends only what an approved call has started
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {"job": {"type": "integer"}},
        "required": ["job"],
    }
    defaults: dict[str, Any] = {}
    bounds = {"job": (1, 1 << 31)}

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Name the job; raises when there is none."""
        job = self._jobs.find(arguments["job"])
        return Preview(title=_title("stop", job.number), detail=spell_controls(job.command))

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Stop it and return its last output."""
        job = self._jobs.find(arguments["job"])
        self._jobs.stop(job)
        return _report(self._jobs, job, _title("stop", job.number))


def _report(jobs: Jobs, job: Job, title: str) -> ToolResult:
    output = jobs.take_output(job)
    head = f"job {job.number} {job.status()}"
    text = f"{output}\n({head})" if output else f"({head}; no new output)"
    return ToolResult(ok=True, text=text, title=title)


def _title(what: str, number: int) -> str:
    return f"{what} job {number}" if number else f"{what} all jobs"
