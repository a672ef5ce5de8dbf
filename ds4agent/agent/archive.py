"""Conversations between the live state and the disk: begin, open, save, list."""

import dataclasses
import threading
import time
from collections.abc import Callable

from ds4agent.agent.conversation import Conversation, Progress
from ds4agent.events import HistoryEntry, Saved, SessionList, SessionSummary
from ds4agent.plain import one_line
from engine.chat.format import System, ToolSpec
from engine.engine import Engine
from engine.errors import StateMismatch
from engine.state import SessionState, SyncReport
from sessions import folder
from sessions.errors import CheckpointError
from sessions.identity import normalise_title, session_id
from sessions.locks import SessionLock
from sessions.record import SessionMeta
from sessions.store import SessionStore

_LOCK_ATTEMPTS = 5  # other programs that began with the same words in the same seconds
_LIST_HINT = "`ds4-agent sessions list` shows what there is."
_MODEL_HINT = "Start with the model it was made with, or begin a new conversation."


class Archive:
    """Opens conversations for one engine and keeps the open one safe.

    Without a store nothing is read and nothing is written.
    """

    def __init__(
        self,
        engine: Engine,
        store: SessionStore | None,
        cwd: str,
        system: str,
        tools: tuple[ToolSpec, ...],
    ) -> None:
        self._engine = engine
        self._store = store
        self._cwd = cwd
        self._tools = tools
        self._head = tuple(engine.chat.render([System(system, tools)]))
        self._head_text = engine.tokenizer.render(self._head)
        self._head_state: SessionState | None = None
        self._lock: SessionLock | None = None
        self._lock_id = ""

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
        self._release()
        return Conversation(session, self._engine.chat, self._tools, self._head), report, warning

    def open(self, id_prefix: str) -> tuple[Conversation, str]:
        """Open a saved conversation, nothing computed. The open one stays usable until then.

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
                _MODEL_HINT,
            )
        lock = None
        if self._lock is None or not self._is_mine(record.id):
            lock = store.open_lock(record.id)
        try:
            state, record = store.load(record.id)
            if not state.fingerprint:
                state = dataclasses.replace(state, fingerprint=fingerprint)
            session = self._engine.restore(state)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        if lock is not None:
            self._release()
            self._lock, self._lock_id = lock, record.id
        warning = ""
        if tuple(state.tokens[: len(self._head)]) != self._head:
            warning = (
                "This conversation began with another system prompt or other tools; "
                "it goes on with its own."
            )
        conversation = Conversation(
            session, self._engine.chat, self._tools, self._head, state.tokens
        )
        conversation.id, conversation.title = record.id, record.title
        conversation.created_at = record.created_at
        conversation.saved_tokens = conversation.transcript
        return conversation, warning

    def save(self, conversation: Conversation, *, automatic: bool) -> Saved:
        """Write the conversation; a later save replaces it.

        Raises:
            CheckpointError: it cannot be written. The conversation goes on.
        """
        start_s = time.monotonic()
        store = self._require_store()
        conversation.settle()
        if not conversation.id:
            self._claim(store, conversation)
        saved = store.save(
            conversation.session.state(),
            self._engine.tokenizer.render(conversation.transcript),
            title=conversation.title,
            created_at=conversation.created_at,
            meta=SessionMeta(cwd=self._cwd, model=self._engine.info.name),
        )
        conversation.id = saved.id
        conversation.saved_tokens = conversation.transcript
        return Saved(
            session_id=saved.id,
            title=conversation.title,
            tokens=len(conversation.transcript),
            file_bytes=saved.n_bytes,
            seconds=time.monotonic() - start_s,
            automatic=automatic,
        )

    def history(self, conversation: Conversation) -> tuple[HistoryEntry, ...]:
        """Return what was said, for display, without the system prompt."""
        items = self._engine.chat.history(conversation.transcript, self._tools)
        return tuple(
            HistoryEntry(item.role, item.text, item.name, item.arguments)
            for item in items
            if item.role != "system"
        )

    def close(self) -> None:
        """Let other programs open the conversation."""
        self._release()

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

    def _claim(self, store: SessionStore, conversation: Conversation) -> None:
        """Take a free id. It follows from title and second, so equal prompts may collide."""
        title = normalise_title(conversation.title).encode("utf-8")
        n_locked = 0
        while True:
            identifier = session_id(title, conversation.created_at)
            if self._is_mine(identifier):
                return  # taken for a save that failed
            if not folder.session_path(store.folder, identifier).exists():
                try:
                    lock = store.open_lock(identifier)
                    break
                except CheckpointError:
                    n_locked += 1
                    if n_locked == _LOCK_ATTEMPTS:
                        raise
            conversation.created_at += 1
        self._release()
        self._lock, self._lock_id = lock, identifier

    def _is_mine(self, identifier: str) -> bool:
        return self._lock is not None and self._lock_id == identifier

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
        self._lock, self._lock_id = None, ""

    def _require_store(self) -> SessionStore:
        if self._store is None:
            raise CheckpointError(
                "saved conversations are switched off", "Start without --no-save."
            )
        return self._store


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
                title=one_line(record.title),
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
