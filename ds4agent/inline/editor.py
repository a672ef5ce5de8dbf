"""The live line at the bottom, by prompt-toolkit; everything printed goes above it."""

import asyncio
import base64
import contextlib
import sys
import threading
from collections.abc import Callable, Iterable

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import to_plain_text
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

from ds4agent.commands import CommandTable
from ds4agent.completion.file_index import FileIndex
from ds4agent.completion.suggest import Completer as Sources
from ds4agent.completion.suggest import mention_at
from ds4agent.inline.session import InlineSession
from ds4agent.late_worker import Worker
from ds4agent.readable import printable

_FILES_WAIT_S = 1.0  # for the names of files; in a huge tree the next Tab finds them
_REDRAW_S = 0.1  # the line below is drawn at most ten times a second


class LineCompleter(Completer):
    """Completes commands, their arguments, and files behind an @: what every screen knows."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def get_completions(self, document: Document, event: CompleteEvent) -> Iterable[Completion]:
        """Runs in a thread of its own: the names of files may have to be read first."""
        text, cursor = document.text, document.cursor_position
        if mention_at(text, cursor) is not None:
            self._sources.files.refresh(lambda: None)
            self._sources.files.wait(_FILES_WAIT_S)
        for found in self._sources.suggest(text, cursor):
            if found.end == cursor:
                yield Completion(found.text, found.start - cursor, found.label, found.note)


class Editor:
    """Reads lines with editing, history and completion while the worker's output scrolls by."""

    def __init__(self, worker: Worker, commands: CommandTable) -> None:
        self._worker = worker
        self._commands = commands
        self._stashed = ""  # what was typed when a question came

    def run(self, open_session: Callable[[], InlineSession]) -> InlineSession:
        """Read lines until the worker has closed.

        Args:
            open_session: called once output goes above the line.
        """
        return asyncio.run(self._run(open_session))

    async def _run(self, open_session: Callable[[], InlineSession]) -> InlineSession:
        self._loop = asyncio.get_running_loop()
        with patch_stdout(raw=True):
            self._session = session = open_session()
            self._line = PromptSession(
                message=lambda: session.prompt,
                bottom_toolbar=lambda: self._toolbar(),
                completer=LineCompleter(Sources(self._commands, FileIndex(session.folder))),
                complete_while_typing=False,
                complete_in_thread=True,
                history=InMemoryHistory(),
                key_bindings=self._bindings(),
                enable_suspend=True,
            )
            self._line.app.min_redraw_interval = _REDRAW_S
            self._worker.start()
            threading.Thread(target=self._follow, name="inline-events", daemon=True).start()
            while not session.is_closed:
                try:
                    line = await self._line.prompt_async(set_exception_handler=False)
                except EOFError:
                    if not session.is_closed:
                        session.quit()
                        await self._until_closed()
                else:
                    if not session.is_closed:
                        session.typed(line)
            sys.stdout.flush()
        return session

    async def _until_closed(self) -> None:
        while not self._session.is_closed:
            await asyncio.sleep(_REDRAW_S)

    def copy(self, text: str) -> bool:
        """Put a text on the terminal's clipboard (OSC 52)."""
        encoded = base64.b64encode(text.encode()).decode()
        output = self._line.app.output
        output.write_raw(f"\x1b]52;c;{encoded}\x07")
        output.flush()
        return True

    def edit(self, text: str, instead_of: str) -> None:
        """Put a text into the line if this is what stands there. From any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._replace, text, instead_of)

    def _replace(self, text: str, instead_of: str) -> None:
        buffer = self._line.default_buffer
        if buffer.text == instead_of:
            buffer.document = Document(text, len(text))

    # --- events ----------------------------------------------------------------------------------

    def _follow(self) -> None:
        session = self._session
        while not session.is_closed:
            was_asking = session.is_asking
            session.take(self._worker.events.get())
            with contextlib.suppress(RuntimeError):  # the loop has ended
                if session.is_asking != was_asking:
                    self._loop.call_soon_threadsafe(self._change_question, session.is_asking)
                self._loop.call_soon_threadsafe(self._line.app.invalidate)
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._leave)

    def _change_question(self, is_asking: bool) -> None:
        """What was typed before a question is no answer to it: it comes back afterwards."""
        buffer = self._line.default_buffer
        if is_asking:
            self._stashed = buffer.text
            buffer.reset()
        elif self._stashed and not buffer.text:
            buffer.insert_text(self._stashed)
            self._stashed = ""

    def _leave(self) -> None:
        if self._line.app.is_running:
            self._line.app.exit(exception=EOFError())

    # --- the line --------------------------------------------------------------------------------

    def _toolbar(self) -> str:
        width = self._line.app.output.get_size().columns
        return to_plain_text(printable(self._session.status()))[: max(1, width - 1)]

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("c-c")
        @keys.add("<sigint>")  # while something is printed the terminal makes a signal of the key
        def _(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if not self._session.ctrl_c(bool(buffer.text)):
                buffer.reset()

        @Condition
        def has_queue() -> bool:
            return not self._line.default_buffer.text and self._session.n_queued > 0

        @keys.add("up", filter=has_queue)
        def _(event: KeyPressEvent) -> None:
            self._session.take_back()

        @keys.add("s-tab")
        def _(event: KeyPressEvent) -> None:
            self._session.next_mode()

        @keys.add("escape", "enter")
        def _(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        return keys
