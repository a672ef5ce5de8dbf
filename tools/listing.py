"""The tool that lists one folder."""

import os
import stat
import threading
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.protected import is_hidden
from tools.text import one_line
from tools.workspace import Workspace

MAX_ENTRIES = 300  # about 3,000 tokens; more is a folder to search, not to list


class ListTool:
    """List a folder: folders first, then files with their sizes."""

    name = "list"
    description = "List a folder."
    access = Access.READ
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {"path": {"type": "string"}},
        "required": [],
    }
    defaults: dict[str, Any] = {"path": "."}
    bounds: dict[str, tuple[int, int]] = {}

    def __init__(self, workspace: Workspace, max_result_bytes: int) -> None:
        self._workspace = workspace
        self._max_result_bytes = max_result_bytes

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Name the folder; refused paths raise."""
        relative = str(self._workspace.relative(arguments["path"]))
        return Preview(title=f"list {relative}", subject=relative)

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Return one entry a line."""
        folders: list[str] = []
        files: list[str] = []
        with self._workspace.open_folder(arguments["path"]) as (fd, relative):
            for name in sorted(os.listdir(fd)):
                if cancel.is_set():
                    return ToolResult(ok=False, text="interrupted", title=f"list {relative}")
                status = _status(name, fd)
                if status is None:
                    continue  # removed meanwhile
                shown = one_line(name)
                if stat.S_ISDIR(status.st_mode):
                    folders.append(f"{shown}/")
                elif is_hidden(name):
                    continue
                elif stat.S_ISLNK(status.st_mode):
                    files.append(f"{shown} -> {_target(name, fd)}")
                elif stat.S_ISREG(status.st_mode):
                    files.append(f"{shown} {size_text(status.st_size)}")
                else:
                    files.append(f"{shown} (not a regular file)")
        title = f"list {relative}: {len(folders)} folders, {len(files)} files"
        entries = folders + files
        shown_entries: list[str] = []
        budget = self._max_result_bytes
        for entry in entries[:MAX_ENTRIES]:
            budget -= len(entry.encode("utf-8", errors="replace")) + 1
            if budget < 0:
                break
            shown_entries.append(entry)
        n_more = len(entries) - len(shown_entries)
        if n_more:
            shown_entries.append(f"({n_more} more entries; use search with a glob)")
        return ToolResult(ok=True, text="\n".join(shown_entries) or "(empty)", title=title)


def size_text(n_bytes: int) -> str:
    """Return a size for people: 312 B, 4.1 KB, 2.0 MB."""
    if n_bytes < 1000:
        return f"{n_bytes} B"
    size = float(n_bytes)
    units = ["KB", "MB", "GB"]
    while size >= 1_000_000 and len(units) > 1:
        size /= 1000
        units.pop(0)
    return f"{size / 1000:.1f} {units[0]}"


def _status(name: str, folder_fd: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
    except OSError:
        return None


def _target(name: str, folder_fd: int) -> str:
    try:
        return one_line(os.readlink(name, dir_fd=folder_fd))
    except OSError:
        return "?"
