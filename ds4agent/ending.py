"""An end that comes from outside: a signal to end, or a terminal that has gone away.

The worker is told to save and close. The screen ends by itself when that is done. It may be stuck,
though: in writing to a terminal that nobody reads, or behind the person's editor. So all of this
happens in threads of its own, which end the program when the screen does not.
"""

import contextlib
import os
import select
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, NoReturn

from ds4agent.late_worker import Worker
from ds4agent.requests import Quit

SAVE_WAIT_S = 10.0  # for the worker: the state of a long conversation is gigabytes
SCREEN_WAIT_S = 2.0  # for the screen, once there is nothing left to save
_LOOK_S = 1.0  # how often it is looked whether the terminal is there: not every loss has a signal
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
# Leave the second screen; show the cursor; end mouse reports, focus reports, bracketed paste and
# the keyboard protocol of kitty.
_PLAIN_TERMINAL = (
    b"\x1b[?1049l\x1b[?25h\x1b[?1000l\x1b[?1002l\x1b[?1003l\x1b[?1006l\x1b[?1004l\x1b[?2004l\x1b[<u"
)

_stops: dict[int, Callable[[], Any]] = {}  # ends what runs beside us


@contextlib.contextmanager
def ends_with_program(stop: Callable[[], Any]) -> Iterator[None]:
    """While the block runs, an end from outside calls ``stop``, from another thread."""
    _stops[id(stop)] = stop
    try:
        yield
    finally:
        del _stops[id(stop)]


class Ending:
    """``with Ending(worker):`` around a screen sees to it that the program can be ended.

    The exit code is the screen's own when it ended in time, else 128 and the signal's number.
    Handlers of signals are set in the main thread only; elsewhere there are none.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._begins = threading.Lock()  # taken by the thread that ends the program, for good
        self._is_over = threading.Event()
        self._before: dict[int, Any] = {}
        self._modes: list[Any] | None = None  # of the terminal, as it was found

    def __enter__(self) -> "Ending":
        self._modes = _terminal_modes()
        with contextlib.suppress(ValueError):  # only the main thread may
            for number in _SIGNALS:
                self._before[number] = signal.signal(number, self._on_signal)
        if self._modes is not None:
            threading.Thread(target=self._watch, name="terminal-watch", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._modes is not None and not os.isatty(0):
            self._end(signal.SIGHUP)  # an error of the screen means nothing then
            threading.Event().wait()  # another thread is at it
        self._is_over.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # In a thread: the handler may have stopped this one while it holds a lock.
        threading.Thread(target=self._end, args=(number,), name="ending", daemon=True).start()

    def _watch(self) -> None:
        while not self._is_over.wait(_LOOK_S):
            if not os.isatty(0):
                self._end(signal.SIGHUP)

    def _end(self, number: int) -> None:
        """Save, let the screen end, and end the program when it does not."""
        if not self._begins.acquire(blocking=False):
            return
        for stop in list(_stops.values()):
            stop()
        self._worker.send(Quit())
        self._worker.join(SAVE_WAIT_S)
        if os.isatty(0):  # one that is gone can't be restored: trying waits for ever
            threading.Event().wait(SCREEN_WAIT_S)
            self._restore()
        leave_at_once(128 + number)

    def _restore(self) -> None:
        with contextlib.suppress(termios.error, OSError):
            if self._modes is not None:
                termios.tcsetattr(0, termios.TCSANOW, self._modes)
            if select.select([], [1], [], 0.0)[1]:
                os.write(1, _PLAIN_TERMINAL)


def leave_at_once(code: int) -> NoReturn:
    """End the program while a thread computes that cannot be stopped."""
    with contextlib.suppress(OSError, ValueError):
        if select.select([], [1], [], 0.0)[1]:
            sys.stdout.flush()
    os._exit(code)


def _terminal_modes() -> list[Any] | None:
    try:
        return termios.tcgetattr(0)
    except (termios.error, OSError):  # it is none
        return None
