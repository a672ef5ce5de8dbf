"""One tool call: what it does, how it goes, and its result behind a fold."""

import json
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from textual import events
from textual.binding import Binding
from textual.content import Content
from textual.widgets import Static

from ds4agent.tui.plain import count, one_line, printable
from ds4agent.tui.widgets import diff
from ds4agent.tui.widgets.diff_sides import WIDER_THAN, diff_for_screen

LIVE_LINES = 5  # of the arguments while they are written, and of the output while it runs
_LIVE_CHARS = 1_000
_KEPT_CHARS = 64_000  # live output kept until the result replaces it
_INDENT_CELLS = 2
_FAILED_LINES = 6  # of a failed call's output stay visible when folded


class CallState(Enum):
    """A call's way: (mark, style, word). The mark and the word say it without colour."""

    WRITING = ("○", "dim", "writing")
    WAITING = ("○", "dim", "waiting")
    RUNNING = ("●", "$text-accent", "running")
    OK = ("✓", "$text-success", "")
    FAILED = ("✗", "$text-error", "failed")
    DONE = ("·", "dim", "")  # of a restored conversation, which does not keep how it went


@dataclass(slots=True)
class Call:
    """Everything a card shows."""

    call_id: str
    name: str
    title: str = ""
    arguments: str = ""
    output: str = ""
    diff: str = ""
    state: CallState = CallState.WRITING
    exit_code: int | None = None
    seconds: float = 0.0


def describe(name: str, arguments: dict[str, Any] | None) -> str:
    """Return a one-line title for a call: its name and its first argument."""
    for value in (arguments or {}).values():
        text = value if isinstance(value, str) else json.dumps(value)
        return f"{name}: {one_line(text)}"
    return name


