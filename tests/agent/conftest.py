"""A worker over a scripted model, and what tests say about its events."""

import json
import queue
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from ds4agent.agent.project import UntrustedProject
from ds4agent.agent.settings import AgentSettings
from ds4agent.agent.worker import AgentWorker
from ds4agent.events import Closed, Event, Phase, PhaseChanged, Ready, TextDelta, TurnEnded
from ds4agent.requests import Command, Mode, Quit, Start, Submit
from tests.fakes.scripted_model import scripted_engine

DEADLINE_S = 15.0


def call(name: str, **arguments: Any) -> str:
    """What a model writes to call a tool."""
    body = json.dumps({"name": name, "arguments": arguments})
    return f"<tool_call>\n{body}\n</tool_call>"


def words(n: int) -> str:
    """A long answer that does not repeat itself."""
    return "".join(f"word {i} " for i in range(n))


class Rig:
    """One worker and everything it has told so far."""

    def __init__(
        self,
        workspace: Path,
        replies: Sequence[str],
        *,
        ctx: int = 16384,
        delay_s: float = 0.0,
        n_params: int = 0,
        answers: dict[str, str] | None = None,
        start: Start = Start(),  # noqa: B008  frozen
        project: UntrustedProject | None = None,
        **settings: Any,
    ) -> None:
        self.engine = scripted_engine(replies, ctx, delay_s, n_params, answers)
        self.seen: list[Event] = []
        self._at = 0  # events before it were looked at by ``wait``
        settings = {"cwd": workspace, "mode": Mode.AUTO, **settings}
        self.worker = AgentWorker(
            lambda progress, cancel: self.engine, AgentSettings(**settings), start, project
        )
        self.worker.start()

    def send(self, command: Command) -> None:
        self.worker.send(command)

    def wait(self, kind: type | tuple[type, ...], where: Callable[[Any], bool] | None = None):
        """Return the next event of a kind; fail with all events when it does not come."""
        deadline = time.monotonic() + DEADLINE_S
        while True:
            while self._at < len(self.seen):
                event = self.seen[self._at]
                self._at += 1
                if isinstance(event, kind) and (where is None or where(event)):
                    return event
            try:
                self.seen.append(
                    self.worker.events.get(timeout=max(0.0, deadline - time.monotonic()))
                )
            except queue.Empty:
                events = "\n".join(repr(event)[:200] for event in self.seen)
                raise AssertionError(f"no {kind} in {DEADLINE_S} s; events:\n{events}") from None

    def wait_idle(self) -> None:
        self.wait(PhaseChanged, lambda event: event.phase is Phase.IDLE)

    def ready(self) -> Ready:
        event = self.wait(Ready)
        self.wait_idle()
        return event

    def turn(self, text: str) -> TurnEnded:
        """Submit a message and return how the turn ended."""
        self.send(Submit(text))
        return self.wait(TurnEnded)

    def close(self) -> Closed:
        self.send(Quit())
        closed = self.wait(Closed)
        assert self.worker.join(DEADLINE_S)
        return closed

    def texts(self) -> str:
        return "".join(event.text for event in self.seen if isinstance(event, TextDelta))

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.seen if isinstance(event, kind)]

    @property
    def conversation(self):
        """The live conversation; only to be looked at while the worker is idle."""
        return self.worker._conversation

    def live_text(self) -> str:
        """Everything that the live state has consumed, control tokens included."""
        tokens = self.conversation.session.tokens
        return self.engine.tokenizer.render(tokens).decode("utf-8", "replace")

    def said(self) -> str:
        """The same without the system prompt."""
        return self.live_text().partition("<|im_end|>\n")[2]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "notes.txt").write_text("alpha\nbeta\n", encoding="utf-8")
    return folder


@pytest.fixture
def open_rig(workspace: Path):
    """Make workers; each that is still open at the end of the test is closed."""
    rigs: list[Rig] = []

    def make(replies: Sequence[str], **options: Any) -> Rig:
        rigs.append(Rig(workspace, replies, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        if not any(isinstance(event, Closed) for event in rig.seen):
            rig.close()
