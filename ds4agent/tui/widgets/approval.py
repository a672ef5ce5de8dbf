"""The question before a change: what exactly would run, and a yes or a no.

Keys typed before the panel appeared must never answer it. So for a moment after it appears, and
for as long as the person goes on typing without a pause, keys go to the composer instead.
"""

import time

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static

from ds4agent.events import ApprovalNeeded
from ds4agent.plain import one_line as shortened
from ds4agent.screen_rules import GUARD_S
from ds4agent.tui.plain import count, one_line, visible
from ds4agent.tui.widgets.diff_sides import diff_for_screen

_PAUSE_S = 0.25  # nor this soon after a key that came during the guard

_SHARE_OF_SCREEN = 0.65  # so that what led to the question stays in sight
_CELLS_AROUND_DETAIL = 11  # margins, frame, paddings, the scroll bar
_ROWS_AROUND = 7  # frame, title, gaps, the line about what is hidden, choices
_RULE_WIDTH = 40  # characters of the rule that "always" remembers

_CHOICES = (
    ("once", "y", "yes, once"),
    ("always", "a", "always here"),
    ("rule", "e", "edit the rule"),
    ("no", "n", "no"),
)
_NO = 3  # the index of the last one
_SHORT = {"once": "yes", "always": "always", "rule": "rule", "no": "no"}  # on a narrow screen
_CELLS_SHORT = 46  # of all choices in their short form
_CELLS_WITHOUT_RULE = 66  # of all choices in their long form


class Choice(Static):
    """One answer, as a key and a word; the selected one carries a pointer."""

    class Chosen(Message):
        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, name: str, key: str, label: str) -> None:
        self.choice = name
        self._key, self._label = key, label
        super().__init__(self._drawn("  "), classes="choice", markup=False)

    def select(self, is_selected: bool) -> None:
        """Mark or unmark this answer."""
        self.set_class(is_selected, "-selected")
        self.update(self._drawn("› " if is_selected else "  "))

    def relabel(self, label: str) -> None:
        """Show other words."""
        self._label = label
        self.update(self._drawn("  "))

    def _drawn(self, pointer: str) -> Content:
        return Content.assemble(pointer, (self._key, "bold"), f" {self._label} ")

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(self.Chosen(self.choice))


