"""What a person asks of the worker, from any thread, and the state that decides what happens to it.

The worker thread may be inside a long computation or a command. So everything that can be done
without it is done in the caller's thread, under one lock: queueing a message, taking it back,
changing the mode, answering an approval, interrupting. The rest waits in the inbox until the
worker asks for it. Nothing here blocks the caller.
"""

import threading
from collections import deque
from enum import StrEnum

from ds4agent.agent.event_stream import EventStream
from ds4agent.events import (
    ApprovalNeeded,
    ModeChanged,
    Notice,
    Phase,
    PhaseChanged,
    QueueChanged,
    TrustNeeded,
)
from ds4agent.requests import (
    Answer,
    Command,
    Compact,
    EditPermissions,
    Fork,
    ListSessions,
    Load,
    Mode,
    New,
    PreviewSession,
    Quit,
    Redo,
    Rewind,
    Save,
    SearchSessions,
    SetMode,
    ShowDiff,
    Submit,
    TakeBackQueued,
    Trust,
    Undo,
)

# What a running turn is no obstacle to. A rule that changes holds from the next call on.
_ANY_TIME = (ListSessions, PreviewSession, SearchSessions, EditPermissions)


class _State(StrEnum):
    LOADING = "loading"
    IDLE = "idle"
    BUSY = "busy"
    FAILED = "failed"
    CLOSED = "closed"


