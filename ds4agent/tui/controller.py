"""Translate worker events into widget calls. The only place that knows both sides."""

import time

from textual.app import App
from textual.widget import Widget

from ds4agent import sayings
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
    SessionPreview,
    SessionsFound,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallReady,
    ToolCallStarted,
    ToolFinished,
    ToolOutput,
    TrustDecided,
    TrustNeeded,
    TurnEnded,
    TurnStarted,
)
from ds4agent.screen_rules import BUSY, TakingBack
from ds4agent.tui.plain import count
from ds4agent.tui.widgets.answer import Answer
from ds4agent.tui.widgets.approval import ApprovalPanel
from ds4agent.tui.widgets.composer import Composer
from ds4agent.tui.widgets.diff_block import DiffBlock
from ds4agent.tui.widgets.history import recipes
from ds4agent.tui.widgets.notice import NoticeLine
from ds4agent.tui.widgets.queue_preview import QueuePreview
from ds4agent.tui.widgets.status_line import StatusLine
from ds4agent.tui.widgets.thinking import ThinkingBlock
from ds4agent.tui.widgets.tool_card import Call, CallState, ToolCard
from ds4agent.tui.widgets.transcript import Transcript
from ds4agent.tui.widgets.user_message import UserMessage


class Controller:
    """Keeps what the screen must know of the worker, and applies batches of its events."""

    def __init__(self, app: App[int]) -> None:
        self._app = app
        self._transcript = app.query_one(Transcript)
        self._status = app.query_one(StatusLine)
        self._queue = app.query_one(QueuePreview)
        self._approval = app.query_one(ApprovalPanel)
        self._composer = app.query_one(Composer)
        self._stream: Answer | ThinkingBlock | None = None  # what the model writes right now
        self._cards: dict[str, ToolCard] = {}  # calls of the running turn
        self._turn_began = 0.0  # time.monotonic(), seconds
        self._taking_back = TakingBack()
        self.phase = Phase.LOADING
        self.session_id = ""
        self.resume_id = ""
        self.is_closed = False
        self.has_failed = False

    @property
    def is_running(self) -> bool:
        """True while there is something to interrupt."""
        return self.phase in BUSY or self._turn_began > 0

    def take_back(self, text: str = "") -> bool:
        """Remember that a queued message was asked for, "" the newest; see ``QueueChanged``.

        False when there is none: it was delivered between the key and this call.
        """
        return self._taking_back.ask(self._queue.texts, text)

    async def say(self, text: str, level: str = "info") -> None:
        """Show a line that is no part of the conversation."""
        await self._add(NoticeLine(text, level))

    async def apply(self, events: list[Event]) -> None:
        """Show a batch of events, in order."""
        for event in events:
            self._app.record.take(event)
            await self._apply(event)

    async def _apply(self, event: Event) -> None:
        status = self._status.status
        match event:
            case TextDelta(text):
                await self._text(text)
            case ThinkingDelta(text):
                await self._thinking(text)
            case GenerationProgress():
                status.generated = event.generated
                status.tokens_per_s = event.tokens_per_s
                status.context_tokens = event.context_tokens
            case PrefillProgress():
                status.done, status.total = event.done, event.total
                status.tokens_per_s = event.tokens_per_s
            case LoadProgress():
                status.done, status.total = event.done_bytes, event.total_bytes
            case PhaseChanged():
                self._phase_changed(event)
            case Ready():
                await self._ready(event)
            case TurnStarted():
                await self._turn_started(event)
            case MessageDelivered(text):
                await self._delivered(text)
            case TurnEnded():
                await self._turn_ended(event)
            case ApprovalNeeded():
                self._ask(event)
            case MalformedCall():
                await self._malformed(event)
            case Notice():
                await self.say(event.text, event.level)
            case QueueChanged():
                self._queue_changed(event)
            case Saved():
                await self._saved(event)
            case TrustNeeded():
                self._app.ask_for_trust(event)
            case TrustDecided(trusted=True):
                await self._app.folder_is_trusted()
            case SessionPreview():
                self._app.show_preview(event)
            case SessionsFound():
                self._app.show_found(event)
            case SessionList():
                self._pick_session(event)
            case Compacted():
                status.context_tokens = event.tokens_after
                await self.say(sayings.compacted_lines(event))
            case FilesRestored():
                await self.say(sayings.restored_lines(event))
            case DiffShown(diff):
                await self._add(DiffBlock(diff))
            case PermissionList():
                self._app.show_permissions(event.entries)
            case ModeChanged(mode):
                status.mode = mode
            case Closed():
                self.is_closed = True
                self.resume_id = event.resume_id
                self._app.exit(1 if self.has_failed else 0)
            case _:
                await self._tool_event(event)
        self._status.changed()

    # --- the model's text ------------------------------------------------------------------------

    async def _text(self, text: str) -> None:
        stream = self._stream
        if not isinstance(stream, Answer):
            text = text.lstrip()
            if not text:
                return
            self._end_stream()
            self._stream = stream = Answer()
            await self._add(stream)  # a notice may come meanwhile, and end the stream
        stream.append_text(text)

    async def _thinking(self, text: str) -> None:
        stream = self._stream
        if not isinstance(stream, ThinkingBlock):
            if not text.strip():
                return
            self._end_stream()
            self._stream = stream = ThinkingBlock()
            await self._add(stream)
        stream.append_text(text)

    def _end_stream(self) -> None:
        if isinstance(self._stream, ThinkingBlock):
            self._stream.finish()
        self._stream = None

    # --- tool calls ------------------------------------------------------------------------------

    async def _tool_event(self, event: Event) -> None:
        match event:
            case ToolCallStarted():
                self._end_stream()
                await self._card(event.call_id, event.name)
            case ToolCallDelta():
                (await self._card(event.call_id)).append_arguments(event.text)
            case ToolCallReady():
                card = await self._card(event.call_id, event.name)
                card.set_ready(event.name, event.arguments, event.title, event.diff)
            case ToolOutput():
                (await self._card(event.call_id)).append_output(event.text)
            case ToolFinished():
                self._approval_over(event.call_id)
                card = await self._card(event.call_id, event.name)
                card.finish(
                    event.ok, event.title, event.text, event.diff, event.exit_code, event.seconds
                )

    async def _card(self, call_id: str, name: str = "call") -> ToolCard:
        if call_id not in self._cards:
            self._cards[call_id] = ToolCard(Call(call_id, name))
            await self._add(self._cards[call_id])
        return self._cards[call_id]

    async def _malformed(self, event: MalformedCall) -> None:
        # It has no id: it is the call that was begun last, unless the text was no call at all.
        cards = [c for c in self._cards.values() if c.call.state is CallState.WRITING]
        if cards:
            card = cards[-1]
        else:
            card = await self._card(f"malformed-{len(self._cards)}")
        card.call.arguments = ""
        text = f"{event.reason}\n{event.raw}".strip()
        card.finish(False, f"{card.call.name}: a call that can't run", text, "", None, 0.0)

    def _ask(self, event: ApprovalNeeded) -> None:
        self._approval.ask(event)
        self._app.notifier.asked(self._app.app_focus, event.title)

    def answered(self, call_id: str, approved: bool) -> None:
        """The person answered: the keyboard goes back to the composer."""
        card = self._cards.get(call_id)
        if card is not None and approved:
            card.set_state(CallState.RUNNING)
        self._composer.focus()

    def _approval_over(self, call_id: str = "") -> None:
        was_asking = self._approval.is_asking
        self._approval.dismiss_question(call_id)
        if was_asking and not self._approval.is_asking:
            self._composer.focus()

    # --- turns and conversations -----------------------------------------------------------------

    def _phase_changed(self, event: PhaseChanged) -> None:
        self.phase = event.phase
        self.has_failed = self.has_failed or event.phase is Phase.FAILED
        self._status.set_phase(event.phase, event.detail)
        if event.phase is Phase.TOOL:
            waiting = [c for c in self._cards.values() if c.call.state is CallState.WAITING]
            if waiting:
                waiting[0].set_state(CallState.RUNNING)
        if event.phase not in (Phase.APPROVAL, Phase.TOOL):
            self._approval_over()

    async def _ready(self, event: Ready) -> None:
        self.session_id = event.session_id
        status = self._status.status
        status.model, status.quant, status.device = event.model, event.quant, event.device
        status.sandbox, status.mode = event.sandbox, event.mode
        status.context_tokens, status.context_size = event.context_tokens, event.context_size
        self._composer.show_title(self._app.record.title)
        self._status.changed()
        self._cards.clear()
        self._stream = None
        self._turn_began = 0.0
        await self._transcript.show_history(recipes(event.history))
        for entry in event.history:
            if entry.role == "user":
                self._composer.remember(entry.text)
        await self.say(sayings.ready_line(event))
        if event.sandbox.startswith("off"):
            reason = event.sandbox.partition(":")[2].strip() or "none is available"
            await self.say(f"No sandbox: {reason}", "warning")

    async def _turn_started(self, event: TurnStarted) -> None:
        self._end_stream()
        self._composer.show_title(self._app.record.title)
        if self._turn_began == 0.0:
            self._cards.clear()
            self._turn_began = time.monotonic()
        if event.text:
            await self._delivered(event.text)

    async def _delivered(self, text: str) -> None:
        wanted = self._taking_back.was_delivered(text)
        if wanted and self._composer.text == wanted:
            self._composer.set_text("")  # it was delivered before it could be taken back
        await self._add(UserMessage(text))

    async def _turn_ended(self, event: TurnEnded) -> None:
        self._end_stream()
        self._approval_over()
        await self._transcript.trim()
        self.session_id = event.session_id or self.session_id
        for card in self._cards.values():
            if card.call.state in (CallState.WRITING, CallState.WAITING, CallState.RUNNING):
                card.finish(False, "", "not executed", "", None, 0.0)
        status = self._status.status
        status.context_tokens = event.usage.context_tokens or status.context_tokens
        status.context_size = event.usage.context_size or status.context_size
        took_s = time.monotonic() - self._turn_began if self._turn_began else 0.0
        self._turn_began = 0.0
        match event.outcome:
            case Outcome.DONE:
                await self.say(sayings.usage_line(event, took_s))
            case Outcome.INTERRUPTED:
                await self.say("Interrupted", "warning")
            case Outcome.LIMIT:
                await self.say(event.error or "Stopped at a limit before the end", "warning")
            case _:
                await self.say(event.error or f"The turn ended: {event.outcome.value}", "error")
        self._app.notifier.turn_ended(took_s, self._app.app_focus, self._app.record.title)

    def _queue_changed(self, event: QueueChanged) -> None:
        wanted = self._taking_back.came_back(self._queue.texts, event.texts)
        self._queue.show(event.texts)
        self._composer.has_queue = bool(event.texts)
        self._status.status.n_queued = len(event.texts)
        if wanted and not self._composer.text:
            self._composer.set_text(wanted)

    async def _saved(self, event: Saved) -> None:
        self.session_id = event.session_id
        if not event.automatic:
            size = f"{event.file_bytes / 1e6:,.1f} MB"
            short = event.session_id[:8]
            await self.say(f"Saved {short}: {count(event.tokens, 'token')}, {size}")

    def _pick_session(self, event: SessionList) -> None:
        from ds4agent.tui.widgets.session_picker import SessionPicker  # few starts need it

        if isinstance(self._app.screen, SessionPicker):
            return
        picker = SessionPicker(event.sessions, self.session_id)
        self._app.push_screen(picker, self._app.load_session)

    async def _add(self, block: Widget) -> None:
        if not isinstance(block, Answer | ThinkingBlock):
            self._end_stream()
        await self._transcript.add(block)
