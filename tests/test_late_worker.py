import queue
import threading
import time

from ds4agent.errors import Ds4Error
from ds4agent.events import Closed, Notice, Phase, PhaseChanged
from ds4agent.late_worker import LateWorker
from ds4agent.requests import Quit, Submit
from tests.tui.fake_worker import FakeWorker, ready


def test_commands_wait_in_order_until_there_is_a_worker():
    may_go_on = threading.Event()
    made: list[FakeWorker] = []

    def make(events: queue.Queue) -> FakeWorker:
        may_go_on.wait(5)
        made.append(FakeWorker())
        made[0].events = events
        return made[0]

    worker = LateWorker(make)
    worker.start()
    texts = [f"message {n}" for n in range(5)]
    for text in texts:
        worker.send(Submit(text))
    worker.interrupt()  # there is nothing to interrupt
    may_go_on.set()
    worker._thread.join(5)
    worker.send(Submit("the last"))
    assert made[0].commands == [Submit(text) for text in (*texts, "the last")]
    worker.interrupt()
    assert made[0].interrupts == 1
    assert worker.join(1.0)


def test_a_worker_that_cannot_be_made_is_told_and_can_be_left():
    def make(events: queue.Queue) -> FakeWorker:
        raise Ds4Error("no memory", "Close something.")

    worker = LateWorker(make)
    worker.start()
    assert worker.events.get(timeout=5) == Notice("no memory. Close something.", "error")
    assert worker.events.get(timeout=5).phase is Phase.FAILED
    worker.send(Quit())
    assert worker.events.get(timeout=5) == PhaseChanged(Phase.CLOSED)
    assert worker.events.get(timeout=5) == Closed()
    assert worker.join(1.0)
    assert worker.events.empty()


class _Loading(FakeWorker):
    """Told to end, it goes on loading."""

    def __init__(self, events: queue.Queue) -> None:
        super().__init__(PhaseChanged(Phase.LOADING))
        self.events = events
        self.has_ended = False

    def send(self, command) -> None:
        self.commands.append(command)

    def join(self, timeout: float | None = None) -> bool:
        return self.has_ended


def test_who_quits_does_not_wait_for_a_model_that_loads(monkeypatch):
    monkeypatch.setattr("ds4agent.late_worker._LOADING_PATIENCE_S", 0.05)
    worker = LateWorker(_Loading)
    worker.start()
    assert worker.events.get(timeout=5) == PhaseChanged(Phase.LOADING)
    assert not worker.join(0.0)
    worker.send(Quit())
    worker.send(Quit())
    assert worker.events.get(timeout=5) == PhaseChanged(Phase.CLOSED)
    assert worker.events.get(timeout=5) == Closed()
    assert worker.join(5.0) and worker.is_given_up
    time.sleep(0.2)
    assert worker.events.empty()


def test_who_quits_waits_for_a_conversation_that_is_open(monkeypatch):
    monkeypatch.setattr("ds4agent.late_worker._LOADING_PATIENCE_S", 0.05)
    made: list[_Loading] = []

    def make(events: queue.Queue) -> _Loading:
        made.append(_Loading(events))
        return made[0]

    worker = LateWorker(make)
    worker.start()
    assert worker.events.get(timeout=5) == PhaseChanged(Phase.LOADING)
    made[0].emit(ready())
    assert worker.events.get(timeout=5) == ready()
    worker.send(Quit())
    assert not worker.join(0.3)  # it saves
    assert not worker.is_given_up and worker.events.empty()
    made[0].has_ended = True
    assert worker.join(5.0)
