"""Lines as the terminal itself edits them: for dumb terminals, where nothing can be drawn again."""

import codecs
import os
import select
import signal
import sys
import threading
from collections.abc import Callable

from ds4agent.events import Phase, PhaseChanged
from ds4agent.inline.paper import Paper
from ds4agent.inline.session import InlineSession
from ds4agent.late_worker import Worker

_CHUNK = 4096  # bytes
_PATIENCE_S = 0.5  # the end is looked for this often, should its sign be lost


class BareLines:
    """Reads lines from standard input; the kernel echoes and edits them."""

    def __init__(self, worker: Worker, paper: Paper) -> None:
        self._worker = worker
        self._paper = paper

    def run(self, open_session: Callable[[], InlineSession]) -> InlineSession:
        """Read lines until the worker has closed."""
        session = open_session()
        wake_out, wake_in = os.pipe()
        before = signal.signal(signal.SIGINT, lambda *_: _aside(session.ctrl_c))
        try:
            self._worker.start()
            follower = threading.Thread(target=self._follow, args=(session, wake_in), daemon=True)
            follower.start()
            self._read(session, wake_out)
            follower.join()
        finally:
            signal.signal(signal.SIGINT, before)
            os.close(wake_out)
            os.close(wake_in)
        return session

    def copy(self, text: str) -> bool:
        """There is no clipboard."""
        return False

    def edit(self, text: str, instead_of: str) -> None:
        """The line is the terminal's own: nothing can be put into it."""

    def _follow(self, session: InlineSession, wake: int) -> None:
        while not session.is_closed:
            was_asking = session.is_asking
            event = self._worker.events.get()
            session.take(event)
            begins_asking = session.is_asking and not was_asking
            if begins_asking or isinstance(event, PhaseChanged) and event.phase is Phase.IDLE:
                self._paper.prompt(session.prompt)
        os.write(wake, b".")

    def _read(self, session: InlineSession, wake: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        held = ""
        descriptors = [sys.stdin.fileno(), wake]
        while not session.is_closed:
            ready, _, _ = select.select(descriptors, [], [], _PATIENCE_S)
            if not ready or wake in ready:
                continue
            piece = os.read(descriptors[0], _CHUNK)
            if not piece:  # Ctrl+D
                session.quit()
                while not session.is_closed:
                    select.select([wake], [], [], _PATIENCE_S)
                return
            held += decoder.decode(piece)
            *lines, held = held.split("\n")
            for line in lines:
                self._paper.entered()
                session.typed(line)


def _aside(act: Callable[[], object]) -> None:
    """Act in a thread: the handler may have stopped this one while it holds the lock."""
    threading.Thread(target=act, daemon=True).start()
