"""The tool that looks at the version history, and changes nothing.

git runs in the sandbox with the workspace read-only, so neither a repository's own configuration
nor an argument can make it write. Pagers, external diffs, hooks and the file watcher are off.
"""

import shlex
import threading
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.errors import ToolError
from tools.sandbox.policy import read_only
from tools.sandbox.run import Sandbox
from tools.shell import OutputKeeper
from tools.text import one_line, spell_controls

READING = (
    "status",
    "diff",
    "log",
    "show",
    "blame",
    "branch",
    "describe",
    "grep",
    "ls-files",
    "ls-tree",
    "merge-base",
    "reflog",
    "rev-list",
    "rev-parse",
    "shortlog",
    "stash list",
    "stash show",
    "tag",
)
# For every git that is started here. No configuration of a repository overrules these.
SAFE_OPTIONS = (
    "--no-pager",
    "--no-optional-locks",
    "-c", "core.hooksPath=/dev/null",
    "-c", "core.fsmonitor=false",
    "-c", "core.pager=cat",
    "-c", "core.quotePath=false",
    "-c", "color.ui=never",
)  # fmt: skip
_DIFFING = ("diff", "log", "show")
_TIMEOUT_S = 60.0


class GitTool:
    """Run one reading git command."""

    name = "git"
    description = "Look at the git history: status, diff, log, show, blame, branch, ... Read-only."
    access = Access.READ
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {"arguments": {"type": "string"}},
        "required": ["arguments"],
    }
    defaults: dict[str, Any] = {}
    bounds: dict[str, tuple[int, int]] = {}

    def __init__(self, sandbox: Sandbox, max_result_bytes: int) -> None:
        self._sandbox = sandbox
        self._max_result_bytes = max_result_bytes

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Show the command; one that is not for reading raises."""
        words = _checked(arguments["arguments"])
        command = spell_controls(shlex.join(["git", *words]))
        return Preview(title=one_line(command, 100), detail=command, subject=command)

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Run it and return its output."""
        words = _checked(arguments["arguments"])
        output = OutputKeeper(self._max_result_bytes, on_output)
        plain = ["--no-ext-diff", "--no-textconv"] if words[0] in _DIFFING else []
        command = shlex.join(["git", *SAFE_OPTIONS, words[0], *plain, *words[1:]])
        result = self._sandbox.run(command, _TIMEOUT_S, cancel, output.feed, adjust=read_only)
        output.finish()
        code = result.exit_code
        status = f"Stopped: {result.stopped_because}." if result.stopped_because else ""
        if code:
            status = f"Exit code {code}."
        text = "\n".join(part for part in (output.text(), status) if part) or "(no output)"
        title = one_line(spell_controls(shlex.join(["git", *words])), 100)
        return ToolResult(ok=code == 0, text=text, title=title, exit_code=code)


def _checked(text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ToolError(f"the arguments of git cannot be read: {error}", "Quote them.") from error
    if words[:1] == ["git"]:
        words = words[1:]
    if words and words[0] not in READING and " ".join(words[:2]) not in READING:
        raise ToolError(
            f"git {one_line(words[0], 40)} is not for reading",
            f"This tool knows {', '.join(READING)}. git_commit makes a commit.",
        )
    if not words:
        raise ToolError("the arguments of git are empty", "For example: status --short")
    return words
