"""Conversations between the live state and the disk: begin, open, save, list."""

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ds4agent.agent.conversation import Conversation, Progress
from ds4agent.agent.going_back import go_back
from ds4agent.agent.keeping import Keeping
from ds4agent.agent.past_events import joined
from ds4agent.agent.rereading import tokens_to_read
from ds4agent.agent.waiting import waiting_in, without_waiting
from ds4agent.errors import Ds4Error
from ds4agent.events import HistoryEntry, Saved, SessionList, SessionSummary
from ds4agent.plain import one_line
from ds4agent.requests import Start
from engine.chat.format import System, ToolSpec
from engine.engine import Engine
from engine.errors import StateMismatch
from engine.state import SessionState, SyncReport
from sessions.errors import CheckpointError
from sessions.fork import fork
from sessions.record import SessionRecord
from sessions.store import SessionStore


class Archive:
    """Opens conversations for one engine and keeps the open one safe.

    Without a store nothing is read and nothing is written.
    """

    def __init__(
        self,
        engine: Engine,
        store: SessionStore | None,
        cwd: str,
        system: System,
        tools: tuple[ToolSpec, ...],
    ) -> None:
        self._engine = engine
        self._store = store
        self._cwd = cwd
        self._tools = tools
        self._head = tuple(engine.chat.render([system]))
        self._head_text = engine.tokenizer.render(self._head)
        self._head_state: SessionState | None = None
        self._keeping = Keeping(engine, store, cwd) if store is not None else None

    def begin(
        self, announce: Callable[[int], Progress], cancel: threading.Event
    ) -> tuple[Conversation, SyncReport, str]:
        """Open a new conversation: the system prompt from the disk, or computed once.

        Args:
            announce: called when the prompt has to be computed, with its tokens; returns the
                progress callback.
            cancel: set to stop; the first turn then computes the rest.

        Returns:
            The conversation, what its head cost, and a warning for the person ("" without one).

        Raises:
            ContextFull: the system prompt alone does not fit.
        """
        start_s = time.monotonic()
        warning = ""
        state = self._head_state or self._load_head()
        if state is not None:
            session = self._engine.restore(state)
            report = SyncReport(len(self._head), 0, time.monotonic() - start_s)
        else:
            session = self._engine.new_session()
            report = session.sync(self._head, announce(len(self._head)), cancel)
            if not report.cancelled:
                state = session.state()
                warning = self._save_head(state)
        if not report.cancelled:
            self._head_state = state
        self.close()
        return Conversation(session, self._engine.chat, self._tools, self._head), report, warning

    def open(
        self, id_prefix: str, progress: Progress | None = None, *, as_copy: bool = False
    ) -> tuple[Conversation, str]:
        """Open a saved conversation, nothing computed. The open one stays usable until then.

        Args:
            id_prefix: the first digits of its id.
            progress: called with bytes read and in all.
            as_copy: leave it as it is; what comes now is kept as another conversation.

        Returns:
            The conversation, and a warning for the person ("" without one).

        Raises:
            CheckpointError: there is none, it is damaged, or open in another process.
            StateMismatch: it was made with another model.
        """
        store = self._require_store()
        record = store.find(id_prefix)
        fingerprint = self._engine.info.fingerprint
        # "": written by another program, which does not tell; the shapes are checked all the same.
        if record.fingerprint not in ("", fingerprint):
            raise StateMismatch(
                f"session {record.id[:8]} was made with {record.model or 'another model'} "
                f"(weights {record.fingerprint[:8]}, loaded are {fingerprint[:8]})",
                f"/load {record.id[:8]} prefill reads its {record.tokens:,} tokens with this one.",
            )
        warnings = []
        lock = None
        as_copy = as_copy or not record.is_titled  # such an id would change with every turn
        if not as_copy:
            try:
                lock = self._require_keeping().lock(record.id)
            except CheckpointError as error:
                if not isinstance(error.__cause__, OSError):
                    raise  # it is open in another process
                warnings.append(f"It is kept as a copy from here on: {error}.")
                as_copy = True
        try:
            restored = store.restore(record.id, progress)
            state = restored.state
            if not state.fingerprint:
                state = dataclasses.replace(state, fingerprint=fingerprint)
            session = self._engine.restore(state, consume=True)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        warnings += [f"Session {record.id[:8]}: {note}." for note in restored.notes]
        if tuple(state.tokens[: len(self._head)]) != self._head:
            warnings.append(
                "This conversation began with another system prompt or other tools; "
                "it goes on with its own."
            )
        conversation = Conversation(
            session, self._engine.chat, self._tools, self._head, state.tokens
        )
        conversation.title = record.title
        conversation.created_at = record.created_at or int(time.time())
        if as_copy:
            self.close()
        else:
            conversation.id = record.id
            warnings.append(self._require_keeping().adopt(restored, lock, conversation))
        conversation.saved_tokens = conversation.transcript
        conversation.waiting = waiting_in(restored.events, len(conversation.transcript))
        return conversation, " ".join(filter(None, warnings))

    def open_text(
        self, id_prefix: str, announce: Callable[[int], Progress], cancel: threading.Event
    ) -> tuple[Conversation, SyncReport]:
        """Open a saved conversation by reading its text again; what comes is kept as another one.

        For a state that is gone, or that another model made. Where the vocabulary is the same,
        the very tokens are read; else the text, if it is in this model's chat format.

        Args:
            id_prefix: the first digits of its id.
            announce: called with the tokens to be read; returns the progress callback.
            cancel: set to stop; nothing is opened then.

        Raises:
            CheckpointError: there is none, or it is damaged.
            StateMismatch: its text is in another chat format.
            ContextFull: it does not fit.
        """
        record, tokens = tokens_to_read(self._engine, self._require_store(), id_prefix)
        head = self._head_state
        if head is not None and tokens[: len(head.tokens)] == head.tokens:
            session = self._engine.restore(head)
        else:
            session = self._engine.new_session()
        n_new = len(tokens) - session.common_prefix(tokens)
        report = session.sync(tokens, announce(n_new), cancel)
        if report.cancelled:
            raise Ds4Error("stopped before all of it was read; nothing was opened")
        self.close()
        conversation = Conversation(session, self._engine.chat, self._tools, self._head, tokens)
        conversation.title = record.title
        conversation.created_at = record.created_at or int(time.time())
        return conversation, report

    def go_back(
        self,
        conversation: Conversation,
        n_turns: int,
        may_prefill: bool,
        announce: Callable[[int], Progress],
        cancel: threading.Event,
    ) -> SyncReport:
        """Take back the last turns; see ``going_back.go_back``."""
        return go_back(
            conversation,
            n_turns,
            may_prefill=may_prefill,
            store=self._store,
            head_state=self._head_state or self._load_head(),
            announce=announce,
            cancel=cancel,
        )

    def fork(self, conversation: Conversation, name: str) -> str:
        """Go on in a fork of a conversation that is on the disk; return the id that is left.

        Raises:
            CheckpointError: it is not on the disk, or the fork can't be written.
        """
        left = conversation.id
        if not left:
            raise CheckpointError("there is nothing on the disk to fork", "Say something first.")
        self._require_keeping().move_to(fork(self._require_store(), left, name), conversation)
        return left

    def keep(
        self,
        conversation: Conversation,
        *,
        kind: str = "turn",
        events: Sequence[dict[str, Any]] = (),
    ) -> Saved:
        """Bring what is new to the disk; see ``Keeping.append``.

        Raises:
            CheckpointError: it cannot be written. The conversation goes on.
        """
        return self._require_keeping().append(conversation, kind=kind, events=events)

    def save(
        self,
        conversation: Conversation,
        *,
        automatic: bool,
        events: Sequence[dict[str, Any]] = (),
        progress: Progress | None = None,
    ) -> Saved:
        """Write all of the conversation into its checkpoint; see ``Keeping.fold``.

        Raises:
            CheckpointError: it cannot be written. The conversation goes on.
        """
        return self._require_keeping().fold(
            conversation, automatic=automatic, events=events, progress=progress
        )

    @property
    def has_journal(self) -> bool:
        """Whether there is anything on disk that the checkpoint does not have."""
        return self._keeping is not None and self._keeping.has_journal

    @property
    def is_fold_due(self) -> bool:
        """Whether idle time should be used for a ``save``."""
        return self._keeping is not None and self._keeping.is_fold_due

    @property
    def head_state(self) -> SessionState | None:
        """The state of the system prompt, when it was computed or read."""
        return self._head_state

    def history(self, conversation: Conversation) -> tuple[HistoryEntry, ...]:
        """Return what was said, for display, without the system prompt."""
        items = self._engine.chat.history(conversation.transcript, self._tools)
        entries = [
            HistoryEntry(item.role, item.text, item.name, item.arguments)
            for item in items
            if item.role != "system"
        ]
        entries = without_waiting(entries, conversation.waiting)
        return joined(entries, self._keeping.past_events if self._keeping is not None else ())

    def close(self) -> None:
        """Let other programs open the conversation."""
        if self._keeping is not None:
            self._keeping.release()

    def _load_head(self) -> SessionState | None:
        if self._store is None:
            return None
        return self._store.load_system(self._engine.info.fingerprint, self._head_text, self._head)

    def _save_head(self, state: SessionState) -> str:
        if self._store is None:
            return ""
        try:
            self._store.save_system(state, self._head_text)
        except CheckpointError as error:
            return f"The system prompt's state was not kept: {error}. {error.hint}".strip()
        return ""

    def _require_store(self) -> SessionStore:
        if self._store is None:
            raise CheckpointError(
                "saved conversations are switched off", "Start without --no-save."
            )
        return self._store

    def _require_keeping(self) -> Keeping:
        self._require_store()
        assert self._keeping is not None
        return self._keeping


def record_to_resume(store: SessionStore | None, start: Start, cwd: str) -> SessionRecord:
    """Return the conversation that the program was started to go on with.

    Raises:
        CheckpointError: there is no such conversation.
        Ds4Error: there is none of this folder, or none is kept.
    """
    if store is None:
        raise Ds4Error("saved conversations are switched off", "Start without --no-save.")
    if start.resume_id:
        return store.find(start.resume_id)
    latest = store.latest(cwd)
    if latest is None:
        raise Ds4Error(f"there is no saved conversation of {cwd} yet", "Start without --continue.")
    return latest


def session_list(store: SessionStore | None, fingerprint: str) -> SessionList:
    """List the saved conversations; those of the loaded model are resumable.

    Raises:
        CheckpointError: the folder cannot be read.
    """
    records = store.list() if store is not None else []
    return SessionList(
        tuple(
            SessionSummary(
                id=record.id,
                title=one_line(record.label),
                cwd=record.cwd,
                model=record.model,
                tokens=record.tokens,
                file_bytes=record.file_bytes,
                created_at=record.created_at,
                last_used=record.last_used,
                resumable=record.fingerprint == fingerprint,
            )
            for record in records
        )
    )
