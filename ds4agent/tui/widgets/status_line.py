"""One line that says what is going on. It gives up detail, never correctness, when narrow.

mode · model quant device · context used/size · activity · sandbox
"""

import time
from dataclasses import dataclass, field

from rich.cells import cell_len
from textual.content import Content
from textual.timer import Timer
from textual.widget import Widget

from ds4agent.events import Phase
from ds4agent.requests import Mode
from ds4agent.tui.plain import one_line, short_count

_BAR = ("░", "█")
_SEPARATOR = " · "
_MODE_STYLES = {
    Mode.PLAN: "$text-accent",
    Mode.ASK: "$text-primary",
    Mode.AUTO: "$text-warning",
    Mode.FULL: "$text-error",
}
_TIMED = (Phase.TOOL, Phase.SAVING)  # these show seconds, so they need a clock


@dataclass(slots=True)
class Status:
    """What the line shows; the controller writes it and calls ``StatusLine.changed``."""

    mode: Mode | None = None
    model: str = ""
    quant: str = ""
    device: str = ""
    sandbox: str = ""
    context_tokens: int = 0
    context_size: int = 0
    phase: Phase = Phase.LOADING
    detail: str = ""
    done: int = 0  # of the load (bytes) or the prefill (tokens)
    total: int = 0
    generated: int = 0
    tokens_per_s: float = 0.0
    n_queued: int = 0
    n_unseen: int = 0  # blocks below the visible part
    hint: str = ""  # takes the activity's place: "again to quit"
    phase_since: float = field(default_factory=time.monotonic)


def bar(done: int, total: int, cells: int) -> str:
    """Return a bar of ``cells`` cells, filled to ``done`` of ``total``."""
    filled = 0 if total <= 0 else min(cells, max(0, round(cells * done / total)))
    return _BAR[1] * filled + _BAR[0] * (cells - filled)


