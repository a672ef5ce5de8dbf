"""Letting the agent work on a task, and counting what it took."""

import queue
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ds4agent.agent.settings import AgentSettings
from ds4agent.agent.worker import AgentWorker, OpenEngine
from ds4agent.errors import Ds4Error
from ds4agent.evaluation.task import Task
from ds4agent.events import (
    Closed,
    Notice,
    Phase,
    PhaseChanged,
    Ready,
    TextDelta,
    ToolCallReady,
    ToolFinished,
    TurnEnded,
)
from ds4agent.requests import Mode, Quit, Start, Submit
from engine.sampling_options import SamplingOptions
from tools.sandbox.run import Sandbox

_END_S = 30.0  # for the worker to close after its time is over


@dataclass(frozen=True, slots=True)
class TaskResult:
    """What one task came to."""

    name: str
    is_solved: bool
    outcome: str  # of the turn: "done", "limit", "error", "interrupted"
    n_calls: int
    prefilled_tokens: int
    generated_tokens: int
    seconds: float
    told: str = ""  # why not: the end of the check's output, or the error

    def row(self) -> dict[str, Any]:
        """Return it as JSON-ready data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs tasks, one after the other, always in the same folder.

    The folder's path is part of the system prompt, whose state is kept: with the same path every
    task but the first begins without computing it.
    """

    open_engine: OpenEngine
    sandbox_of: Callable[[Path], Sandbox]
    folder: Path  # of the evaluation: the workspace and the kept states
    sampling: SamplingOptions
    timeout_s: float
    kept: Path | None = None  # where what was said is kept, one file a task

    def run(self, task: Task) -> TaskResult:
        """Lay the task out, let the agent work, check.

        Raises:
            Ds4Error: the model cannot be loaded.
        """
        workspace = self.folder / "work"
        shutil.rmtree(workspace, ignore_errors=True)
        workspace.mkdir(parents=True)
        task.lay_out(workspace)
        settings = AgentSettings(
            cwd=workspace,
            mode=Mode.AUTO,
            sampling=self.sampling,
            store_folder=self.folder / "kvcache",
            headless=True,
        )
        worker = AgentWorker(self.open_engine, settings, Start())
        started = time.monotonic()
        n_calls, n_head, ended, said = self._work(worker, task.instruction, started)
        seconds = time.monotonic() - started
        if self.kept is not None:
            (self.kept / f"{task.name}.txt").write_text("\n".join(said) + "\n", encoding="utf-8")
        is_solved, output = task.is_solved(workspace, self.sandbox_of(workspace))
        return TaskResult(
            name=task.name,
            is_solved=is_solved,
            outcome=ended.outcome.value,
            n_calls=n_calls,
            prefilled_tokens=n_head + ended.usage.prefilled_tokens,
            generated_tokens=ended.usage.generated_tokens,
            seconds=round(seconds, 2),
            told="" if is_solved else (output or ended.error),
        )

    def _work(
        self, worker: AgentWorker, instruction: str, started: float
    ) -> tuple[int, int, TurnEnded, list[str]]:
        """Return the calls made, the tokens of a system prompt that had to be computed, the end
        of the turn, and what was said and done."""
        worker.start()
        n_calls, n_head, ended, problem, is_stopped = 0, 0, None, "", False
        said: list[str] = []
        while True:
            left_s = self.timeout_s - (time.monotonic() - started)
            if left_s <= 0 and not is_stopped:
                is_stopped = True
                worker.interrupt()
                left_s = _END_S
            try:
                event = worker.events.get(timeout=max(left_s, 0.1) if not is_stopped else _END_S)
            except queue.Empty:
                if is_stopped:
                    raise Ds4Error("the agent did not stop in time", "See the log.") from None
                continue
            match event:
                case Ready():
                    n_head = event.prefilled_tokens
                    worker.send(Submit(instruction))
                case ToolCallReady():
                    said.append(f"[{event.title}] {event.arguments}")
                case ToolFinished():
                    n_calls += 1
                    said.append(f"[{'done' if event.ok else 'failed'}] {event.text}")
                case TextDelta(text):
                    said.append(text)
                case Notice(text, "error"):
                    problem = text
                case TurnEnded():
                    ended = event
                    worker.send(Quit())
                case PhaseChanged(Phase.FAILED, detail):
                    problem = detail
                    worker.send(Quit())
                case Closed():
                    break
        worker.join(_END_S)
        if ended is None:
            raise Ds4Error(problem or "the agent ended without a turn", "See the log.")
        return n_calls, n_head, ended, said