class ApprovalPanel(Vertical, can_focus=True):
    """Shows one ``ApprovalNeeded`` at a time and posts the answer."""

    class Answered(Message):
        def __init__(self, call_id: str, approved: bool, always: bool, reason: str) -> None:
            super().__init__()
            self.call_id, self.approved = call_id, approved
            self.always, self.reason = always, reason

    class RuleGiven(Message):
        """The person wrote a rule of their own: what it fits is allowed from now on."""

        def __init__(self, rule: str) -> None:
            super().__init__()
            self.rule = rule

    class TypedAhead(Message):
        """A character that was meant for the composer."""

        def __init__(self, character: str) -> None:
            super().__init__()
            self.character = character

    class InterruptAsked(Message):
        """Esc: end the turn instead of answering."""

    def __init__(self) -> None:
        super().__init__(id="approval")
        self.display = False
        self.call_id = ""
        self._selected = _NO
        self._rule = ""
        self._is_writing_rule = False
        self._guarded_until = 0.0
        self._question: ApprovalNeeded | None = None

    def compose(self) -> ComposeResult:
        yield Static(id="approval-title", markup=False)
        with VerticalScroll(id="approval-detail", can_focus=False):
            yield Static(id="approval-text", markup=False)
        yield Static(id="approval-more", markup=False)
        with Horizontal(id="approval-choices"):
            for choice in _CHOICES:
                yield Choice(*choice)
        yield Input(id="approval-reason", select_on_focus=False)

    def ask(self, question: ApprovalNeeded) -> None:
        """Show the question and take the keyboard."""
        self.call_id = question.call_id
        mark = ("! ", "bold $text-warning") if question.risky else ("? ", "bold")
        title = one_line(visible(question.title)) or question.name
        self.query_one("#approval-title", Static).update(
            Content.assemble(mark, (f"Allow {title}?", "bold"))
        )
        self._rule = question.rule
        self._label_choices()
        self._question = question
        self._show_detail()
        detail = self._detail
        detail.display = bool(question.detail or question.diff)
        detail.scroll_home(animate=False)
        self.fit(self.screen.size.height)
        self._reason.display = False
        self._reason.value = ""
        self._reason.cursor_blink = False
        self._select(_NO if question.risky else 0)
        self._guarded_until = time.monotonic() + GUARD_S
        self.display = True
        self.focus()

    def _show_detail(self) -> None:
        """Show the whole command, or the diff as it fits the screen."""
        question = self._question
        if question is None:
            return
        parts = [Content(visible(question.detail))] if question.detail else []
        if question.diff:
            text = _without_header(visible(question.diff))
            cells = self.screen.size.width
            parts.append(diff_for_screen(text, cells, cells - _CELLS_AROUND_DETAIL))
        self.query_one("#approval-text", Static).update(Content("\n").join(parts))

    def _count_hidden(self) -> None:
        """Say how much of the question is out of sight: a yes is a yes to all of it."""
        hidden = max(0, round(self._detail.max_scroll_y - self._detail.scroll_y))
        more = self.query_one("#approval-more", Static)
        more.display = self._detail.max_scroll_y > 0
        text = f"▾ {count(hidden, 'more line')} · Page Down" if hidden else "▴ Page Up"
        more.update(Content(text))

    def fit(self, screen_rows: int) -> None:
        """Leave room for the title and the choices, however long the question is."""
        room = screen_rows * _SHARE_OF_SCREEN - _ROWS_AROUND
        self._detail.styles.max_height = max(3, round(room))
        self.call_after_refresh(self._count_hidden)

    def on_resize(self) -> None:
        if self.display:
            self._show_detail()
        self.fit(self.screen.size.height)
        self._label_choices()
        self._select(self._selected)

    def _label_choices(self) -> None:
        """Say what "always" would remember, in as many cells as there are."""
        room = self.screen.size.width - 6  # margins, frame, padding
        long = room >= _CELLS_WITHOUT_RULE
        rule_cells = min(_RULE_WIDTH, room - _CELLS_WITHOUT_RULE)
        for choice in self.query(Choice):
            label = next(label for name, _, label in _CHOICES if name == choice.choice)
            if choice.choice == "always" and self._rule and rule_cells > 4:
                label = f"{label}: {shortened(visible(self._rule), rule_cells)}"
            choice.relabel(label if long else _SHORT[choice.choice])
            # Where there is no room for it, its key works all the same.
            choice.display = choice.choice != "rule" or (bool(self._rule) and room >= _CELLS_SHORT)

    def dismiss_question(self, call_id: str = "") -> None:
        """Hide the panel, if it asks about this call or no call is named."""
        if self.display and call_id in ("", self.call_id):
            self.display = False
            self.call_id = ""

    @property
    def is_asking(self) -> bool:
        return bool(self.display)

    @property
    def is_guarded(self) -> bool:
        """True while keys may still be meant for something else."""
        return time.monotonic() < self._guarded_until

    @property
    def _detail(self) -> VerticalScroll:
        return self.query_one("#approval-detail", VerticalScroll)

    @property
    def _reason(self) -> Input:
        return self.query_one("#approval-reason", Input)

    def on_key(self, event: events.Key) -> None:
        if self._reason.has_focus:
            self._reason_key(event)
            return
        if event.key == "ctrl+c" or event.key == "shift+tab":
            return
        event.stop()
        event.prevent_default()
        if self.is_guarded:
            self._guarded_until = max(self._guarded_until, time.monotonic() + _PAUSE_S)
            if event.character is not None and event.is_printable:
                self.post_message(self.TypedAhead(event.character))
            return
        match event.key:
            case "y":
                self._choose("once")
            case "a":
                self._choose("always")
            case "e" if self._rule:
                self._choose("rule")
            case "n":
                self._choose("no")
            case "enter":
                self._choose(_CHOICES[self._selected][0])
            case "left" | "up":
                self._step(-1)
            case "right" | "down" | "tab":
                self._step(1)
            case "pageup":
                self._scroll(-1)
            case "pagedown":
                self._scroll(1)
            case "escape":
                self.post_message(self.InterruptAsked())

    def _scroll(self, direction: int) -> None:
        page = max(1, self._detail.size.height - 1)
        self._detail.scroll_to(y=self._detail.scroll_y + direction * page, animate=False)
        self.call_after_refresh(self._count_hidden)

    def _reason_key(self, event: events.Key) -> None:
        if event.key == "escape":
            event.stop()
            self._reason.display = False
            self.focus()
        elif event.key == "tab":
            event.stop()
            event.prevent_default()

    def on_choice_chosen(self, event: Choice.Chosen) -> None:
        event.stop()
        if not self.is_guarded:
            self._choose(event.name)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        text = event.value.strip()
        if not self._is_writing_rule:
            self._answer(approved=False, reason=text)
        elif text:
            self.post_message(self.RuleGiven(text))
            self._answer(approved=True)

    def _select(self, index: int) -> None:
        self._selected = index
        for idx, choice in enumerate(self.query(Choice)):
            choice.select(idx == index)

    def _step(self, step: int) -> None:
        """Go to the next choice that is there."""
        shown = [i for i, choice in enumerate(self.query(Choice)) if choice.display]
        at = shown.index(self._selected) if self._selected in shown else 0
        self._select(shown[(at + step) % len(shown)])

    def _choose(self, name: str) -> None:
        if name in ("no", "rule"):
            self._is_writing_rule = name == "rule"
            self._select([choice[0] for choice in _CHOICES].index(name))
            self._reason.value = self._rule if self._is_writing_rule else ""
            self._reason.placeholder = (
                "A rule, like bash(make *)"
                if self._is_writing_rule
                else "Reason for the model (optional), Enter"
            )
            self._reason.display = True
            self._reason.focus()
        else:
            self._answer(approved=True, always=name == "always")

    def _answer(self, approved: bool, always: bool = False, reason: str = "") -> None:
        call_id = self.call_id
        self.dismiss_question()
        self.post_message(self.Answered(call_id, approved, always, reason))


def _without_header(diff: str) -> str:
    """Return a diff without the names of its one file, which the title says."""
    lines = diff.split("\n")
    is_one_file = sum(line.startswith("+++ ") for line in lines) == 1
    return "\n".join(lines[2:]) if is_one_file and diff.startswith("--- ") else diff
