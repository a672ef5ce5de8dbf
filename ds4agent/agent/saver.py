"""When a conversation goes to the disk, and what the person is told of it.

After each result of a tool and each turn what is new is appended. When the person asks, at the end
and in idle time the whole conversation is written. A disk that is full or a folder that can't be
written is told once; the conversation goes on in memory, and the next save that works has it all.
"""

import logging
from collections.abc import Callable

from ds4agent.agent.archive import Archive
from ds4agent.agent.conversation import Conversation
from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.meter import file_reporter
from ds4agent.agent.past_events import PastEvents
from ds4agent.agent.waiting import Waiting
from ds4agent.errors import Ds4Error
from ds4agent.events import Event, Notice, Outcome, Phase, PhaseChanged, Saved

IDLE_S = 20.0  # nothing was asked for so long: time for a fold

_log = logging.getLogger(__name__)


class _Wanted(Exception):
    """Somebody wants something, so idle time is over."""


class Saver:
    """Saves the open conversation. The worker's thread alone uses it."""

    def __init__(
        self,
        stream: EventStream,
        attempt: Callable[[Callable[[], None]], str],
        is_wanted: Callable[[], bool],
    ) -> None:
        """Prepare.

        Args:
            stream: where the person is told.
            attempt: does something and returns "" or, as one line, why it failed.
            is_wanted: whether a command waits, so that idle time is over.
        """
        self._stream = stream
        self._attempt = attempt
        self._is_wanted = is_wanted
        self._archive: Archive | None = None  # None: nothing is saved
        self._past = PastEvents()
        self._has_warned = False
        self._is_idle_time_used = False

    def use(self, archive: Archive) -> None:
        """Save into an archive from now on."""
        self._archive = archive

    def see(self, event: Event) -> None:
        """Take note of an event that belongs to the view of the conversation."""
        if self._archive is not None:
            self._past.see(event)

    def another_conversation(self) -> None:
        """Forget what belonged to the one before."""
        self._past.clear()
        self._has_warned = self._is_idle_time_used = False

    def after_results(self, conversation: Conversation) -> None:
        """Keep the results of tools, before the model goes on."""
        if self._archive is not None and not conversation.is_saved:
            self._tell(self._attempt(lambda: self._keep(conversation, "result")))

    def note_calls(self, conversation: Conversation, waiting: Waiting) -> bool:
        """Keep the open turn with the calls at its end, how far they are and their results.

        Returns:
            Whether it is on the disk, so that a question comes again after a restart.
        """
        if self._archive is None or conversation.is_read_only:
            return False
        with conversation.committed_for_now():
            self._past.note(waiting.event(len(conversation.transcript)))
            error = self._attempt(lambda: self._keep(conversation, "call"))
        self._tell(error)
        return not error

    def after_turn(self, conversation: Conversation, outcome: Outcome | None = None) -> None:
        """Keep a turn, before the prompt comes back."""
        if self._archive is None or conversation.is_saved:
            return
        if outcome is not None:
            self._past.ended(outcome)
        self._stream.emit(PhaseChanged(Phase.SAVING))
        self._tell(self._attempt(lambda: self._stream.emit(self._keep(conversation, "turn"))))

    def on_request(self, conversation: Conversation | None) -> None:
        """Write the whole conversation.

        Raises:
            CheckpointError: it can't be written.
        """
        if conversation is None or not conversation.has_messages:
            self._stream.emit(Notice("There is nothing to save yet"))
            return
        if self._archive is None:
            raise Ds4Error("saved conversations are switched off", "Start without --no-save.")
        if conversation.is_read_only:
            raise Ds4Error("this conversation is open read-only", "Load it as a copy to keep it.")
        self._stream.emit(PhaseChanged(Phase.SAVING))
        self._stream.emit(self._save(conversation, automatic=False))

    def after_rewind(self, conversation: Conversation) -> None:
        """Keep that turns were taken back."""
        if self._archive is not None and conversation.id:
            self._tell(self._attempt(lambda: self._keep(conversation, "rewind")))

    def before_another(self, conversation: Conversation) -> None:
        """Keep what is not kept before another conversation takes its place.

        Raises:
            Ds4Error: it can't be kept; then it must not be replaced either.
        """
        if self._archive is None or conversation.is_saved:
            return
        self._stream.emit(PhaseChanged(Phase.SAVING))
        error = self._attempt(lambda: self._stream.emit(self._keep(conversation, "turn")))
        if error:
            raise Ds4Error(f"The current conversation cannot be saved, so it stays open: {error}")

    def before_end(self, conversation: Conversation | None) -> None:
        """Write everything at the end of the program.

        Raises:
            CheckpointError: what is new can't be kept.
        """
        if self._archive is None or conversation is None:
            return
        if conversation.is_saved and not self._archive.has_journal:
            return
        self._stream.emit(PhaseChanged(Phase.SAVING))
        saved = None if conversation.is_saved else self._keep(conversation, "turn")
        if self._archive.has_journal:
            error = self._attempt(lambda: self._stream.emit(self._save(conversation)))
            if error:  # its journal has all of it
                _log.warning("the journal of %s stays as it is: %s", conversation.id, error)
        elif saved is not None:
            self._stream.emit(saved)

    @property
    def wants_idle_time(self) -> bool:
        """Whether there is something to do when nobody asks for anything."""
        is_due = self._archive is not None and self._archive.is_fold_due
        return is_due and not self._is_idle_time_used

    def in_idle_time(self, conversation: Conversation) -> None:
        """Take up a long journal, until somebody wants something. What fails is tried again after
        the next turn, and nothing is lost by it."""
        self._is_idle_time_used = True

        def stop_when_wanted(done: int, total: int) -> None:
            if self._is_wanted():
                raise _Wanted

        try:
            self._archive.save(conversation, automatic=True, progress=stop_when_wanted)
        except _Wanted:
            self._is_idle_time_used = False
        except Exception as error:
            _log.warning("the journal of %s was not taken up: %s", conversation.id, error)

    def _keep(self, conversation: Conversation, kind: str) -> Saved:
        events = self._past.waiting
        saved = self._archive.keep(conversation, kind=kind, events=events)
        self._past.kept(len(events))
        self._is_idle_time_used = False
        return saved

    def _save(self, conversation: Conversation, *, automatic: bool = True) -> Saved:
        if not conversation.is_saved:
            self._keep(conversation, "turn")
        return self._archive.save(
            conversation, automatic=automatic, progress=file_reporter(self._stream)
        )

    def _tell(self, error: str) -> None:
        """Say once that saving does not work, and once that it works again."""
        if error and not self._has_warned:
            self._stream.emit(
                Notice(f"The conversation was not saved: {error} It goes on in memory.", "warning")
            )
        elif not error and self._has_warned:
            self._stream.emit(Notice("The conversation is saved again"))
        self._has_warned = bool(error)
