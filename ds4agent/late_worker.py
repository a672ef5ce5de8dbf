"""A worker that is made behind the first paint: its modules load slower than a screen is drawn.

Until it exists, commands wait in order. Importing happens in a thread of its own, so that a screen
is painted and takes keys meanwhile.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ds4agent.errors import explain
from ds4agent.events import Closed, Event, Notice, Phase, PhaseChanged, Ready
from ds4agent.requests import Command, Quit

_LOADING_PATIENCE_S = 1.0  # for a model that is being loaded when nobody wants it any more
_POLL_S = 0.02


class Worker(Protocol):
    """What a screen needs of ``agent.worker.AgentWorker``."""

    events: "queue.Queue[Event]"

    def start(self) -> None: ...

    def send(self, command: Command) -> None: ...

    def interrupt(self) -> None: ...

    def join(self, timeout: float | None = None) -> bool: ...


class _Events(queue.Queue[Event]):
    """Notes whether a conversation is open: from then on there is something to save."""

    is_open = False

    def _put(self, item: Event) -> None:
        self.is_open = self.is_open or isinstance(item, Ready)
        super()._put(item)


class LateWorker:
    """Stands for a worker from the beginning on; ``start`` makes and starts it.

    Loading a model can't be stopped everywhere: within an import, or while a device copies. Who
    quits then is not kept waiting, and ``Closed`` comes without the worker.
    """

    def __init__(self, make: "Callable[[queue.Queue[Event]], Worker]") -> None:
        """Prepare; nothing is made yet.

        Args:
            make: called once, in a thread; gets the queue that the worker puts its events into.
        """
        self.events: queue.Queue[Event] = _Events()
        self._make = make
        self._lock = threading.Lock()
        self._worker: Worker | None = None
        self._waiting: list[Command] = []
        self._has_failed = False
        self._is_quitting = False
        self.is_given_up = False  # it still loads, though it was told to end
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
            begins_quitting = isinstance(command, Quit) and not self._is_quitting
            self._is_quitting = self._is_quitting or begins_quitting
        if begins_quitting and not self.events.is_open:
            patience = threading.Timer(_LOADING_PATIENCE_S, self._give_up)
            patience.daemon = True
            patience.start()
        if worker is not None:
            worker.send(command)
        elif has_failed and isinstance(command, Quit):
            self._close()

    def interrupt(self) -> None:
        """End the running turn; there is none before there is a worker."""
        if self._worker is not None:
            self._worker.interrupt()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end, at most ``timeout`` seconds; True when it came or was given up."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        while not self._has_ended:
            if deadline_s is not None and time.monotonic() >= deadline_s:
                return False
            time.sleep(_POLL_S)
        return True

    @property
    def _has_ended(self) -> bool:
        if self.is_given_up:
            return True
        if self._thread.is_alive():
            return False
        return self._worker is None or self._worker.join(0.0)

    def _give_up(self) -> None:
        if not self.events.is_open and not self._has_ended:
            self.is_given_up = True
            self._close()

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
