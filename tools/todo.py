"""The tool with which a model keeps its list of steps, so that a person sees the plan too."""

import threading
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.errors import ToolError
from tools.text import one_line

MAX_ITEMS = 30
_MAX_CHARS = 200


class Progress(StrEnum):
    """How far a step is."""

    PENDING = "pending"
    DOING = "doing"
    DONE = "done"


_MARKS = {Progress.PENDING: "[ ]", Progress.DOING: "[>]", Progress.DONE: "[x]"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the plan."""

    text: str
    progress: Progress


class TodoTool:
    """Replace the list of steps. Its text is what a compaction keeps."""

    name = "todo"
    description = "Keep your list of steps: send the whole list each time."
    access = Access.READ  # it changes nothing but the list
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "text": {"type": "string"},
                        "status": {"type": "string", "enum": [p.value for p in Progress]},
                    },
                    "required": ["text", "status"],
                },
            }
        },
        "required": ["items"],
    }
    defaults: dict[str, Any] = {}
    bounds: dict[str, tuple[int, int]] = {}

    def __init__(self) -> None:
        self.steps: tuple[Step, ...] = ()

    def text(self) -> str:
        """Return the list, one step a line, "" when there is none."""
        return "\n".join(f"{_MARKS[step.progress]} {step.text}" for step in self.steps)

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Say how many steps there are."""
        return Preview(title=f"todo: {len(arguments['items'])} steps")

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Keep the list."""
        items = arguments["items"]
        if len(items) > MAX_ITEMS:
            raise ToolError(
                f"a list of {len(items)} steps is too long", f"Use {MAX_ITEMS} at most."
            )
        self.steps = tuple(
            Step(one_line(item["text"], _MAX_CHARS), Progress(item["status"])) for item in items
        )
        n_done = sum(step.progress is Progress.DONE for step in self.steps)
        title = f"todo: {n_done} of {len(self.steps)} done"
        return ToolResult(ok=True, text=self.text() or "The list is empty.", title=title)
