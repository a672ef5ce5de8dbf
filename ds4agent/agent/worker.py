"""The thread that owns the model, the live conversation, the tools and the saved conversations.

A screen creates an ``AgentWorker``, calls ``start``, sends commands with ``send`` and reads
``events`` until ``Closed``. ``send`` and ``interrupt`` may be called from any thread and never
block. Events are plain frozen data, in the order in which things happened, and every text in
them is free of terminal control sequences.

Order of events
---------------
Opening::

    PhaseChanged(LOADING) [TrustNeeded] LoadProgress* [TrustDecided]
    [PhaseChanged(PREFILL) PrefillProgress*] Notice* Ready PhaseChanged(IDLE)

``Ready.reused_tokens`` came from a checkpoint, ``prefilled_tokens`` were computed (the system
prompt of a new conversation). When the model or, headless, the conversation cannot be opened:
``Notice(level="error") PhaseChanged(FAILED, detail=the same line)``; then only ``Quit`` and
``ListSessions`` are served. In a screen, a conversation that cannot be opened is told by a
``Notice`` and a new one is begun; the start prompt is then not sent.

A turn::

    TurnStarted
      PhaseChanged(PREFILL) PrefillProgress*
      PhaseChanged(GENERATING) (TextDelta | ThinkingDelta | GenerationProgress | call events)*
      for each call, in order:
        ToolCallReady
        [PhaseChanged(APPROVAL) ApprovalNeeded]     until Answer or interrupt()
        [PhaseChanged(TOOL) ToolOutput*]
        ToolFinished                                always, also for a call that was not run
      PREFILL, GENERATING, ... until an answer has no call. What was typed meanwhile goes with
      the results: QueueChanged(()) before that PREFILL, MessageDelivered after it.
    [PhaseChanged(SAVING) (Saved(automatic=True) | Notice(level="warning"))]
    TurnEnded
    PhaseChanged(IDLE), or at once QueueChanged(()) TurnStarted ... when messages are queued

Call events while the model writes: ``ToolCallStarted(call_id) ToolCallDelta*``. The
``ToolCallReady`` of the same id follows when the answer is complete. A call that cannot be read
ends with ``MalformedCall`` instead (no id: it is the last one started); one that an interrupt cut
off ends with ``TurnEnded``. An answer that is only a wrong call has no ``ToolCallStarted``.

Everything else::

    Submit    idle: a turn. Loading or busy: QueueChanged; delivered as above. A message taken from
              the queue that the model could not read (interrupt) is put back: QueueChanged.
    Undo Redo busy or loading: Notice, refused. Else FilesRestored, or a Notice that says why not.
    ShowDiff  DiffShown, or a Notice.
    Save      PhaseChanged(SAVING) Saved(automatic=False), or a Notice; PhaseChanged(IDLE). Busy:
              after the turn.
    Load New Fork Rewind
              busy or loading: Notice, refused. Else Ready (with history), or Notice and the
              current conversation is untouched. PhaseChanged(IDLE) follows in each case.
    SetMode   ModeChanged at once; holds from the next call on. FULL is refused unless the run
              began with it.
    Compact   PhaseChanged(COMPACTING) GenerationProgress* PhaseChanged(COMPACTING)
              PrefillProgress* Compacted, or a Notice and nothing has changed. Busy: after the
              turn. The same happens inside a turn, before a PREFILL, when the context is full.
    EditPermissions  PermissionList, or a Notice; busy: after the turn.
    Trust     while a ``TrustNeeded`` is open, its answer: TrustDecided. Else a Notice.
    ListSessions  SessionList; while a turn runs between two tokens, else after the tool.
    Quit      interrupts, saves what is not saved, PhaseChanged(CLOSED) Closed(resume_id).
"""

import queue
import threading
import time
from collections.abc import Callable

from ds4agent.agent.archive import Archive, record_to_resume, session_list
from ds4agent.agent.calls import CallRunner
from ds4agent.agent.conversation import Conversation, Progress
from ds4agent.agent.equipment import Equipment
from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.file_history import FileHistory
from ds4agent.agent.folder_trust import FolderTrust
from ds4agent.agent.loop import Turn, TurnReport
from ds4agent.agent.mailbox import Mailbox
from ds4agent.agent.making_room import RoomMaker
from ds4agent.agent.meter import file_reporter, load_reporter, prefill_reporter
from ds4agent.agent.project import UntrustedProject
from ds4agent.agent.saver import IDLE_S, Saver
from ds4agent.agent.session_preview import looked_up
from ds4agent.agent.settings import AgentSettings
from ds4agent.agent.telling import told
from ds4agent.agent.waiting import ASKED_AGAIN, RUNNING_ASKED_AGAIN
from ds4agent.errors import Ds4Error
from ds4agent.events import (
    Closed,
    Event,
    Notice,
    Outcome,
    PermissionList,
    Phase,
    PhaseChanged,
    Ready,
    TurnEnded,
    Usage,
)
from ds4agent.paths import project_root
from ds4agent.permissions.trust import TrustFile
from ds4agent.requests import (
    Command,
    Compact,
    EditPermissions,
    Fork,
    ListSessions,
    Load,
    Mode,
    New,
    Quit,
    Redo,
    Rewind,
    Save,
    ShowDiff,
    Start,
    Submit,
    Trust,
    Undo,
)
from engine.engine import Engine
from engine.state import SyncReport
from sessions.store import SessionStore

