"""The question before anything that a folder brings takes effect.

Nothing that was typed before the dialog appeared may answer it; see ``approval``.
"""

import time
from collections.abc import Callable

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from ds4agent.events import TrustNeeded
from ds4agent.requests import Trust
from ds4agent.screen_rules import GUARD_S
from ds4agent.tui.plain import one_line

_PAUSE_S = 0.25  # nor this soon after a key that came during the guard

NOT_NOW = Trust(False, is_remembered=False)
_CHOICES = (
    ("y", "yes, always use it here", Trust(True)),
    ("n", "no, never: I only look around, in plan mode", Trust(False)),
    ("esc", "not this time", NOT_NOW),
)


class TrustDialog(ModalScreen[Trust]):
    """Returns the answer. Enter alone never says yes."""

    DEFAULT_CSS = """
    TrustDialog {
        align: center middle;
        #trust {
            width: 72;
            max-width: 100%;
            height: auto;
            max-height: 100%;
            overflow-y: auto;
            padding: 1 2;
            border: round $primary;
            background: $background;
        }
        .-selected { text-style: bold; }
    }
    """

    def __init__(self, question: TrustNeeded, type_ahead: Callable[[str], None]) -> None:
        """Prepare the dialog.

        Args:
            question: the folder, and what it brings.
            type_ahead: takes a character that was meant for the composer.
        """
        super().__init__()
        self._question = question
        self._type_ahead = type_ahead
        self._selected = len(_CHOICES) - 1
        self._guarded_until = 0.0

    def compose(self) -> ComposeResult:
        with Vertical(id="trust"):
            yield Static(self._text(), id="trust-text", markup=False)
            for i in range(len(_CHOICES)):
                yield Static(self._drawn(i), classes="trust-choice", markup=False)

    def on_mount(self) -> None:
        self._guarded_until = time.monotonic() + GUARD_S

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        if time.monotonic() < self._guarded_until:
            self._guarded_until = max(self._guarded_until, time.monotonic() + _PAUSE_S)
            if event.character is not None and event.is_printable:
                self._type_ahead(event.character)
            return
        match event.key:
            case "y":
                self.dismiss(_CHOICES[0][2])
            case "n":
                self.dismiss(_CHOICES[1][2])
            case "escape" | "ctrl+c":
                self.dismiss(_CHOICES[2][2])
            case "enter":
                self.dismiss(_CHOICES[self._selected][2])
            case "up" | "left":
                self._select((self._selected - 1) % len(_CHOICES))
            case "down" | "right" | "tab":
                self._select((self._selected + 1) % len(_CHOICES))

    def _text(self) -> Content:
        question = self._question
        parts: list[Content | str | tuple[str, str]] = [
            ("Trust this folder?", "bold"),
            f"\n{one_line(question.folder)}\n\nIt brings for the agent:\n",
        ]
        parts += [f"  {one_line(name)}\n" for name in question.brings]
        parts.append(
            "\nThis steers what the model does. It can never let it do more without asking.\n"
        )
        return Content.assemble(*parts)

    def _drawn(self, i: int) -> Content:
        key, label, _ = _CHOICES[i]
        pointer = "› " if i == self._selected else "  "
        return Content.assemble(pointer, (f"{key:4}", "bold"), label)

    def _select(self, index: int) -> None:
        self._selected = index
        for i, choice in enumerate(self.query(".trust-choice").results(Static)):
            choice.set_class(i == index, "-selected")
            choice.update(self._drawn(i))
