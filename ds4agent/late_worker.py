"""A worker that is made behind the first paint: its modules load slower than a screen is drawn.

Until it exists, commands wait in order. Importing happens in a thread of its own, so that a screen
is painted and takes keys meanwhile.
"""

import logging
import queue
import threading
from collections.abc import Callable
from typing import Protocol

from ds4agent.errors import explain
from ds4agent.events import Closed, Event, Notice, Phase, PhaseChanged
from ds4agent.requests import Command, Quit


class Worker(Protocol):
    """What a screen needs of ``agent.worker.AgentWorker``."""

    events: "queue.Queue[Event]"

    def start(self) -> None: ...

    def send(self, command: Command) -> None: ...

    def interrupt(self) -> None: ...

    def join(self, timeout: float | None = None) -> bool: ...


class LateWorker:
    """Stands for a worker from the beginning on; ``start`` makes and starts it."""

    def __init__(self, make: "Callable[[queue.Queue[Event]], Worker]") -> None:
        """Prepare; nothing is made yet.

        Args:
            make: called once, in a thread; gets the queue that the worker puts its events into.
        """
        self.events: queue.Queue[Event] = queue.Queue()
        self._make = make
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._waiting: list[Command] = []
        self._has_failed = False
        self._thread = threading.Thread(target=self._begin, name="late-worker", daemon=True)

    def start(self) -> None:
        """Make the worker in a thread and start it."""
        self._thread.start()

    def send(self, command: Command) -> None:
        """Hand over a command, now or when there is a worker."""
        with self._lock:
            worker = self._worker
            if worker is None:
                self._waiting.append(command)
            has_failed = self._has_failed
        if worker is not None:
            worker.send(command)
        elif has_failed and isinstance(command, Quit):
            self._close()

    def interrupt(self) -> None:
        """End the running turn; there is none before there is a worker."""
        if self._worker is not None:
            self._worker.interrupt()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most ``timeout`` seconds; True when it has come."""
        if self._worker is None:
            return not self._thread.is_alive()
        return self._worker.join(timeout)

    def _begin(self) -> None:
        try:
            worker = self._make(self.events)
            worker.start()
        except Exception as error:  # as the worker's own: told, and the screen stays usable
            logging.getLogger(__name__).error("the worker could not be made", exc_info=error)
            self._fail(explain(error))
            return
        with self._lock:
            # Under the lock: what is sent from now on comes behind what waited.
            for command in self._waiting:
                worker.send(command)
            self._waiting.clear()
            self._worker = worker

    def _fail(self, line: str) -> None:
        self.events.put(Notice(line, "error"))
        self.events.put(PhaseChanged(Phase.FAILED, line))
        with self._lock:
            self._has_failed = True
            wants_to_quit = any(isinstance(command, Quit) for command in self._waiting)
        if wants_to_quit:
            self._close()

    def _close(self) -> None:
        self.events.put(PhaseChanged(Phase.CLOSED))
        self.events.put(Closed())