OpenEngine = Callable[[Callable[[int, int], None], threading.Event], Engine]


class AgentWorker:
    """One agent: a model, a folder, a conversation."""

    def __init__(
        self,
        open_engine: OpenEngine,
        settings: AgentSettings,
        start: Start,
        project: UntrustedProject | None = None,
        events: "queue.Queue[Event] | None" = None,
    ) -> None:
        """Prepare; nothing is opened before ``start``.

        Args:
            open_engine: called in the worker's thread with a progress callback (bytes done, bytes
                in all) and an event that asks it to give up.
            settings: what does not change.
            start: the conversation to open first, and a prompt to send.
            project: what the folder brings, if it is not trusted yet; the settings are without it.
            events: where to put what happens; None: a queue of its own.
        """
        self.events: queue.Queue[Event] = queue.Queue() if events is None else events
        self._open_engine = open_engine
        self._settings = settings
        self._start = start
        self._stream = EventStream(self.events, lambda event: self._saver.see(event))
        self._mailbox = Mailbox(self._stream, settings.mode)
        self._saver = Saver(self._stream, self._attempt, lambda: self._mailbox.is_wanted)
        self._thread = threading.Thread(target=self._run, name="ds4-worker", daemon=True)
        self._store = SessionStore(settings.store_folder) if settings.store_folder else None
        self._room = RoomMaker(
            self._stream,
            self._saver,
            self._mailbox.cancel,
            self._attempt,
            saves=self._store is not None,
        )
        memory = project.memory if project is not None else TrustFile(project_root(settings.cwd))
        self._trust = FolderTrust(project, memory, self._mailbox, self._stream)
        # Set by the worker's thread when the model is there.
        self._engine: Engine | None = None
        self._archive: Archive | None = None
        self._conversation: Conversation | None = None
        self._equipment: Equipment | None = None
        self._files: FileHistory | None = None

    # --- any thread ---------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread: it loads the model and opens the conversation."""
        self._thread.start()

    def send(self, command: Command) -> None:
        """Hand over a command. Its effect is told by events."""
        self._mailbox.post(command)

    def interrupt(self) -> None:
        """End the running turn at its next safe point; without one, do nothing.

        While the model loads there is no turn: send ``Quit`` to give up.
        """
        self._mailbox.interrupt()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the thread's end, at most ``timeout`` seconds; True when it has ended."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    # --- the worker's thread ------------------------------------------------------------------

    def _run(self) -> None:
        error = self._attempt(self._open)
        if error and not self._mailbox.is_quitting:
            self._mailbox.failed()
            self._stream.emit(Notice(error, "error"))
            self._stream.emit(PhaseChanged(Phase.FAILED, error))
        while True:
            command = self._mailbox.next(IDLE_S if self._saver.wants_idle_time else None)
            if command is None:
                self._saver.in_idle_time(self._conversation)
                continue
            if isinstance(command, Quit):
                break
            error = self._attempt(lambda command=command: self._obey(command))
            if error:
                self._stream.emit(Notice(error, "error"))
        error = self._attempt(lambda: self._saver.before_end(self._conversation))
        if error:
            self._stream.emit(Notice(f"Not saved: {error}", "error"))
        self._attempt(self._release)
        resume_id = self._conversation.id if self._conversation is not None else ""
        self._mailbox.closed()
        self._stream.emit(PhaseChanged(Phase.CLOSED))
        self._stream.emit(Closed(resume_id))
        self._stream.close()

    def _attempt(self, action: Callable[[], None]) -> str:
        """Do something and return "" or, as one line, why it failed."""
        try:
            action()
        except Exception as error:  # the worker's outer edge: it must survive whatever happens
            return told(error)
        return ""

    def _obey(self, command: Command) -> None:
        match command:
            case Submit(text):
                self._turn(text)
            case Save():
                self._saver.on_request(self._conversation)
            case Load():
                self._load(command)
            case Fork(name):
                self._fork(name)
            case Rewind():
                self._rewind(command)
            case New():
                self._new()
            case ListSessions():
                self._list()
            case Undo() | Redo() | ShowDiff():
                self._files.obey(command)
            case Compact(wish):
                head = self._archive.head_state if self._archive is not None else None
                self._room.compact(self._conversation, head, wish=wish)
            case Trust():
                self._trust.obey(command)
            case EditPermissions(action, rule):
                self._edit_permissions(action, rule)
            case _:  # what a list of conversations asks
                self._stream.emit(looked_up(self._store, command))

    # --- opening ------------------------------------------------------------------------------

    def _open(self) -> None:
        self._stream.emit(PhaseChanged(Phase.LOADING))
        # Before the model, which may take minutes: what can be refused or asked is so now.
        resume_id, problem = self._resume_id()
        self._trust.ask(is_headless=self._settings.headless)
        engine = self._open_engine(load_reporter(self._stream), self._mailbox.cancel)
        self._engine = engine
        self._settings = self._trust.settle(self._settings)
        if self._mailbox.is_quitting:
            return
        self._prepare_tools(engine)
        if resume_id:
            problem = self._attempt(lambda: self._load_ready(resume_id))
            if problem and self._settings.headless:
                raise Ds4Error(problem)
        if self._conversation is None and not self._mailbox.is_quitting:
            if problem:
                self._stream.emit(Notice(problem, "error"))
            self._begin()
        self._mailbox.opened()
        self._ask_again()
        if self._mailbox.mode is Mode.FULL:
            self._stream.emit(
                Notice(
                    "Full mode: every call runs without a question. /mode ask ends it.", "warning"
                )
            )
        if self._start.prompt and not problem:
            self._mailbox.put_back(self._start.prompt)

    def _resume_id(self) -> tuple[str, str]:
        """Return the whole id of the conversation to resume, or why there is none.

        Raises:
            Ds4Error: headless, because a prompt must not go to another conversation.
        """
        start = self._start
        if not start.resume_id and not start.resume_latest:
            return "", ""
        found: list[str] = []
        problem = self._attempt(
            lambda: found.append(record_to_resume(self._store, start, str(self._settings.cwd)).id)
        )
        if problem and self._settings.headless:
            raise Ds4Error(problem)
        return (found[0] if found else ""), problem

    def _prepare_tools(self, engine: Engine) -> None:
        self._files = FileHistory(self._settings.cwd, self._stream)
        self._equipment = Equipment(
            self._settings,
            engine.info,
            self._mailbox.cancel,
            lambda line: self._stream.emit(Notice(line, "warning")),
            self._files.log,
        )
        system = self._equipment.system()
        tools = self._equipment.specs
        self._archive = Archive(engine, self._store, str(self._settings.cwd), system, tools)
        if self._store is not None:
            self._saver.use(self._archive)

    def _begin(self) -> None:
        start_s = time.monotonic()
        conversation, report, warning = self._archive.begin(
            self._announce_head, self._mailbox.cancel
        )
        if warning:
            self._stream.emit(Notice(warning, "warning"))
        self._replace(conversation, report, time.monotonic() - start_s)

    def _announce_head(self, n_tokens: int) -> Progress:
        self._stream.emit(PhaseChanged(Phase.PREFILL, "system prompt"))
        return prefill_reporter(self._stream, n_tokens)

    def _load_ready(self, id_prefix: str, how: str = "") -> None:
        start_s = time.monotonic()
        conversation, warning = self._archive.open(
            id_prefix, file_reporter(self._stream), as_copy=how in ("copy", "read-only")
        )
        conversation.is_read_only = how == "read-only"
        if warning:
            self._stream.emit(Notice(warning, "warning"))
        report = SyncReport(len(conversation.transcript), 0)
        self._replace(conversation, report, time.monotonic() - start_s)

    def _replace(self, conversation: Conversation, report: SyncReport, seconds: float) -> None:
        info = self._engine.info
        if self._conversation is not None:
            self._equipment.renew()
        self._conversation = conversation
        self._saver.another_conversation()
        self._room.another_conversation()
        self._stream.emit(
            Ready(
                model=info.name,
                quant=info.quant,
                device=info.device,
                sandbox=self._equipment.toolbox.sandbox_name,
                mode=self._mailbox.mode,
                context_tokens=len(conversation.transcript),
                context_size=conversation.session.ctx,
                cwd=str(self._settings.cwd),
                session_id=conversation.id,
                title=conversation.title,
                history=self._archive.history(conversation) if conversation.has_messages else (),
                reused_tokens=report.reused,
                prefilled_tokens=report.prefilled,
                seconds=seconds,
            )
        )

    # --- commands -----------------------------------------------------------------------------

    def _turn(self, text: str, *, is_resumed: bool = False) -> None:
        conversation = self._conversation
        self._files.begin_turn(text, len(conversation.transcript))
        runner = CallRunner(
            self._equipment.toolbox,
            self._equipment.policy,
            self._mailbox,
            self._stream,
            self._settings.headless,
            self._equipment.hooks,
        )
        turn = Turn(
            conversation,
            runner,
            self._settings,
            self._mailbox,
            self._stream,
            self._look_around,
            self._make_room if self._settings.auto_compact else None,
            keep_results=lambda: self._saver.after_results(conversation),
            keep_waiting=lambda waiting: self._saver.note_calls(conversation, waiting),
            equipment=self._equipment,
        )
        reports: list[TurnReport] = []
        run = turn.resume if is_resumed else turn.run
        error = self._attempt(lambda: reports.append(run(text)))
        if error:
            # When even closing it fails, the turn ends at its last legal place.
            if self._attempt(lambda: reports.append(turn.abandon(error))):
                conversation.drop_open_turn()
                used = Usage(
                    context_tokens=conversation.n_tokens, context_size=conversation.session.ctx
                )
                reports.append(TurnReport(Outcome.ERROR, used, error))
        report = reports[0]
        self._saver.after_turn(conversation, report.outcome)
        self._room.warn_when_full(report.usage)
        self._stream.emit(TurnEnded(report.outcome, report.usage, conversation.id, report.error))

    def _make_room(self, in_turn: bool) -> bool:
        return self._room.in_turn(self._conversation, self._archive.head_state, in_turn=in_turn)

    def _ask_again(self) -> None:
        """Go on where a call waited for the person when the program was ended."""
        conversation = self._conversation
        waiting = conversation.waiting if conversation is not None else None
        is_asked = waiting is not None and bool(waiting.open_calls)
        if not is_asked or self._settings.headless or conversation.is_read_only:
            return
        told = RUNNING_ASKED_AGAIN if waiting.is_started else ASKED_AGAIN
        self._stream.emit(Notice(told))
        said = [entry.text for entry in self._archive.history(conversation) if entry.role == "user"]
        self._turn(said[-1] if said else "", is_resumed=True)

    def _look_around(self) -> None:
        while (wanted := self._mailbox.next_look()) is not None:
            error = self._attempt(lambda: self._obey(wanted))  # what fails must not end the turn
            if error:
                self._stream.emit(Notice(error, "error"))

    def _load(self, command: Load) -> None:
        self._saver.before_another(self._conversation)
        if command.how == "prefill":
            conversation, report = self._archive.open_text(
                command.id, self._announce_again, self._mailbox.cancel
            )
            self._replace(conversation, report, report.seconds)
        else:
            self._load_ready(command.id, command.how)
            self._ask_again()

    def _fork(self, name: str) -> None:
        self._saver.before_another(self._conversation)
        left = self._archive.fork(self._conversation, name)
        n_tokens = len(self._conversation.transcript)
        self._replace(self._conversation, SyncReport(n_tokens, 0), 0.0)
        self._stream.emit(Notice(f"This is the fork; /load {left[:8]} goes back to the other one"))

    def _rewind(self, command: Rewind) -> None:
        conversation = self._conversation
        self._saver.before_another(conversation)
        report = self._archive.go_back(
            conversation,
            command.n_turns,
            command.may_prefill,
            self._announce_again,
            self._mailbox.cancel,
        )
        self._saver.after_rewind(conversation)
        self._replace(conversation, report, report.seconds)
        self._files.rewound(len(conversation.transcript), restores=command.with_files)

    def _announce_again(self, n_tokens: int) -> Progress:
        self._stream.emit(PhaseChanged(Phase.PREFILL, "reading again"))
        return prefill_reporter(self._stream, n_tokens)

    def _new(self) -> None:
        self._saver.before_another(self._conversation)
        self._begin()

    def _list(self) -> None:
        fingerprint = self._engine.info.fingerprint if self._engine is not None else ""
        self._stream.emit(session_list(self._store, fingerprint))
        if self._store is not None and self._store.damaged:
            names = ", ".join(damaged.path.name for damaged in self._store.damaged)
            self._stream.emit(Notice(f"Left out because they cannot be read: {names}", "warning"))

    def _edit_permissions(self, action: str, rule: str) -> None:
        if self._equipment is None:
            raise Ds4Error("there is no model, so there are no rules to change")
        if action:
            self._equipment.policy.edit(action, rule)
        self._stream.emit(PermissionList(self._equipment.policy.entries()))

    def _release(self) -> None:
        if self._archive is not None:
            self._archive.close()
        if self._equipment is not None:
            self._equipment.close()
        if self._files is not None:
            self._files.close()
        if self._engine is not None:
            self._engine.close()
