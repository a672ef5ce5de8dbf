"""The tool that finds text in the files of the workspace.

ripgrep does the work where it is installed; a plain walk does it elsewhere. Both give the same
lines in the same order: sorted by path and line, without ``.git``, binary files, hidden files,
links, and what ``.gitignore`` names. ripgrep is our own process: the arguments are fixed, no shell
reads them, and the pattern is never taken as an option.
"""

import threading
from collections.abc import Generator
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.errors import ToolError
from tools.grep_walk import walk_matches
from tools.query import Match, Query
from tools.ripgrep import ripgrep_matches
from tools.text import strip_controls
from tools.workspace import Workspace

MAX_MATCHES = 100  # more does not help to find the place; a narrower query does
MAX_LINE_CHARS = 250
TIMEOUT_S = 20.0


class SearchTool:
    """Find lines that contain a text or match a regular expression."""

    name = "search"
    description = "Find text in all files of a folder."
    access = Access.READ
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "path": {"type": "string"},
            "regex": {"type": "boolean"},
            "glob": {"type": "string"},
        },
        "required": ["query"],
    }
    defaults: dict[str, Any] = {"path": ".", "regex": False, "glob": ""}
    bounds: dict[str, tuple[int, int]] = {}

    def __init__(self, workspace: Workspace, max_result_bytes: int, ripgrep: str = "") -> None:
        self._workspace = workspace
        self._max_result_bytes = max_result_bytes
        self._ripgrep = ripgrep

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Name the query; refused paths raise."""
        relative = self._workspace.relative(arguments["path"])
        return Preview(title=f"search {arguments['query']!r} in {relative}", subject=str(relative))

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Return ``path:line: text`` for each match."""
        text = arguments["query"]
        if not text.strip() or "\n" in text or "\0" in text:
            raise ToolError("query must be one line of text", "Give the text to look for.")
        relative = self._workspace.relative(arguments["path"])
        query = Query(text, arguments["regex"], relative, arguments["glob"])
        title = f"search {text!r}"
        lines: list[str] = []
        budget = self._max_result_bytes
        matches = self._matches(query, cancel)
        is_cut = False
        for path, line_number, line in matches:
            clean = strip_controls(line).strip()
            if len(clean) > MAX_LINE_CHARS:
                clean = clean[:MAX_LINE_CHARS] + "…"
            entry = f"{path}:{line_number}: {clean}"
            budget -= len(entry.encode("utf-8", errors="replace")) + 1
            if len(lines) == MAX_MATCHES or budget < 0:
                is_cut = True
                break
            lines.append(entry)
        matches.close()
        if cancel.is_set():
            return ToolResult(ok=False, text="interrupted", title=title)
        if not lines:
            where = "" if str(relative) == "." else f" in {relative}"
            return ToolResult(ok=True, text=f"No match{where}.", title=f"{title}: none")
        if is_cut:
            lines.append(f"(more matches; only the first {len(lines)} are shown; narrow the query)")
        return ToolResult(ok=True, text="\n".join(lines), title=f"{title}: {len(lines)} lines")

    def _matches(self, query: Query, cancel: threading.Event) -> Generator[Match, None, None]:
        if not self._workspace.is_folder(str(query.folder)):
            return walk_matches(self._workspace, query, cancel, TIMEOUT_S)
        if self._ripgrep:
            return ripgrep_matches(self._ripgrep, self._workspace, query, cancel, TIMEOUT_S)
        return walk_matches(self._workspace, query, cancel, TIMEOUT_S)
