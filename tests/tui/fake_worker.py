"""A worker that replays events and records commands: a fake at the seam of the screen."""

import queue

from ds4agent.events import Closed, Event, ModeChanged, Phase, PhaseChanged, QueueChanged, Ready
from ds4agent.requests import Command, Mode, Quit, SetMode, Submit, TakeBackQueued


def ready(**changes) -> Ready:
    values = {
        "model": "tiny-coder",
        "quant": "Q4_K_M",
        "device": "cpu",
        "sandbox": "bubblewrap",
        "mode": Mode.ASK,
        "context_tokens": 1200,
        "context_size": 8192,
        "cwd": "/home/ada/project",
    }
    return Ready(**(values | changes))


class FakeWorker:
    """Emits ``opening`` when started. Answers only what needs no model: modes, queue, quit."""

    def __init__(self, *opening: Event, resume_id: str = "") -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        self.commands: list[Command] = []
        self.interrupts = 0
        self.is_started = False
        self.is_busy = False
        self._opening = opening or (ready(), PhaseChanged(Phase.IDLE))
        self._resume_id = resume_id
        self._queued: list[str] = []

    def start(self) -> None:
        self.is_started = True
        self.emit(*self._opening)

    def emit(self, *events: Event) -> None:
        for event in events:
            self.events.put(event)

    def send(self, command: Command) -> None:
        self.commands.append(command)
        match command:
            case SetMode(mode):
                self.emit(ModeChanged(mode))
            case Submit(text) if self.is_busy:
                self._queued.append(text)
                self.emit(QueueChanged(tuple(self._queued)))
            case TakeBackQueued(text) if self._queued:
                self._queued.remove(text or self._queued[-1])
                self.emit(QueueChanged(tuple(self._queued)))
            case Quit():
                self.emit(PhaseChanged(Phase.CLOSED), Closed(self._resume_id))

    def interrupt(self) -> None:
        self.interrupts += 1

    def join(self, timeout: float | None = None) -> bool:
        return True
