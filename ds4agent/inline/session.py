"""The inline mode without a terminal: what each event prints, and what each line does."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from ds4agent import sayings
from ds4agent.commands import CommandTable
from ds4agent.errors import UsageError, explain
from ds4agent.events import (
    ApprovalNeeded,
    Closed,
    Compacted,
    DiffShown,
    Event,
    FilesRestored,
    GenerationProgress,
    LoadProgress,
    MalformedCall,
    MessageDelivered,
    ModeChanged,
    Notice,
    Outcome,
    PermissionList,
    Phase,
    PhaseChanged,
    PrefillProgress,
    QueueChanged,
    Ready,
    Saved,
    SessionList,
    TextDelta,
    ThinkingDelta,
    ToolCallReady,
    ToolFinished,
    TrustNeeded,
    TurnEnded,
    TurnStarted,
)
from ds4agent.inline.paper import Paper
from ds4agent.late_worker import Worker
from ds4agent.readable import age, count, one_line, short_count, visible
from ds4agent.record.record import Record
from ds4agent.requests import Answer, Mode, Quit, SetMode, Submit, TakeBackQueued, Trust
from ds4agent.screen_requests import Copy, Export, ScreenRequest, ShowHelp, TellMode, What
from ds4agent.screen_rules import (
    BUSY,
    GUARD_S,
    QUIT_AGAIN_S,
    TakingBack,
    next_mode,
    text_to_copy,
)

_HISTORY_SHOWN = 12  # entries of an opened conversation
_LISTED = 15  # saved conversations
_KEYS = (
    ("Enter", "send; while the model is busy: queue"),
    ("Up, Down", "what was sent; Up on an empty line takes a queued message back"),
    ("Tab", "take the suggestion: a command, its argument, a file behind @"),
    ("Shift+Tab", "next mode: plan, ask, auto"),
    ("Ctrl+C", "interrupt, else clear the line, else quit (twice)"),
    ("Ctrl+D", "save and quit, on an empty line"),
)


class InlineSession:
    """Knows the worker and the paper; the line editors only hand over lines and keys.

    Events and lines come from different threads; one lock keeps what is printed whole.
    """

    def __init__(
        self,
        worker: Worker,
        paper: Paper,
        commands: CommandTable,
        *,
        copy: Callable[[str], bool] = lambda text: False,
        edit: Callable[[str, str], object] = lambda text, instead_of: None,
        on_trusted: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            worker: started by whoever follows its events.
            paper: what is printed on.
            commands: what a slash knows.
            copy: puts a text on the clipboard; False where there is none.
            edit: puts a text into the line, if its second argument is what stands there.
            on_trusted: called when the folder is trusted.
        """
        self._worker = worker
        self._paper = paper
        self._commands = commands
        self._copy = copy
        self._edit = edit
        self._taking_back = TakingBack()
        self._on_trusted = on_trusted
        self._lock = threading.RLock()
        self._question: ApprovalNeeded | TrustNeeded | None = None
        self._asked_at = 0.0  # time.monotonic(), seconds
        self._quit_armed_at = 0.0
        self._is_quitting = False
        self._is_in_turn = False
        self._progress = ""
        self._queued: tuple[str, ...] = ()
        self._mode: Mode | None = None
        self._model = ""
        self._began = 0.0
        self._typed: list[str] = []  # messages that stand on the terminal as they were typed
        self.phase = Phase.LOADING
        self.record = Record()
        self.has_failed = False
        self.is_closed = False
        self.resume_id = ""

    @property
    def is_running(self) -> bool:
        """True while there is something to interrupt."""
        return self._is_in_turn or self.phase in BUSY

    @property
    def is_asking(self) -> bool:
        """True while the next line answers a question."""
        return self._question is not None

    @property
    def n_queued(self) -> int:
        """How many messages wait for the model."""
        return len(self._queued)

    def folder(self) -> Path:
        """The folder that the agent works in."""
        return Path(self.record.cwd or ".")

    @property
    def prompt(self) -> str:
        """What stands in front of the line."""
        match self._question:
            case ApprovalNeeded():
                return "[y]es, [a]lways, [n]o REASON: "
            case TrustNeeded():
                return "[y]es, [n]o, Enter: not this time: "
        return "> "

    def status(self) -> str:
        """Return one line on what is going on."""
        parts = [self._mode.value if self._mode else "", one_line(self._model)]
        doing = "ready" if self.phase is Phase.IDLE else self.phase.value
        parts.append(f"{doing} {self._progress}".strip())
        if self._queued:
            parts.append(f"{self.n_queued} queued")
        if self._quit_armed_at and time.monotonic() - self._quit_armed_at < QUIT_AGAIN_S:
            parts.append("Ctrl+C again to quit")
        tail = one_line(self._paper.unfinished[-400:])
        return " · ".join([part for part in (*parts, tail) if part])

    # --- from the line editor --------------------------------------------------------------------

    def typed(self, line: str) -> None:
        """A line was entered."""
        with self._lock:
            is_meant = time.monotonic() - self._asked_at >= GUARD_S
            if self._question is not None and is_meant:
                self._answer(line.strip())
            elif line.startswith("/"):
                self._command(line)
            elif line.strip():
                self._typed.append(line.strip())
                self._worker.send(Submit(line.strip()))

    def ctrl_c(self, has_text: bool = False) -> bool:
        """Interrupt, or quit at the second press; False when the line is to be cleared."""
        if self.is_running and not self._is_quitting:
            self._worker.interrupt()
        elif has_text:
            return False
        elif time.monotonic() - self._quit_armed_at < QUIT_AGAIN_S:
            self.quit()
        else:
            self._quit_armed_at = time.monotonic()
            with self._lock:
                self._paper.notice("Ctrl+C again to quit")
        return True

    def quit(self) -> None:
        """Save and end."""
        self._is_quitting = True
        self._worker.send(Quit())

    def take_back(self) -> None:
        """Up on an empty line: the newest queued message comes back to be edited."""
        if self._taking_back.ask(self._queued):
            self._worker.send(TakeBackQueued())

    def next_mode(self) -> None:
        """Shift+Tab: the next of plan, ask and auto."""
        self._worker.send(SetMode(next_mode(self._mode)))

    def _answer(self, line: str) -> None:
        word, _, reason = line.partition(" ")
        question = self._question
        word = word.lower()
        if isinstance(question, TrustNeeded):
            answers = {"y": Trust(True), "yes": Trust(True), "n": Trust(False), "no": Trust(False)}
            answer = answers.get(word) if word else Trust(False, is_remembered=False)
            if answer is None:
                self._paper.notice("Answer y or n, or press Enter for not this time.", "warning")
                return
            self._question = None
            self._worker.send(answer)
            return
        assert isinstance(question, ApprovalNeeded)
        if word not in ("y", "yes", "a", "always", "n", "no"):
            self._paper.notice("Answer y, a or n; a reason may stand behind n.", "warning")
            return
        self._question = None
        is_yes = word[0] in "ya"
        self._worker.send(
            Answer(question.call_id, is_yes, word[0] == "a", "" if is_yes else reason.strip())
        )

    def _command(self, line: str) -> None:
        try:
            asked = self._commands.parse(line, is_busy=self.is_running)[1]
            if isinstance(asked, ScreenRequest):
                self._obey(asked)
            elif isinstance(asked, Quit):
                self.quit()
            else:
                self._worker.send(asked)
        except UsageError as refused:
            self._paper.notice(explain(refused), "warning")

    def _obey(self, request: ScreenRequest) -> None:
        match request:
            case ShowHelp():
                width = max(len(key) for key, _ in _KEYS)
                keys = "\n".join(f"{key:{width}}  {text}" for key, text in _KEYS)
                self._paper.line(f"{self._commands.help_text()}\n\n{keys}")
            case TellMode():
                self._paper.notice(f"The mode is {self._mode.value if self._mode else 'unknown'}.")
            case Copy(what):
                self._copy_to_clipboard(what)
            case Export(path):
                from ds4agent.record.export import export

                written = export(self.record, path, self.folder())
                self._paper.notice(f"Wrote {one_line(str(written))}")
            case _:
                raise UsageError(
                    "that belongs to the full screen", "Start without --inline for it."
                )

    def _copy_to_clipboard(self, what: What) -> None:
        text, name = text_to_copy(self.record, what)
        if not self._copy(text):
            raise UsageError("this terminal has no clipboard", "/export writes a file.")
        self._paper.notice(f"Copied the {name}: {count(len(text), 'character')}")

    # --- from the worker -------------------------------------------------------------------------

    def take(self, event: Event) -> None:
        """Print an event."""
        with self._lock:
            self.record.take(event)
            self._take(event)

    def _take(self, event: Event) -> None:
        paper = self._paper
        match event:
            case TextDelta(text):
                paper.text(text)
            case ThinkingDelta(text):
                paper.think(text)
            case GenerationProgress():
                self._progress = f"{event.generated:,} tokens {event.tokens_per_s:.1f} tok/s"
            case PrefillProgress():
                self._progress = f"{event.done:,}/{event.total:,} {event.tokens_per_s:.0f} tok/s"
            case LoadProgress():
                self._progress = f"{event.done_bytes / 1e9:.1f}/{event.total_bytes / 1e9:.1f} GB"
            case PhaseChanged():
                self._phase_changed(event)
            case Ready():
                self._ready(event)
            case TurnStarted(text):
                self._is_in_turn = True
                self._began = time.monotonic()
                self._delivered(text)
            case MessageDelivered(text):
                self._delivered(text)
            case TurnEnded():
                self._turn_ended(event)
            case ApprovalNeeded():
                self._ask(event)
            case TrustNeeded():
                brings = ", ".join(one_line(name) for name in event.brings)
                paper.line(f"? {one_line(event.folder)} brings {brings}. Use it?", "bold")
                self._asked(event)
            case ToolCallReady():
                paper.call(event.name, event.title)
            case ToolFinished():
                self._question = None
                paper.finished(event)
            case MalformedCall():
                paper.notice(f"a call that can't run: {event.reason}", "warning")
                paper.output(event.raw)
            case Closed():
                paper.end_text()
                self.is_closed, self.resume_id = True, event.resume_id
            case _:
                self._told(event)

    def _told(self, event: Event) -> None:
        paper = self._paper
        match event:
            case Notice():
                paper.notice(event.text, event.level)
            case QueueChanged(texts):
                self._queue_changed(texts)
            case Saved() if not event.automatic:
                paper.notice(f"Saved {event.session_id[:8]}: {count(event.tokens, 'token')}")
            case SessionList():
                self._list(event)
            case Compacted():
                paper.notice(sayings.compacted_lines(event))
            case FilesRestored():
                paper.notice(sayings.restored_lines(event))
            case DiffShown(diff):
                paper.diff(diff)
            case PermissionList():
                paper.notice(sayings.permission_lines(event))
            case ModeChanged(mode):
                self._mode = mode
                paper.notice(f"The mode is {mode.value}.")
            case _ if type(event).__name__ == "TrustDecided" and event.trusted:
                self._on_trusted()

    def _queue_changed(self, texts: tuple[str, ...]) -> None:
        before, self._queued = self._queued, texts
        if len(texts) > len(before):
            self._paper.notice(f"queued: {one_line(texts[-1])}")
        if back := self._taking_back.came_back(before, texts):
            self._paper.notice(f"taken back: {one_line(back)}")
            self._edit(back, "")

    def _delivered(self, text: str) -> None:
        """Print a message, unless it is what was typed just above."""
        if wanted := self._taking_back.was_delivered(text):
            self._edit("", wanted)  # it was delivered before it could be taken back
        if self._typed[-1:] != [text] or self._queued:
            self._paper.message(text)
        self._typed.clear()

    def _phase_changed(self, event: PhaseChanged) -> None:
        self.phase, self._progress = event.phase, one_line(event.detail)
        self.has_failed = self.has_failed or event.phase is Phase.FAILED
        if event.phase not in (Phase.APPROVAL, Phase.TOOL, Phase.LOADING):
            self._question = None

    def _ready(self, event: Ready) -> None:
        self._mode, self._model = event.mode, f"{event.model} {event.quant}".strip()
        self._is_in_turn, self._question = False, None
        self._paper.history(event.history, _HISTORY_SHOWN)
        self._paper.notice(
            f"{one_line(event.model)} {event.quant} {event.device} · {event.mode.value} · "
            f"{short_count(event.context_tokens)}/{short_count(event.context_size)} tokens"
        )
        self._paper.notice(sayings.ready_line(event))
        if event.sandbox.startswith("off"):
            reason = event.sandbox.partition(":")[2].strip() or "none is available"
            self._paper.notice(f"No sandbox: {reason}", "warning")

    def _ask(self, event: ApprovalNeeded) -> None:
        mark = "!" if event.risky else "?"
        title = one_line(visible(event.title)) or event.name
        self._paper.line(f"{mark} Allow {title}?", "bold yellow" if event.risky else "bold")
        if event.detail:
            self._paper.line("\n".join(f"  {row}" for row in visible(event.detail).split("\n")))
        if event.diff:
            self._paper.diff(visible(event.diff))
        if event.rule:
            self._paper.notice(f"always means: {one_line(visible(event.rule))}")
        self._asked(event)

    def _asked(self, question: ApprovalNeeded | TrustNeeded) -> None:
        self._question = question
        self._asked_at = time.monotonic()

    def _turn_ended(self, event: TurnEnded) -> None:
        self._is_in_turn, self._question = False, None
        self._paper.end_text()
        match event.outcome:
            case Outcome.DONE:
                took_s = time.monotonic() - self._began
                self._paper.notice(sayings.usage_line(event, took_s))
            case Outcome.INTERRUPTED:
                self._paper.notice("Interrupted", "warning")
            case Outcome.LIMIT:
                self._paper.notice(event.error or "Stopped at a limit before the end", "warning")
            case outcome:
                self._paper.notice(event.error or f"The turn ended: {outcome.value}", "error")

    def _list(self, event: SessionList) -> None:
        if not event.sessions:
            self._paper.notice("There are no saved conversations.")
            return
        now = time.time()
        for session in event.sessions[:_LISTED]:
            facts = f"{age(now - session.last_used):>4} {short_count(session.tokens):>6}"
            self._paper.line(f"{session.id[:8]} {facts}  {one_line(session.title)[:60]}")
        self._paper.notice("/load ID opens one")
