"""The tool that creates a file or replaces a whole one."""

import threading
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.diff import unified_diff
from tools.encoding import SAMPLE_BYTES, detect
from tools.errors import ToolError
from tools.matching import without_line_numbers
from tools.seen import SeenFiles
from tools.workspace import FileMissing, Workspace

MAX_FILE_BYTES = 8 << 20  # more than any source file; a diff of it is still fast


class WriteTool:
    """Create a file, or replace one that was read before."""

    name = "write"
    description = "Create a file or replace a whole file."
    access = Access.WRITE
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "content": {"type": "string"}},
        "required": ["path", "content"],
    }
    defaults: dict[str, Any] = {}
    bounds: dict[str, tuple[int, int]] = {}

    def __init__(self, workspace: Workspace, seen: SeenFiles) -> None:
        self._workspace = workspace
        self._seen = seen

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Show the diff; raises when the file was not read or may not be written."""
        relative, old, _, diff = self._plan(arguments)
        verb = "create" if old is None else "overwrite"
        return Preview(title=f"{verb} {relative}", diff=diff, subject=relative)

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Write the file in one step."""
        relative, old, content, diff = self._plan(arguments)
        data = _encode(content)
        if cancel.is_set():
            return ToolResult(ok=False, text="interrupted; nothing was written")
        if data != old:
            self._workspace.write_bytes(relative, data)
        self._seen.note_content(relative, data)
        n_lines = content.count("\n") + (not content.endswith("\n") and content != "")
        verb = "Created" if old is None else "Unchanged" if data == old else "Replaced"
        text = f"{verb} {relative}: {n_lines} lines, {len(data)} bytes."
        return ToolResult(ok=True, text=text, title=f"write {relative}", diff=diff)

    def _plan(self, arguments: dict[str, Any]) -> tuple[str, bytes | None, str, str]:
        """Return the path, the old content if there is one, the new one, and the diff."""
        relative = str(self._workspace.check_writable(arguments["path"]))
        content = arguments["content"]
        if len(_encode(content)) > MAX_FILE_BYTES:
            raise ToolError(
                f"content has more than {MAX_FILE_BYTES} bytes", "Write a smaller file."
            )
        try:
            old = self._workspace.read_bytes(relative, MAX_FILE_BYTES)
        except FileMissing:
            return relative, None, content, unified_diff("", content, relative)
        if not self._seen.is_current(relative, old) and old != _encode(content):
            if self._seen.knows(relative):
                raise ToolError(
                    f"{relative} was changed since it was read", "Read it again, then write."
                )
            raise ToolError(f"{relative} exists and was not read", "Read it first, then write.")
        encoding = detect(old[:SAMPLE_BYTES], len(old) <= SAMPLE_BYTES, relative, len(old))
        before = encoding.decode(old)
        content = _without_copied_numbers(content, before)
        return relative, old, content, unified_diff(before, content, relative)


def _without_copied_numbers(content: str, before: str) -> str:
    """Undo what small models do: they write a file back with the line numbers that read shows.

    A file that had numbers keeps them, and so does a new file: there they may be meant.
    """
    if not content.startswith("1 ") or without_line_numbers(before) is not None:
        return content
    plain = without_line_numbers(content)
    if plain is None:
        return content
    return plain + "\n" if content.endswith("\n") else plain


def _encode(content: str) -> bytes:
    # A model's JSON may hold half of a surrogate pair, which no encoding can write.
    return content.encode("utf-8", errors="replace")
