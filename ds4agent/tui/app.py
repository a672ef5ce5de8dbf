"""The screen as a whole: what it is composed of, and which key does what."""

import contextlib
import queue
import time
from collections.abc import Callable, Sequence

from textual import events, work
from textual.actions import SkipAction
from textual.app import ComposeResult, ScreenStackError
from textual.binding import Binding
from textual.timer import Timer

from ds4agent.commands import CommandTable
from ds4agent.config import Config
from ds4agent.ending import SAVE_WAIT_S, Ending
from ds4agent.errors import UsageError, explain
from ds4agent.events import Closed, Phase, TrustNeeded
from ds4agent.requests import Answer, Load, Quit, SetMode, Submit, TakeBackQueued
from ds4agent.screen_requests import ScreenRequest
from ds4agent.screen_rules import QUIT_AGAIN_S, next_mode
from ds4agent.tui import theme
from ds4agent.tui.controller import Controller
from ds4agent.tui.feed import REMOTE_REPAINT_S, REPAINT_S, EventFeed, Worker
from ds4agent.tui.own_commands import ScreenCommands
from ds4agent.tui.plain import one_line
from ds4agent.tui.slash import interpret
from ds4agent.tui.widgets.answer import Answer as AnswerBlock
from ds4agent.tui.widgets.approval import ApprovalPanel
from ds4agent.tui.widgets.composer import Composer
from ds4agent.tui.widgets.queue_preview import QueuePreview
from ds4agent.tui.widgets.status_line import StatusLine
from ds4agent.tui.widgets.suggestions import Suggestions
from ds4agent.tui.widgets.transcript import Transcript

_REPAINT_AFTER_S = 0.4  # tmux tells a new size up to 0.25 s after it holds


