"""The Tool protocol and the plain data around it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

OnOutput = Callable[[str], None]  # live output, already stripped of control sequences


class Access(StrEnum):
    """What a tool can change. The approval policy decides by this, never by a tool's name."""

    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    REMOTE = "remote"  # something outside of the workspace, by a server
    HISTORY = "history"  # the project's version history, which outlives an undo


@dataclass(frozen=True, slots=True)
class Preview:
    """What a person sees before a call runs."""

    title: str  # one line: "bash: make test", "edit src/a.py"
    diff: str = ""  # unified diff of a file change, "" where there is none
    detail: str = ""  # the whole command, or anything else worth showing
    subject: str = ""  # what a permission's pattern is compared with: the command, the path
    risky: bool = False  # the default answer of the approval prompt is then "no"


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The outcome of a call. A failure is data for the model, not an exception."""

    ok: bool
    text: str  # what the model reads; bounded, plain, no terminal control sequences
    title: str = ""  # one line for the screen: "read a.py 1-40 of 120"
    diff: str = ""  # unified diff of what was changed
    exit_code: int | None = None  # of a command


class Tool(Protocol):
    name: str
    description: str
    parameters: dict[str, Any]  # JSON schema object with "properties" and "required"
    access: Access
    # Kept out of the schema, which the model pays for in every prompt.
    defaults: dict[str, Any]  # values of the optional arguments
    bounds: dict[str, tuple[int, int]]  # smallest and largest value; others are clamped

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Say what would happen. Changes nothing; raises ToolError when it cannot happen."""

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Do it. Raises ToolError; returns early with ok=False soon after ``cancel`` is set."""
