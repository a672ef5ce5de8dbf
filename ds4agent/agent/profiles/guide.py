"""How a turn is led: what the loop asks a profile's guide at each of its corners."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ds4agent.agent.calls import CallOutcome
from engine.chat.format import ToolSpec
from engine.chat.reply_rule import ReplyRule
from tools.toolbox import Toolbox


@dataclass(frozen=True, slots=True)
class ReplyForm:
    """How one answer is read, and what it is forced to be."""

    rule: ReplyRule | None = None  # None: it is free
    has_files: bool = False  # a name and a fence below it is a call of ``write``
    in_words: bool = False  # it cannot begin as a call, and nothing in it is one
    is_shaken: bool = False  # the likeliest tokens failed: others get a chance


IN_WORDS = ReplyForm(in_words=True)


@dataclass(frozen=True, slots=True)
class After:
    """What happens after the calls of an answer were run."""

    ends: bool = False  # the turn is done; the model is not asked again
    added: str = ""  # follows the last result
    # The answer and its results are dropped, and the model is told this, if anything.
    retry: str | None = None


GO_ON, END = After(), After(ends=True)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a guide may use."""

    toolbox: Toolbox
    specs: tuple[ToolSpec, ...]  # what the model is told of
    ctx: int  # tokens
    may_change: Callable[[], bool]  # the mode lets files be changed
    run: Callable[[str, dict[str, Any]], CallOutcome | None]  # a call unasked; None: not allowed
    warn: Callable[[str], None]  # takes a line for the person


class Guide(Protocol):
    """Leads one turn. Made anew for each."""

    def begin(self, text: str) -> str:
        """Take the person's message; return what the model is given."""

    def attach(self, text: str) -> str:
        """Return a message that was typed meanwhile with what it mentions."""

    def form(self) -> ReplyForm:
        """Return what the next answer must be."""

    def after(self, outcomes: Sequence[CallOutcome]) -> After:
        """Look at what the calls of an answer came to, and say how the turn goes on."""

    def nudge(self, answer: str) -> str:
        """Return what to say to a model that stopped without a call, "" for nothing."""