class ToolCard(Static, can_focus=True):
    """Draws one ``Call``. Click, Enter or Ctrl+O opens it."""

    BINDINGS = [Binding("enter,space", "toggle_fold", "Open or fold", show=False)]

    def __init__(self, call: Call) -> None:
        self.call = call
        self.is_open = False
        self._cells = self._screen_cells = 0  # of the card and of the screen; 0 before the layout
        # Never ``update`` before the mount: Textual would miss the change of height that follows.
        super().__init__(self._drawn(), classes="block tool-card", markup=False)

    @property
    def can_fold(self) -> bool:
        return bool(self.call.output.strip() or self.call.diff or self.call.arguments)

    def recipe(self) -> partial["ToolCard"]:
        return partial(ToolCard, self.call)

    # --- the call's way --------------------------------------------------------------------------

    def append_arguments(self, text: str) -> None:
        """Add a piece of the arguments as the model writes them."""
        self.call.arguments += printable(text)
        self.update(self._drawn())

    def set_ready(self, name: str, arguments: dict[str, Any], title: str, diff_text: str) -> None:
        """The arguments are complete: the call waits for its turn or for an answer."""
        self.call.name = name
        self.call.title = title or describe(name, arguments)
        self.call.arguments = printable(json.dumps(arguments, indent=2, ensure_ascii=False))
        self.call.diff = diff_text
        self.set_state(CallState.WAITING)

    def set_state(self, state: CallState) -> None:
        """Move the call on."""
        self.call.state = state
        self.update(self._drawn())

    def append_output(self, text: str) -> None:
        """Add a piece of the running command's output."""
        self.call.state = CallState.RUNNING
        self.call.output = (self.call.output + printable(text))[-_KEPT_CHARS:]
        self.update(self._drawn())

    def finish(
        self, ok: bool, title: str, text: str, diff_text: str, exit_code: int | None, seconds: float
    ) -> None:
        """The call is over; ``text`` is what the model reads."""
        call = self.call
        call.state = CallState.OK if ok else CallState.FAILED
        call.title = title or call.title
        call.output = printable(text)
        call.diff = diff_text or (call.diff if ok else "")
        call.exit_code, call.seconds = exit_code, seconds
        self.update(self._drawn())

    # --- folding ---------------------------------------------------------------------------------

    def set_open(self, is_open: bool) -> None:
        """Show everything, or the short form."""
        self.is_open = is_open
        self.update(self._drawn())

    def action_toggle_fold(self) -> None:
        self.set_open(not self.is_open)

    def on_click(self, event: events.Click) -> None:
        if not self.screen.get_selected_text():
            event.stop()
            self.action_toggle_fold()

    def on_resize(self) -> None:
        before = (self._cells, self._screen_cells)
        self._cells, self._screen_cells = self.content_size.width, self.app.size.width
        if self.call.diff and (self._cells, self._screen_cells) != before:
            if max(before[1], self._screen_cells) > WIDER_THAN:
                self.update(self._drawn())

    # --- drawing ---------------------------------------------------------------------------------

    def _drawn(self) -> Content:
        parts = [self._headline()]
        if self.is_open:
            parts += self._whole()
        elif self.call.state in (CallState.WRITING, CallState.RUNNING):
            parts += self._live()
        else:
            parts += self._folded()
        return Content("\n").join(parts)

    def _headline(self) -> Content:
        call = self.call
        mark, style, word = call.state.value
        title = one_line(call.title) or one_line(call.name)
        name, separator, rest = title.partition(": ")
        notes = [word] if word else []
        if call.exit_code:
            notes = [f"exit {call.exit_code}"]
        if call.seconds >= 0.1:
            notes.append(f"{call.seconds:.1f} s")
        if call.diff and call.state is CallState.OK:
            notes.append(diff.diff_totals(call.diff))
        return Content.assemble(
            (f"{mark} ", style),
            (name, "bold") if separator else name,
            separator + rest,
            ("".join(f"  · {note}" for note in notes), style if call.state.value[2] else "dim"),
        )

    def _live(self) -> list[Content]:
        text = self.call.output or self.call.arguments
        tail = text[-_LIVE_CHARS:].rstrip("\n").split("\n")[-LIVE_LINES:]
        return [Content.styled(_indent(line), "dim") for line in tail if line.strip()]

    def _folded(self) -> list[Content]:
        call = self.call
        if call.diff:
            return [*self._diff(diff.FOLD_LINES), *self._failure()]
        if call.state is CallState.FAILED:
            return self._failure()
        lines = call.output.strip("\n").split("\n")
        if not call.output.strip():
            return []
        if len(lines) == 1 and len(lines[0]) <= 100:
            return [Content.styled(_indent(lines[0]), "dim")]
        return [Content.styled(f"  ▸ {count(len(lines), 'line')}", "dim")]

    def _diff(self, limit: int | None = None) -> list[Content]:
        text, path = diff.clean_diff(self.call.diff), diff.diff_path(self.call.diff)
        cells = self._cells - _INDENT_CELLS
        return _shift(diff_for_screen(text, self._screen_cells, cells, limit, path))

    def _failure(self) -> list[Content]:
        call = self.call
        if call.state is not CallState.FAILED or not call.output.strip():
            return []
        lines = call.output.strip("\n").split("\n")
        parts = [Content(_indent(line)) for line in lines[-_FAILED_LINES:]]
        hidden = len(lines) - len(parts)
        if hidden > 0:
            parts.insert(0, Content.styled(f"  ▸ {count(hidden, 'line')} above", "dim"))
        return parts

    def _whole(self) -> list[Content]:
        call = self.call
        parts: list[Content] = []
        if call.diff:
            parts += self._diff()
        elif call.arguments:
            parts.append(Content.styled(_indent(call.arguments), "dim"))
        if call.output.strip():
            parts.append(Content(_indent(call.output.strip("\n"))))
        return parts


def _shift(content: Content) -> list[Content]:
    return [Content("  ") + line for line in content.split("\n", allow_blank=True)]


def _indent(text: str) -> str:
    return "\n".join("  " + line for line in text.split("\n"))