class Mailbox:
    """Commands in, one at a time out."""

    def __init__(self, stream: EventStream, mode: Mode) -> None:
        self.cancel = threading.Event()  # set: stop what is running at its next safe point
        self._stream = stream
        self._changed = threading.Condition()
        self._state = _State.LOADING
        self._mode = mode
        self._may_be_full = mode is Mode.FULL  # never by a key or a command: too easily
        self._inbox: deque[Command] = deque()
        self._queued: deque[str] = deque()
        self._awaited_call = ""
        self._answer: Answer | None = None
        self._awaits_trust = False
        self._trust: Trust | None = None
        self._is_quitting = False

    @property
    def mode(self) -> Mode:
        """The approval mode for the next call."""
        return self._mode

    @property
    def is_quitting(self) -> bool:
        """True once ``Quit`` was posted."""
        return self._is_quitting

    # --- any thread ---------------------------------------------------------------------------

    def post(self, command: Command) -> None:
        """Take a command; what it did or will do is told by events."""
        with self._changed:
            if self._state is _State.CLOSED or self._is_quitting:
                return
            match command:
                case Submit(text):
                    self._submit(text)
                case Answer():
                    if command.call_id == self._awaited_call:
                        self._answer = command
                case SetMode(mode):
                    self._set_mode(mode)
                case TakeBackQueued(text):
                    self._take_back(text)
                case Load() | Fork() | Rewind() | New() | Undo() | Redo() | ShowDiff():
                    self._begin_if_idle(command)
                case Trust() if self._awaits_trust:
                    self._trust = command
                case Quit():
                    self._is_quitting = True
                    self.cancel.set()
                case _:
                    self._defer(command)
            self._changed.notify_all()

    def interrupt(self) -> None:
        """Stop the running turn; without one, do nothing. The queue is kept."""
        with self._changed:
            if self._state is _State.BUSY:
                self.cancel.set()
                self._changed.notify_all()

    def _submit(self, text: str) -> None:
        if not text.strip():
            return
        if self._state is _State.FAILED:
            self._stream.emit(Notice("There is no model; the message was not sent", "error"))
        elif self._state is _State.IDLE:
            self._begin(Submit(text))
        else:
            self._queued.append(text)
            self._tell_queue()

    def _take_back(self, text: str) -> None:
        """Forget the newest message that reads so; one that was delivered meanwhile is gone."""
        places = [i for i, queued in enumerate(self._queued) if text in ("", queued)]
        if places:
            del self._queued[places[-1]]
            self._tell_queue()

    def _set_mode(self, mode: Mode) -> None:
        if mode is Mode.FULL and not self._may_be_full:
            self._stream.emit(
                Notice("Full mode is given at the start only: ds4-agent --approval full", "warning")
            )
            return
        self._mode = mode
        self._stream.emit(ModeChanged(mode))

    def _begin_if_idle(self, command: Command) -> None:
        if self._state is _State.IDLE:
            self._begin(command)
        elif self._state is _State.FAILED:
            self._stream.emit(Notice("There is no model, so there is no conversation", "error"))
        else:
            reason = (
                "the model is loading" if self._state is _State.LOADING else "a turn is running"
            )
            self._stream.emit(
                Notice(f"Refused: {reason}. Interrupt it or wait for its end.", "warning")
            )

    def _defer(self, command: Command) -> None:
        if self._state is _State.FAILED and isinstance(command, Save):
            self._stream.emit(Notice("There is nothing to save"))
        elif self._state is _State.IDLE and isinstance(command, Save | Compact):
            self._begin(command)
        else:
            self._inbox.append(command)

    def _begin(self, command: Command) -> None:
        # Set here and not in the worker, so that nothing that was accepted ever looks idle.
        self._state = _State.BUSY
        self.cancel.clear()
        self._inbox.append(command)

    def _tell_queue(self) -> None:
        self._stream.emit(QueueChanged(tuple(self._queued)))

    # --- the worker's thread ------------------------------------------------------------------

    def opened(self) -> None:
        """The model is there: messages typed so far may go out."""
        with self._changed:
            if self._state is _State.LOADING:
                self._state = _State.BUSY

    def failed(self) -> None:
        """There will be no model; only ``Quit`` and lists are served from now on."""
        with self._changed:
            self._state = _State.FAILED
            self._inbox.clear()

    def closed(self) -> None:
        """The worker has ended: nothing is taken any more."""
        with self._changed:
            self._state = _State.CLOSED

    @property
    def is_wanted(self) -> bool:
        """Whether something waits to be done."""
        with self._changed:
            return self._is_quitting or bool(self._inbox)

    def next(self, idle_s: float | None = None) -> Command | None:
        """Wait for the next thing to do. Queued messages become one turn.

        Args:
            idle_s: return None when nothing came for so long; None waits for ever.
        """
        with self._changed:
            while True:
                if self._is_quitting:
                    return Quit()
                if self._inbox:
                    return self._inbox.popleft()
                if self._state is _State.BUSY:
                    if self._queued:
                        text = self._take_all()
                        self.cancel.clear()
                        return Submit(text)
                    self._state = _State.IDLE
                    self._stream.emit(PhaseChanged(Phase.IDLE))
                if not self._changed.wait(idle_s):
                    return None

    def next_look(self) -> Command | None:
        """Return what was asked for meanwhile that a running turn is no obstacle to."""
        with self._changed:
            for command in self._inbox if self._state is _State.BUSY else ():
                if isinstance(command, _ANY_TIME):
                    self._inbox.remove(command)
                    return command
            return None

    def take_queued(self) -> str:
        """Return all queued messages as one text, "" when there are none."""
        with self._changed:
            return self._take_all() if self._queued else ""

    def put_back(self, text: str) -> None:
        """Queue a message again, before all others: it was taken but never reached the model."""
        with self._changed:
            self._queued.appendleft(text)
            self._tell_queue()

    def ask(self, question: ApprovalNeeded) -> Answer | None:
        """Ask, and wait for the answer; None when the turn was interrupted instead."""
        with self._changed:
            self._awaited_call, self._answer = question.call_id, None
            self._stream.emit(question)
            while self._answer is None and not self.cancel.is_set():
                self._changed.wait()
            self._awaited_call = ""
            return None if self.cancel.is_set() else self._answer

    def ask_for_trust(self, question: TrustNeeded) -> None:
        """Ask whether a folder is trusted; ``wait_for_trust`` has the answer."""
        with self._changed:
            self._awaits_trust = True
            self._stream.emit(question)

    def wait_for_trust(self) -> Trust | None:
        """Return the answer; None when the program is to end instead."""
        with self._changed:
            while self._trust is None and not self._is_quitting:
                self._changed.wait()
            self._awaits_trust = False
            return None if self._is_quitting else self._trust

    def narrow(self, mode: Mode) -> None:
        """Let less happen without asking, if the mode allows more than this one."""
        with self._changed:
            modes = list(Mode)  # from the narrowest on
            if modes.index(mode) < modes.index(self._mode):
                self._set_mode(mode)

    def _take_all(self) -> str:
        text = "\n\n".join(self._queued)
        self._queued.clear()
        self._tell_queue()
        return text
