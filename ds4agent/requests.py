"""Everything a screen may ask of the worker. ``events`` is what the worker tells.

Frozen data only: neither side ever touches the other's state.
"""

from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """How much happens without asking."""

    PLAN = "plan"  # read-only: changes and commands are refused
    ASK = "ask"  # changes and commands need a yes
    AUTO = "auto"  # edits and sandboxed commands run
    FULL = "full"  # nothing is asked; only the command line gives it, for one run


@dataclass(frozen=True, slots=True)
class Submit:
    """A message. While a turn runs it is queued and delivered with the next tool result, or as
    the next turn."""

    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The person's answer to an ``ApprovalNeeded``."""

    call_id: str
    approved: bool
    always: bool = False  # remember the question's rule for this project
    reason: str = ""  # told to the model when refused


@dataclass(frozen=True, slots=True)
class Save:
    """Write the conversation to disk now."""


@dataclass(frozen=True, slots=True)
class Load:
    """Open a saved conversation. ``id`` is a unique prefix of its id.

    ``how`` is "" to go on with it; "copy" to leave it as it is and keep what comes as another one;
    "read-only" to look at it, nothing is kept; "prefill" to read its text again where its state is
    gone or of another model.
    """

    id: str
    how: str = ""


@dataclass(frozen=True, slots=True)
class Fork:
    """Go on in a copy, which is called ``name``; the conversation stays as it is."""

    name: str = ""


@dataclass(frozen=True, slots=True)
class Rewind:
    """Take back the last turns. Where that costs reading tokens again, it has to be allowed.

    The files stay as they are, unless ``with_files``.
    """

    n_turns: int = 1
    may_prefill: bool = False
    with_files: bool = False


@dataclass(frozen=True, slots=True)
class New:
    """Begin a new conversation; the current one is saved."""


@dataclass(frozen=True, slots=True)
class ListSessions:
    """Ask for a ``SessionList``."""


@dataclass(frozen=True, slots=True)
class PreviewSession:
    """Ask for a ``SessionPreview`` of one saved conversation."""

    id: str


@dataclass(frozen=True, slots=True)
class SearchSessions:
    """Ask for ``SessionsFound``."""

    words: str


@dataclass(frozen=True, slots=True)
class SetMode:
    """Change how much happens without asking."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class Compact:
    """Replace the beginning of the conversation by a summary. Busy: after the turn."""

    wish: str = ""  # what the summary should dwell on


@dataclass(frozen=True, slots=True)
class Undo:
    """Take back what the last turn did to files."""


@dataclass(frozen=True, slots=True)
class Redo:
    """Do again what was undone last."""


@dataclass(frozen=True, slots=True)
class ShowDiff:
    """Ask for a ``DiffShown``: of the last turn that changed files, or of this whole run."""

    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class EditPermissions:
    """Change the rules of this project, and ask for a ``PermissionList``."""

    action: str = ""  # "allow", "ask", "deny", "remove"; "" changes nothing
    rule: str = ""


@dataclass(frozen=True, slots=True)
class Trust:
    """The answer to a ``TrustNeeded``. Unasked, it is remembered and holds from the next start."""

    trusted: bool
    is_remembered: bool = True  # False: for this run


@dataclass(frozen=True, slots=True)
class TakeBackQueued:
    """Remove a queued message; it comes back in ``QueueChanged`` by its absence."""

    text: str = ""  # the newest message that reads so; "": the newest of all


@dataclass(frozen=True, slots=True)
class Quit:
    """Save and end. Interrupts a running turn."""


Command = (
    Submit
    | Answer
    | Save
    | Load
    | Fork
    | Rewind
    | New
    | ListSessions
    | PreviewSession
    | SearchSessions
    | SetMode
    | EditPermissions
    | Compact
    | Undo
    | Redo
    | ShowDiff
    | Trust
    | TakeBackQueued
    | Quit
)


@dataclass(frozen=True, slots=True)
class Start:
    """Which conversation the worker opens first."""

    resume_id: str = ""  # unique prefix of a session id
    resume_latest: bool = False  # the newest one of this folder
    prompt: str = ""  # sent as soon as the model is ready