class AgentApp(ScreenCommands):
    """Composes the widgets, binds the keys, and turns both into commands for the worker."""

    CSS_PATH = "app.tcss"
    TITLE = "ds4-agent"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [
        Binding("ctrl+c", "stop_or_quit", "Copy, interrupt, clear or quit", priority=True),
        Binding("ctrl+q", "quit", "Quit", priority=True),
        Binding("shift+tab", "cycle_mode", "Next mode", priority=True),
        Binding("ctrl+o", "toggle_folds", "Open or fold the last turn", priority=True),
        Binding("escape", "interrupt", "Interrupt"),
        Binding("ctrl+up", "show_earlier", "Earlier messages", priority=True),
        Binding("pageup", "page(-1)", "Scroll up"),
        Binding("pagedown", "page(1)", "Scroll down"),
        Binding("ctrl+end", "follow", "Go to the end", priority=True),
        Binding("ctrl+z", "suspend_process", "Suspend", priority=True),
    ]

    def __init__(
        self,
        worker: Worker,
        *,
        no_animation: bool = False,
        commands: CommandTable | None = None,
        notes: Sequence[str] = (),
        on_trusted: Callable[[], Sequence[str]] = tuple,
        config: Config | None = None,
    ) -> None:
        super().__init__(config)
        self._on_trusted = on_trusted
        self._worker = worker
        self._commands = commands or CommandTable()
        self._notes = tuple(notes)
        self._quit_armed_at = 0.0
        self._is_quitting = False
        self._repaint: Timer | None = None
        self.is_started = False
        self.controller: Controller
        if no_animation:
            self.animation_level = "none"

    @property
    def resume_id(self) -> str:
        """The id of the saved conversation, known once the worker has closed."""
        return self.controller.resume_id if self.is_started else ""

    @property
    def is_closed(self) -> bool:
        """True when nothing is left to save: the worker has ended, or never ran."""
        return not self.is_started or self.controller.is_closed

    def compose(self) -> ComposeResult:
        suggestions = Suggestions()
        yield Transcript()
        yield ApprovalPanel()
        yield QueuePreview()
        yield suggestions
        yield self.new_composer(suggestions)
        yield StatusLine()

    def on_mount(self) -> None:
        self.controller = Controller(self)
        self._composer.focus()
        # The first paint comes before anything heavy: the worker starts when it is on screen.
        self.call_after_refresh(self._start_worker)

    def on_resize(self) -> None:
        """Draw everything again a moment after the last change of size.

        A multiplexer changes its grid before it tells: what is drawn in between lands anywhere.
        """
        if self._repaint is not None:
            self._repaint.stop()
        self._repaint = self.set_timer(_REPAINT_AFTER_S, self._repaint_all)

    def _repaint_all(self) -> None:
        with contextlib.suppress(ScreenStackError):  # it may have closed meanwhile
            self.screen.refresh()

    async def _start_worker(self) -> None:
        self.is_started = True
        for note in self._notes:
            await self.controller.say(note, "warning")
        self._worker.start()
        self._follow_worker()

    @work(exclusive=True)
    async def _follow_worker(self) -> None:
        repaint_s = REMOTE_REPAINT_S if theme.is_remote() else REPAINT_S
        await EventFeed(self._worker.events, self.controller.apply, repaint_s).run()

    # --- widgets ---------------------------------------------------------------------------------

    @property
    def _composer(self) -> Composer:
        return self.screen_stack[0].query_one(Composer)

    @property
    def _transcript(self) -> Transcript:
        return self.screen_stack[0].query_one(Transcript)

    @property
    def _status_line(self) -> StatusLine:
        return self.screen_stack[0].query_one(StatusLine)

    def _show_hint(self, hint: str) -> None:
        self._status_line.status.hint = hint
        self._status_line.changed()

    # --- the composer ----------------------------------------------------------------------------

    async def on_composer_submitted(self, event: Composer.Submitted) -> None:
        if event.text.startswith("!"):
            await self.run_own_command(self._composer.take())
            return
        if not event.text.startswith("/"):
            self._worker.send(Submit(self._composer.take().strip()))
            self._transcript.follow()
            return
        try:
            action = interpret(event.text, self._commands, is_busy=self.controller.is_running)
        except UsageError as refused:
            await self.controller.say(explain(refused), "warning")  # the text stays for editing
            return
        await self.controller.say(one_line(self._composer.take()))
        match action:
            case _ if isinstance(action, ScreenRequest):
                await self.obey(action)
            case Quit():
                self.action_quit_now()
            case command:
                self._worker.send(command)
        self._transcript.follow()

    def on_composer_take_back_asked(self) -> None:
        if self.controller.take_back():
            self._worker.send(TakeBackQueued())

    def on_composer_quit_asked(self) -> None:
        self.action_quit_now()

    def on_composer_page_scrolled(self, event: Composer.PageScrolled) -> None:
        self.action_page(event.direction)

    def on_composer_end_asked(self) -> None:
        self._transcript.follow()

    def on_key(self, event: events.Key) -> None:
        # Typing while a card has the focus goes on in the composer.
        is_text = event.character is not None and event.is_printable
        if is_text and len(self.screen_stack) == 1 and not self._composer.has_focus:
            self._composer.focus()
            self._composer.insert(event.character or "")

    # --- approval --------------------------------------------------------------------------------

    def on_approval_panel_answered(self, event: ApprovalPanel.Answered) -> None:
        self._worker.send(Answer(event.call_id, event.approved, event.always, event.reason))
        self.controller.answered(event.call_id, event.approved)

    def on_approval_panel_typed_ahead(self, event: ApprovalPanel.TypedAhead) -> None:
        self._composer.insert(event.character)

    def on_approval_panel_interrupt_asked(self) -> None:
        self._worker.interrupt()

    # --- trust -----------------------------------------------------------------------------------

    def ask_for_trust(self, question: TrustNeeded) -> None:
        """Ask whether what the folder brings takes effect."""
        from ds4agent.tui.widgets.trust_dialog import NOT_NOW, TrustDialog  # few starts need it

        dialog = TrustDialog(question, self._composer.insert)
        self.push_screen(dialog, lambda answer: self._worker.send(answer or NOT_NOW))

    async def folder_is_trusted(self) -> None:
        """Know the folder's own commands from now on."""
        for note in self._on_trusted():
            await self.controller.say(note, "warning")

    # --- the transcript --------------------------------------------------------------------------

    def on_transcript_unseen(self, event: Transcript.Unseen) -> None:
        self._status_line.status.n_unseen = event.n_blocks
        self._status_line.changed()

    async def on_answer_link_shown(self, event: AnswerBlock.LinkShown) -> None:
        await self.controller.say(f"The link leads to {one_line(event.href)}")

    # --- actions ---------------------------------------------------------------------------------

    def action_stop_or_quit(self) -> None:
        """Ctrl+C: the first of copy, interrupt, clear, quit that applies; never two of them."""
        if len(self.screen_stack) > 1:
            raise SkipAction()  # an open list closes
        selected = self._composer.selected_text or self.screen.get_selected_text()
        if selected:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
        elif self.stop_own_command():
            pass
        elif self.controller.is_running and not self._is_quitting:
            self._worker.interrupt()
        elif self._composer.text:
            self._composer.take()
        elif time.monotonic() - self._quit_armed_at < QUIT_AGAIN_S:
            self.action_quit_now()
        else:
            self._quit_armed_at = time.monotonic()
            is_loading = self.controller.phase is Phase.LOADING
            what = "stop loading and quit" if is_loading else "quit"
            self._show_hint(f"Ctrl+C again to {what}")
            self.set_timer(QUIT_AGAIN_S, self._disarm)

    def _disarm(self) -> None:
        if not self._is_quitting:
            self._show_hint("")

    async def action_quit(self) -> None:
        self.action_quit_now()

    def action_quit_now(self) -> None:
        """Ask the worker to save and end; a second time, leave without waiting for it."""
        if self._is_quitting:
            self.exit(1 if self.controller.has_failed else 0)
            return
        self._is_quitting = True
        self.stop_own_command()
        is_loading = self.controller.phase is Phase.LOADING
        doing = "stopping to load" if is_loading else "saving"
        self._show_hint(f"{doing} · quit again to leave at once")
        self._worker.send(Quit())

    def action_interrupt(self) -> None:
        if self.stop_own_command():
            pass
        elif self.controller.is_running:
            self._worker.interrupt()
        elif not self._composer.has_focus:
            self._composer.focus()

    def action_cycle_mode(self) -> None:
        mode = self._status_line.status.mode
        self._worker.send(SetMode(next_mode(mode)))

    def action_toggle_folds(self) -> None:
        if not (self._composer.has_focus and self._composer.unfold()):
            self._transcript.toggle_folds()

    async def action_show_earlier(self) -> None:
        await self._transcript.show_earlier()

    def action_page(self, direction: int) -> None:
        scroll = self._transcript.scroll_page_up if direction < 0 else None
        (scroll or self._transcript.scroll_page_down)(animate=False)

    def action_follow(self) -> None:
        self._transcript.follow()

    def load_session(self, session_id: str | None) -> None:
        """Open what the picker returned."""
        if session_id:
            self._worker.send(Load(session_id))


