"""The tool that replaces one exact piece of text in a file.

The old text must occur once. When the exact text is not there, the tolerant passes of
``tools.matching`` are tried. The file keeps its line endings, its encoding, its byte order mark,
and its final newline.
"""

import difflib
import threading
import time
from dataclasses import dataclass
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.diff import unified_diff
from tools.encoding import SAMPLE_BYTES, detect, newline_of
from tools.errors import ToolError
from tools.matching import Ambiguous, find, line_number
from tools.seen import SeenFiles
from tools.text import one_line
from tools.workspace import Workspace

MAX_FILE_BYTES = 8 << 20  # more than any source file
_NEAREST_SEARCH_S = 0.5  # a failed edit must answer at once, also in a long file
_NEAREST_LINES = 8  # shown of the nearest place


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
        return Preview(title=f"edit {plan.path}", diff=plan.diff, subject=plan.path)

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
        return ToolResult(ok=True, text=plan.summary, title=f"edit {plan.path}", diff=plan.diff)

    def _plan(self, arguments: dict[str, Any]) -> _Plan:
        old, new = arguments["old"], arguments["new"]
        relative = str(self._workspace.check_writable(arguments["path"]))
        data = self._workspace.read_bytes(relative, MAX_FILE_BYTES)
        encoding = detect(data[:SAMPLE_BYTES], len(data) <= SAMPLE_BYTES, relative, len(data))
        text = encoding.decode(data)
        if encoding.encode(text) != data:
            raise ToolError(
                f"{relative} is not valid {encoding.name} throughout", "Use bash to change it."
            )
        if not old:
            raise ToolError("old is empty", "Give the text to replace, or use write.")
        if old == new:
            raise ToolError("old equals new, so nothing would change", "Change new.")
        match = find(text, old, new)
        if match is None:
            raise _miss(relative, text, old, new)
        if isinstance(match, Ambiguous):
            lines = ", ".join(map(str, match.lines[:10]))
            raise ToolError(
                f"old occurs {len(match.lines)} times in {relative}, at lines {lines}",
                "Add lines around it to old, so that it occurs once.",
            )
        replacement = match.replacement.replace("\n", newline_of(text if "\n" in text else new))
        after_text = text[: match.start] + replacement + text[match.end :]
        after = encoding.encode(after_text)
        if after == data:
            raise ToolError(
                f"{relative} already has the new text there", "Go on with the next step."
            )
        first = line_number(text, match.start)
        n_old = _n_lines(text[match.start : match.end])
        n_new = _n_lines(replacement)
        ignored = f" (ignored differences in {match.how})" if match.how else ""
        summary = f"Edited {relative} at line {first}: {n_old} lines became {n_new} lines{ignored}."
        return _Plan(relative, data, after, unified_diff(text, after_text, relative), summary)


def _n_lines(text: str) -> int:
    return text.count("\n") + (text != "" and not text.endswith("\n"))


def _miss(relative: str, text: str, old: str, new: str) -> ToolError:
    """Explain why ``old`` was not found, with the place that is most like it."""
    flat_new = new.replace("\r\n", "\n")
    place = text.replace("\r\n", "\n").find(flat_new) if flat_new.strip() else -1
    if place >= 0:
        line = line_number(text.replace("\r\n", "\n"), place)
        return ToolError(
            f"old is not in {relative}, and new is already there at line {line}",
            "The edit seems to be applied already; go on.",
        )
    lines = text.splitlines()
    best = _nearest_line(lines, old)
    if best is None:
        return ToolError(f"old is not in {relative}", "Read the file and copy the text exactly.")
    n_shown = min(_NEAREST_LINES, max(2, len(old.splitlines()) + 1))
    near = "\n".join(
        f"{index + 1} {_show_line(lines[index])}"
        for index in range(best, min(len(lines), best + n_shown))
    )
    return ToolError(
        f"old is not in {relative}",
        f"Copy the text exactly, without line numbers. The nearest lines are:\n{near}",
    )


def _show_line(line: str) -> str:
    """Clean a line for display without losing its indent."""
    body = line.lstrip(" \t")
    return line[: len(line) - len(body)] + one_line(body)


def _nearest_line(lines: list[str], old: str) -> int | None:
    """Return the index of the line where text like ``old`` begins, None when nothing is like it.

    Compares the longest line of ``old``, which says most about the place.
    """
    old_lines = old.splitlines()
    key = max(old_lines, key=lambda line: len(line.strip()), default="").strip()
    if not key:
        return None
    key = key[:300]
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(key)
    deadline = time.monotonic() + _NEAREST_SEARCH_S
    best_ratio, best = 0.5, None  # below one half, similar is only chance
    for index, line in enumerate(lines):
        if time.monotonic() > deadline:
            break
        matcher.set_seq1(line.strip()[:300])
        if matcher.real_quick_ratio() > best_ratio and matcher.quick_ratio() > best_ratio:
            ratio = matcher.ratio()
            if ratio > best_ratio:
                best_ratio, best = ratio, index
    if best is None:
        return None
    key_index = next(i for i, line in enumerate(old_lines) if line.strip()[:300] == key)
    return max(0, best - key_index)
