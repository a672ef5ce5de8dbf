"""Everything the worker tells a screen. ``requests`` is what a screen may ask of the worker.

Frozen data only: neither side ever touches the other's state.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ds4agent.requests import Mode


class Phase(StrEnum):
    """What the worker is doing. IDLE means that it waits for the person."""

    LOADING = "loading"
    IDLE = "idle"
    PREFILL = "prefill"
    GENERATING = "generating"
    TOOL = "tool"
    APPROVAL = "approval"
    SAVING = "saving"
    COMPACTING = "compacting"
    FAILED = "failed"  # the model could not be loaded
    CLOSED = "closed"


class Outcome(StrEnum):
    """Why a turn ended."""

    DONE = "done"
    INTERRUPTED = "interrupted"
    REFUSED = "refused"  # headless only: a call needed an approval that nobody could give
    LIMIT = "limit"  # token cap, full context, or too many rounds
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one turn (all its rounds)."""

    reused_tokens: int = 0  # in the state before the turn's first new token
    prefilled_tokens: int = 0  # computed as input: new text, tool results, chat markup
    generated_tokens: int = 0
    context_tokens: int = 0  # in the state now
    context_size: int = 0
    prefill_seconds: float = 0.0
    generate_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One saved conversation, as a list shows it."""

    id: str  # 40 hex digits
    title: str
    cwd: str  # "" when unknown
    model: str
    tokens: int
    file_bytes: int
    created_at: int  # Unix seconds
    last_used: int
    resumable: bool  # its model is the one that is loaded


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One part of a past conversation; roles as in ``engine.chat.format.HistoryItem``."""

    role: str
    text: str
    name: str = ""
    arguments: dict[str, Any] | None = None
    # Of a result, as in ToolFinished; None and "" where that was not kept.
    ok: bool | None = None
    title: str = ""
    diff: str = ""
    exit_code: int | None = None


# --- worker -> screen ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PhaseChanged:
    """What the worker does from now on."""

    phase: Phase
    detail: str = ""  # tool name, or what is being loaded or saved


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How much of the model file is read, at most ten times a second."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Ready:
    """The model is loaded, or a conversation was opened, replaced or begun."""

    model: str
    quant: str
    device: str
    sandbox: str  # "bubblewrap", or "off: <reason>"
    mode: Mode
    context_tokens: int
    context_size: int
    cwd: str
    session_id: str = ""
    title: str = ""
    history: tuple[HistoryEntry, ...] = ()
    reused_tokens: int = 0
    prefilled_tokens: int = 0  # 0 when everything came from a checkpoint
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class TurnStarted:
    """A turn begins with this message."""

    text: str  # the user's message, as delivered; "" when it goes on with a call that waited


@dataclass(frozen=True, slots=True)
class MessageDelivered:
    """Queued messages joined the running turn, after a tool result."""

    text: str


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """How much of the new input is computed, at most ten times a second."""

    done: int  # tokens
    total: int
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """The next piece of what the model thinks."""

    text: str


@dataclass(frozen=True, slots=True)
class GenerationProgress:
    """At most ten times a second."""

    generated: int
    tokens_per_s: float
    context_tokens: int


@dataclass(frozen=True, slots=True)
class ToolCallStarted:
    """The model has begun to write a call."""

    call_id: str  # "call-<n>", unique in this process
    name: str


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """The next piece of a call that is being written."""

    call_id: str
    text: str  # arguments as the model writes them


@dataclass(frozen=True, slots=True)
class ToolCallReady:
    """A call is complete and about to be dealt with."""

    call_id: str
    name: str
    arguments: dict[str, Any]
    title: str
    diff: str = ""


@dataclass(frozen=True, slots=True)
class ApprovalNeeded:
    """The worker waits for an ``Answer`` before it runs this call."""

    call_id: str
    name: str
    title: str
    detail: str  # the exact command, control characters spelled out
    diff: str
    risky: bool
    rule: str = ""  # what "always" would remember for this project


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The next piece of what a running command prints."""

    call_id: str
    text: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """A call was dealt with: run, refused or skipped."""

    call_id: str
    name: str
    ok: bool
    title: str
    text: str  # what the model reads
    diff: str = ""
    exit_code: int | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class MalformedCall:
    """The model wrote a call that cannot be read."""

    reason: str
    raw: str


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the person that is no part of the conversation."""

    text: str
    level: str = "info"  # "info", "warning", "error"


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The turn is over, and saved where saving works."""

    outcome: Outcome
    usage: Usage
    session_id: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class QueueChanged:
    """Messages typed while the worker is busy, oldest first."""

    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Saved:
    """The conversation is on disk."""

    session_id: str
    title: str
    tokens: int
    file_bytes: int
    seconds: float
    automatic: bool


@dataclass(frozen=True, slots=True)
class SessionList:
    """The saved conversations, last used first."""

    sessions: tuple[SessionSummary, ...]


@dataclass(frozen=True, slots=True)
class SessionPreview:
    """The end of one saved conversation."""

    session_id: str
    text: str  # or why it cannot be read


@dataclass(frozen=True, slots=True)
class SessionsFound:
    """The saved conversations that have all of these words in their text or in what is known."""

    words: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModeChanged:
    """Another approval mode holds from the next call on."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class Compacted:
    """The beginning of the conversation was replaced by a summary."""

    summary: str  # "" when only what the program knows by itself was kept
    tokens_before: int
    tokens_after: int
    kept_id: str = ""  # the saved conversation that holds what was before
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FilesRestored:
    """What a turn changed was taken back, or done again."""

    action: str  # "undone", "redone"
    title: str  # the message of the turn, or of the newest of several
    paths: tuple[str, ...]
    not_covered: tuple[str, ...] = ()  # changed by the turn too, but their content was not kept


@dataclass(frozen=True, slots=True)
class DiffShown:
    """What the agent changed, as a unified diff."""

    diff: str


@dataclass(frozen=True, slots=True)
class PermissionEntry:
    """One rule about calls; see ``ds4agent.permissions.rules``."""

    verdict: str  # "allow", "ask", "deny"
    rule: str
    origin: str  # the file it stands in


@dataclass(frozen=True, slots=True)
class PermissionList:
    """The rules that hold here."""

    entries: tuple[PermissionEntry, ...]


@dataclass(frozen=True, slots=True)
class TrustNeeded:
    """The folder brings what takes effect only when the person trusts it. The worker loads the
    model meanwhile, and waits for a ``Trust``."""

    folder: str
    brings: tuple[str, ...]  # names of files, or how many more


@dataclass(frozen=True, slots=True)
class TrustDecided:
    """What the folder brings is used from now on, or not."""

    folder: str
    trusted: bool


@dataclass(frozen=True, slots=True)
class Closed:
    """The last event. ``resume_id`` names the saved conversation, if there is one."""

    resume_id: str = ""


Event = (
    PhaseChanged
    | LoadProgress
    | Ready
    | TurnStarted
    | MessageDelivered
    | PrefillProgress
    | TextDelta
    | ThinkingDelta
    | GenerationProgress
    | ToolCallStarted
    | ToolCallDelta
    | ToolCallReady
    | ApprovalNeeded
    | ToolOutput
    | ToolFinished
    | MalformedCall
    | Notice
    | TurnEnded
    | QueueChanged
    | Saved
    | SessionList
    | SessionPreview
    | SessionsFound
    | ModeChanged
    | PermissionList
    | Compacted
    | FilesRestored
    | DiffShown
    | TrustNeeded
    | TrustDecided
    | Closed
)