def run_tui(
    worker: Worker,
    *,
    no_animation: bool = False,
    commands: CommandTable | None = None,
    notes: Sequence[str] = (),
    on_closed: Callable[[str], None] | None = None,
    on_trusted: Callable[[], Sequence[str]] = tuple,
    config: Config | None = None,
) -> int:
    """Show the screen until the person quits. Prints nothing.

    Args:
        worker: not started yet; it is started once the first paint is done.
        no_animation: nothing glides.
        commands: what a slash knows; None: the program's own.
        notes: lines that are shown first.
        on_closed: called with the id of the saved conversation, "" when there is none.
        on_trusted: called when the person trusts the folder; adds its commands to ``commands`` and
            returns lines to show.
        config: the settings in force; None: the built-in ones.

    Returns:
        The exit code: 0, or 1 when the model could not be loaded or the screen failed.
    """
    app = AgentApp(
        worker,
        no_animation=no_animation,
        commands=commands,
        notes=notes,
        on_trusted=on_trusted,
        config=config,
    )
    with Ending(worker):
        try:
            code = app.run(mouse=app.has_mouse)
        finally:
            # However the screen ended, the conversation is saved before the program ends.
            resume_id = app.resume_id if app.is_closed else _close(worker)
    if on_closed is not None:
        on_closed(resume_id)
    return app.return_code or 0 if code is None else code


def _close(worker: Worker) -> str:
    """End a worker that the screen left behind; return the id of the saved conversation."""
    worker.interrupt()
    worker.send(Quit())
    deadline = time.monotonic() + SAVE_WAIT_S
    with contextlib.suppress(queue.Empty):
        while (left_s := deadline - time.monotonic()) > 0:
            event = worker.events.get(timeout=left_s)
            if isinstance(event, Closed):
                return event.resume_id
    return ""
