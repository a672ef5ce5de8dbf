"""The tool that continues a file where the last read of it ended."""

import threading
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.errors import ToolError
from tools.read import ReadTool


class MoreTool:
    """Show the next lines of a file; each file has its own place."""

    name = "more"
    description = "Show the next lines of the file read last, or of another one read before."
    access = Access.READ
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {"path": {"type": "string"}, "max_lines": {"type": "integer"}},
        "required": [],
    }
    defaults: dict[str, Any] = {"path": "", "max_lines": ReadTool.defaults["max_lines"]}
    bounds = {"max_lines": ReadTool.bounds["max_lines"]}

    def __init__(self, read: ReadTool) -> None:
        self._read = read

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Name the file and the line; raises when there is nothing more."""
        path, line = self._place(arguments)
        return Preview(title=f"more of {path} from line {line}", subject=path)

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Return what ``read`` returns for the next lines."""
        path, line = self._place(arguments)
        wanted = {"path": path, "start_line": line, "max_lines": arguments["max_lines"]}
        return self._read.run(wanted, cancel, on_output)

    def _place(self, arguments: dict[str, Any]) -> tuple[str, int]:
        path = self._read.last_path
        if arguments["path"]:
            path = self._read.relative(arguments["path"])
        line = self._read.next_lines.get(path)
        if not path or path not in self._read.next_lines:
            raise ToolError("no file was read yet" if not path else f"{path} was not read yet",
                            "Use read first.")  # fmt: skip
        if line is None:
            raise ToolError(f"{path} was read to its end", "Use read to see a part again.")
        return path, line
