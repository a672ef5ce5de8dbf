"""What the screens do alike, whatever they look like."""

from collections.abc import Sequence

from ds4agent.errors import UsageError
from ds4agent.events import Phase
from ds4agent.record.record import Record
from ds4agent.requests import Mode
from ds4agent.screen_requests import What

GUARD_S = 0.4  # nothing answers a question this soon after it appears: it was meant for elsewhere
QUIT_AGAIN_S = 2.0  # the second press of Ctrl+C must come within this time
BUSY = {Phase.PREFILL, Phase.GENERATING, Phase.TOOL, Phase.APPROVAL, Phase.COMPACTING}
_CYCLE = {Mode.PLAN: Mode.ASK, Mode.ASK: Mode.AUTO, Mode.AUTO: Mode.PLAN, Mode.FULL: Mode.PLAN}


def next_mode(mode: Mode | None) -> Mode:
    """Return the mode that Shift+Tab goes to; None while the mode is not known."""
    return _CYCLE[mode or Mode.PLAN]


def text_to_copy(record: Record, what: What) -> tuple[str, str]:
    """Return what ``/copy`` puts on the clipboard, and what it is called.

    Raises:
        UsageError: there is no such thing yet.
    """
    match what:
        case What.CODE:
            text, name = record.last_code(), "block of code"
        case What.ALL:
            from ds4agent.record.markdown import to_markdown

            text = to_markdown(record.entries, record.title) if record.entries else ""
            name = "conversation"
        case _:
            text, name = record.last_answer(), "answer"
    if not text:
        raise UsageError(f"there is no {name} to copy yet")
    return text, name


class TakingBack:
    """One queued message on its way back to where it was typed.

    The worker may deliver it before it hears of the wish. So nothing is put back before the queue
    has changed by just this message.
    """

    def __init__(self) -> None:
        self._wanted = ""

    def ask(self, queued: Sequence[str], text: str = "") -> bool:
        """Remember that a queued message is wanted, "" the newest; False when there is none."""
        if queued:
            self._wanted = text or queued[-1]
        return bool(queued)

    def came_back(self, before: Sequence[str], after: Sequence[str]) -> str:
        """Return the wanted message if the queue has changed by just that, else ""."""
        wanted = self._wanted
        is_taken = before.count(wanted) == after.count(wanted) + 1
        return wanted if wanted and is_taken and len(after) == len(before) - 1 else ""

    def was_delivered(self, text: str) -> str:
        """Return the wanted message if ``text``, which the model got, ends with it, else ""."""
        wanted, self._wanted = self._wanted, ""
        return wanted if wanted and text.endswith(wanted) else ""
