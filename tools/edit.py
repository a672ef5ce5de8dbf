"""The tools that replace exact pieces of text in a file.

The old text must occur once. When the exact text is not there, the tolerant passes of
``tools.matching`` are tried. The file keeps its line endings, its encoding, its byte order mark,
and its final newline.
"""

import threading
from dataclasses import dataclass
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.diff import unified_diff
from tools.elsewhere import find_elsewhere
from tools.encoding import SAMPLE_BYTES, detect
from tools.errors import ToolError
from tools.replacing import NotFound, Replacement, replace_once
from tools.seen import SeenFiles
from tools.workspace import Workspace

MAX_FILE_BYTES = 8 << 20  # more than any source file


@dataclass(frozen=True, slots=True)
class _Plan:
    path: str
    before: bytes
    after: bytes
    diff: str
    summary: str


class EditTool:
    """Replace one piece of text that occurs exactly once."""

    name = "edit"
    description = "Replace old text, which must occur once in the file, by new text."
    access = Access.WRITE
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "old": {"type": "string"},
            "new": {"type": "string"},
        },
        "required": ["path", "old", "new"],
    }
    defaults: dict[str, Any] = {}
    bounds: dict[str, tuple[int, int]] = {}

    def __init__(self, workspace: Workspace, seen: SeenFiles) -> None:
        self._workspace = workspace
        self._seen = seen

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Show the diff; raises when the old text is not found once."""
        plan = self._plan(arguments)
        return Preview(title=f"{self.name} {plan.path}", diff=plan.diff, subject=plan.path)

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Make the replacement in one step."""
        plan = self._plan(arguments)
        if cancel.is_set():
            return ToolResult(ok=False, text="interrupted; nothing was changed")
        if self._workspace.read_bytes(plan.path, MAX_FILE_BYTES) != plan.before:
            raise ToolError(f"{plan.path} was changed meanwhile", "Read it and edit again.")
        self._workspace.write_bytes(plan.path, plan.after)
        # Only a content that was known before stays known: an edit shows one place, not the file.
        if self._seen.is_current(plan.path, plan.before):
            self._seen.note_content(plan.path, plan.after)
        return ToolResult(
            ok=True, text=plan.summary, title=f"{self.name} {plan.path}", diff=plan.diff
        )

    def _plan(self, arguments: dict[str, Any]) -> _Plan:
        relative = str(self._workspace.check_writable(arguments["path"]))
        data = self._workspace.read_bytes(relative, MAX_FILE_BYTES)
        encoding = detect(data[:SAMPLE_BYTES], len(data) <= SAMPLE_BYTES, relative, len(data))
        text = encoding.decode(data)
        if encoding.encode(text) != data:
            raise ToolError(
                f"{relative} is not valid {encoding.name} throughout", "Use bash to change it."
            )
        after_text, places = self._replace(text, arguments, relative)
        after = encoding.encode(after_text)
        if after == data:
            raise ToolError(f"{relative} would be as it is", "Go on with the next step.")
        summary = f"Edited {relative} {'; '.join(places)}."
        return _Plan(relative, data, after, unified_diff(text, after_text, relative), summary)

    def _replace(self, text: str, arguments: dict[str, Any], what: str) -> tuple[str, list[str]]:
        """Return the new text, and a line for people about each place."""
        done = self._replace_once(text, arguments, what)
        return done.text, [str(done)]

    def _replace_once(self, text: str, edit: dict[str, str], what: str) -> Replacement:
        try:
            return replace_once(text, edit["old"], edit["new"], what)
        except NotFound as error:
            others = find_elsewhere(self._workspace, edit["old"], what)
            if not others:
                raise
            raise ToolError(
                f"{error}, but in {', '.join(others)}", "Is that the file to edit?"
            ) from error


class MultiEditTool(EditTool):
    """Make several replacements in one file, all or none."""

    name = "multi_edit"
    description = "Make several edits of one file, in order; all or none."
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"old": {"type": "string"}, "new": {"type": "string"}},
                    "required": ["old", "new"],
                },
            },
        },
        "required": ["path", "edits"],
    }

    def _replace(self, text: str, arguments: dict[str, Any], what: str) -> tuple[str, list[str]]:
        if not arguments["edits"]:
            raise ToolError("edits is empty", "Give at least one old and new.")
        places = []
        for number, edit in enumerate(arguments["edits"], 1):
            try:
                done = self._replace_once(text, edit, what)
            except ToolError as error:
                raise ToolError(f"edit {number}: {error}; no edit was made", error.hint) from error
            text = done.text
            places.append(str(done))
        return text, places