class StatusLine(Widget):
    """Draws ``status``. A clock runs only while a phase that shows seconds lasts."""

    def __init__(self) -> None:
        super().__init__(id="status")
        self.status = Status()
        self._clock: Timer | None = None
        self._hint_timer: Timer | None = None

    def on_mount(self) -> None:
        self._clock = self.set_interval(1.0, self.refresh, pause=True)

    def changed(self) -> None:
        """Draw again after ``status`` was written to."""
        self.refresh()

    def show_hint(self, hint: str, seconds: float = 0.0) -> None:
        """Let a few words take the activity's place, for so long; 0: until another hint."""
        self.status.hint = hint
        if self._hint_timer is not None:
            self._hint_timer.stop()
        self._hint_timer = self.set_timer(seconds, self._end_hint) if seconds else None
        self.refresh()

    def _end_hint(self) -> None:
        self.status.hint = ""
        self.refresh()

    def set_phase(self, phase: Phase, detail: str = "") -> None:
        """Begin a phase: counters start anew."""
        status = self.status
        status.phase, status.detail = phase, one_line(detail)
        status.phase_since = time.monotonic()
        status.done = status.total = status.generated = 0
        status.tokens_per_s = 0.0
        if self._clock is not None:
            if phase in _TIMED:
                self._clock.resume()
            else:
                self._clock.pause()
        self.refresh()

    def render(self) -> Content:
        return self.line(self.size.width)

    def line(self, width: int) -> Content:
        """Return the most detailed form that fits into ``width`` cells."""
        shown = Content("")
        # (bar cells, longest model name, show device, show sandbox)
        for form in (
            (10, 60, True, True),
            (6, 28, True, True),
            (0, 20, True, True),
            (0, 14, True, True),
            (0, 14, False, True),
            (0, 20, True, False),
            (0, 14, False, False),
            (0, 0, False, False),
        ):
            shown = self._form(*form)
            if cell_len(shown.plain) <= width:
                return shown
        return shown.truncate(max(1, width), ellipsis=True)

    def _form(self, bar_cells: int, name_cells: int, device: bool, sandbox: bool) -> Content:
        status = self.status
        parts: list[Content] = []
        if status.mode is not None:
            parts.append(Content.styled(status.mode.value, f"bold {_MODE_STYLES[status.mode]}"))
        if status.model and name_cells:
            name = one_line(status.model)
            if len(name) > name_cells:
                name = name[: name_cells - 1] + "…"
            words = [name, status.quant, status.device] if device else [name]
            parts.append(Content(" ".join(filter(None, words))))
        if status.context_size:
            parts.append(self._context_part(bar_cells))
        parts.append(self._activity_part(bar_cells))
        if status.n_unseen:
            parts.append(Content.styled(f"{status.n_unseen} new ↓ End", "bold"))
        if status.n_queued:
            parts.append(Content(f"{status.n_queued} queued"))
        if status.sandbox and (sandbox or status.sandbox.startswith("off")):
            parts.append(self._sandbox_part(sandbox))
        return Content(_SEPARATOR).join(parts)

    def _context_part(self, bar_cells: int) -> Content:
        status = self.status
        used = f"{short_count(status.context_tokens)}/{short_count(status.context_size)}"
        text = used
        if bar_cells:
            text = f"ctx {used} {bar(status.context_tokens, status.context_size, bar_cells)}"
        is_nearly_full = status.context_tokens >= 0.8 * status.context_size
        return Content.styled(text + " !", "$text-warning") if is_nearly_full else Content(text)

    def _sandbox_part(self, long: bool) -> Content:
        if not self.status.sandbox.startswith("off"):
            return Content(self.status.sandbox)
        return Content.styled("no sandbox" if long else "!sandbox", "$text-warning")

    def _activity_part(self, bar_cells: int) -> Content:
        status = self.status
        if status.hint:
            return Content.styled(status.hint, "bold")
        seconds = int(time.monotonic() - status.phase_since)
        progress = f"{bar(status.done, status.total, bar_cells)} " if bar_cells else ""
        rate = f" {status.tokens_per_s:.1f} tok/s" if status.tokens_per_s else ""
        match status.phase:
            case Phase.LOADING:
                if not status.total:
                    return Content(f"loading {status.detail}".rstrip())
                done, total = status.done / 1e9, status.total / 1e9
                return Content(f"loading {progress}{done:.1f}/{total:.1f} GB")
            case Phase.PREFILL:
                if not status.total:
                    return Content("reading")
                left = _time_left(status) if bar_cells else ""
                return Content(f"reading {progress}{status.done:,}/{status.total:,}{rate}{left}")
            case Phase.GENERATING:
                if not status.generated:
                    return Content("generating")
                if not bar_cells:
                    return Content(f"{status.generated:,} at{rate or ' …'}")
                return Content(f"generating {status.generated:,} tokens{rate}")
            case Phase.COMPACTING:
                if status.total:
                    return Content(f"compacting {progress}{status.done:,}/{status.total:,}{rate}")
                return Content(f"compacting {status.generated:,} tokens{rate}")
            case Phase.TOOL:
                return Content(f"running {status.detail} {seconds} s")
            case Phase.APPROVAL:
                return Content.styled("waiting for your answer", "bold")
            case Phase.SAVING:
                return Content(f"saving {seconds} s" if seconds else "saving")
            case Phase.FAILED:
                return Content.styled("model not loaded", "bold $text-error")
            case Phase.CLOSED:
                return Content("closed")
            case _:
                return Content("ready")


def _time_left(status: Status) -> str:
    """Return " 12 s left" of a prefill, "" while nothing can be said."""
    if status.tokens_per_s <= 0 or status.done >= status.total:
        return ""
    seconds = (status.total - status.done) / status.tokens_per_s
    if seconds >= 90:
        return f" {seconds / 60:.0f} min left"
    return f" {seconds:.0f} s left"
