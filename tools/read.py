"""The tool that shows part of a text file with line numbers.

The file is read once, in pieces: the wanted lines are kept, the rest is only counted and hashed.
So memory stays bounded for a file of any size, and the first lines of 50 MB come in a fraction of
a second.
"""

import codecs
import hashlib
import os
import threading
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.encoding import SAMPLE_BYTES, Encoding, detect
from tools.errors import ToolError
from tools.seen import SeenFiles
from tools.text import strip_controls
from tools.workspace import Workspace, chunks

MAX_LINE_CHARS = 1000  # longer lines are data or minified code; nobody edits them by line
MAX_SCANNED_BYTES = 256 << 20  # beyond this the rest is not even counted (about 1 s)


class ReadTool:
    """Show numbered lines of a text file."""

    name = "read"
    description = "Show a text file with line numbers."
    access = Access.READ
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "start_line": {"type": "integer"},
            "max_lines": {"type": "integer"},
        },
        "required": ["path"],
    }
    defaults: dict[str, Any] = {"start_line": 1, "max_lines": 200}
    bounds = {"start_line": (1, 1 << 31), "max_lines": (1, 5000)}

    def __init__(self, workspace: Workspace, seen: SeenFiles, max_result_bytes: int) -> None:
        self._workspace = workspace
        self._seen = seen
        self._max_result_bytes = max_result_bytes
        self.last_path = ""  # relative to the workspace
        self.next_lines: dict[str, int | None] = {}  # where to go on; None at the end of a file

    def relative(self, path: str) -> str:
        """Return a path as ``next_lines`` names it; refused paths raise."""
        return str(self._workspace.relative(path))

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Name the file; refused paths raise."""
        relative = str(self._workspace.relative(arguments["path"]))
        return Preview(title=f"read {relative}", subject=relative)

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Return the lines, where they are in the file, and how to get the next ones."""
        relative = str(self._workspace.relative(arguments["path"]))
        start_line, max_lines = arguments["start_line"], arguments["max_lines"]
        with self._workspace.open_file(relative) as (fd, status):
            sample = os.read(fd, SAMPLE_BYTES)
            is_whole = len(sample) == status.st_size
            encoding = detect(sample, is_whole, relative, status.st_size)
            part = _LineCollector(encoding, start_line, max_lines, self._max_result_bytes)
            hasher = hashlib.sha256(sample)
            part.feed(sample)
            n_read = len(sample)
            for chunk in chunks(fd):
                n_read += len(chunk)
                if cancel.is_set():
                    return ToolResult(ok=False, text="interrupted", title=f"read {relative}")
                if n_read > MAX_SCANNED_BYTES:
                    break
                hasher.update(chunk)
                part.feed(chunk)
            part.finish()
            if n_read <= MAX_SCANNED_BYTES:
                self._seen.note(relative, hasher.hexdigest())
        is_counted = n_read <= MAX_SCANNED_BYTES
        last = start_line + len(part.lines) - 1
        self.last_path = relative
        self.next_lines[relative] = last + 1 if not is_counted or last < part.n_lines else None
        return _report(relative, part, encoding, status.st_size, is_counted)


class _LineCollector:
    """Split a stream of bytes into lines and keep a window of them."""

    def __init__(self, encoding: Encoding, start_line: int, max_lines: int, max_bytes: int) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding.name)(errors="replace")
        self._mark_bytes = len(encoding.mark)
        self._newline = "\n".encode(encoding.name)
        self.start_line = start_line
        self._max_lines, self._budget = max_lines, max_bytes
        self._current = ""
        self._current_chars = 0
        self.lines: list[str] = []
        self.n_lines = 0  # complete lines so far
        self.is_full = False

    def feed(self, data: bytes) -> None:
        if self._mark_bytes:
            data, self._mark_bytes = data[self._mark_bytes :], 0
        if self.is_full:
            # Two-byte newlines are only counted where they are aligned, so decode those.
            one_byte = len(self._newline) == 1
            self.n_lines += (
                data.count(b"\n") if one_byte else self._decoder.decode(data).count("\n")
            )
            self._current_chars = 0 if data.endswith(self._newline) else 1
            return
        first, *rest = self._decoder.decode(data).split("\n")
        self._extend(first)
        for index, piece in enumerate(rest):
            self._end_line()
            if self.is_full:
                self.n_lines += len(rest) - 1 - index
                self._current_chars = len(rest[-1])
                return
            self._extend(piece)

    def finish(self) -> None:
        if self._current_chars:
            self._end_line()

    def _extend(self, piece: str) -> None:
        self._current_chars += len(piece)
        if len(self._current) <= MAX_LINE_CHARS:
            self._current += piece[: MAX_LINE_CHARS + 1]

    def _end_line(self) -> None:
        self.n_lines += 1
        if self.n_lines >= self.start_line and not self.is_full:
            line = strip_controls(self._current.removesuffix("\r"))
            if self._current_chars > MAX_LINE_CHARS + 1:
                n_more = self._current_chars - MAX_LINE_CHARS
                line = f"{line[:MAX_LINE_CHARS]}… [{n_more} more characters]"
            self.lines.append(line)
            self._budget -= len(line.encode("utf-8", errors="replace")) + 8
            self.is_full = len(self.lines) >= self._max_lines or self._budget <= 0
        self._current, self._current_chars = "", 0


def _report(
    relative: str, part: _LineCollector, encoding: Encoding, n_bytes: int, is_counted: bool
) -> ToolResult:
    total = f"{part.n_lines}" if is_counted else f"more than {part.n_lines}"
    if not part.lines:
        if n_bytes == 0:
            return ToolResult(ok=True, text=f"{relative} is empty.", title=f"read {relative}")
        raise ToolError(
            f"{relative} has only {total} lines", f"Use a start_line of at most {part.n_lines}."
        )
    first = part.start_line
    last = first + len(part.lines) - 1
    label = f", {encoding.label}" if encoding.label else ""
    head = f"{relative} lines {first}-{last} of {total}{label}"
    body = "\n".join(f"{first + index} {line}" for index, line in enumerate(part.lines))
    # Small models write back what they read, a heading included: only what it tells is worth that.
    is_whole = is_counted and first == 1 and last == part.n_lines
    text = body if is_whole and not label else f"{head}\n{body}"
    if not is_counted:
        text += f"\n(the file has {n_bytes} bytes; continue with start_line={last + 1})"
    elif last < part.n_lines:
        text += f"\n({part.n_lines - last} more lines; continue with start_line={last + 1})"
    return ToolResult(ok=True, text=text, title=f"read {head}")
