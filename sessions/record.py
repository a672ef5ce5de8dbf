"""Plain data about saved conversations."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class SessionMeta:
    """What the application knows about a conversation and the checkpoint has no room for."""

    cwd: str = ""  # absolute path of the folder it works in; "" when unknown
    model: str = ""  # name of the model, for display


@dataclass(frozen=True, slots=True)
class SavedFile:
    """What one save wrote."""

    path: Path
    id: str  # 40 hex digits
    n_bytes: int
    stamp: str = ""  # names this version of it, see ``side_file.stamp``


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """One saved conversation, as a list shows it."""

    id: str  # 40 hex digits
    title: str
    cwd: str  # "" when unknown
    model: str  # "" when unknown
    fingerprint: str  # of the weights that computed the state
    tokens: int
    file_bytes: int
    created_at: int  # Unix seconds
    last_used: int  # Unix seconds
    path: Path
    family: str = ""  # model family: "llama"
    ctx: int = 0  # context length it was saved with, tokens
    name: str = ""  # that a person chose, "" without one
    is_pinned: bool = False  # never removed to make room
    is_titled: bool = True  # False: of an earlier program; its id is the hash of its text
    is_stripped: bool = False  # its text is kept and its state is not
    open_in: str = ""  # "process 12 on host" while it is open, this process included

    @property
    def label(self) -> str:
        """What a list calls it."""
        return self.name or self.title


@dataclass(frozen=True, slots=True)
class DamagedFile:
    """A checkpoint that a list had to leave out."""

    path: Path
    reason: str
