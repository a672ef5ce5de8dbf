"""The tool that makes a commit. It always asks, unless a rule of the person allows it.

A repository's configuration can name programs that git runs: filters, hooks, a signing program. So
git runs in the sandbox here too; only the repository's own folder becomes writable, but for what
decides which programs run. No hook runs and nothing is signed.
"""

import os
import secrets
import shlex
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from tools.base import Access, OnOutput, Preview, ToolResult
from tools.errors import SandboxUnavailable, ToolError
from tools.executables import find_trusted
from tools.git import SAFE_OPTIONS
from tools.protected import is_hidden
from tools.sandbox.policy import SandboxPolicy
from tools.sandbox.run import Sandbox
from tools.shell import OutputKeeper
from tools.text import one_line, spell_controls

# What decides which programs git runs, and where it looks for that.
_STAY_PROTECTED = (
    "config",
    "config.worktree",
    "hooks",
    "info",
    "modules",
    "worktrees",
    "commondir",
)
_TIMEOUT_S = 120.0
_ASK_TIMEOUT_S = 5.0


class GitCommitTool:
    """Stage files and commit them."""

    name = "git_commit"
    description = "Commit: the given paths, or every changed file that git knows."
    access = Access.HISTORY
    parameters: dict[str, Any] = {
        "type": "object",
        "properties": {
            "message": {"type": "string"},
            "paths": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["message"],
    }
    defaults: dict[str, Any] = {"paths": []}
    bounds: dict[str, tuple[int, int]] = {}

    def __init__(self, sandbox: Sandbox, max_result_bytes: int) -> None:
        self._sandbox = sandbox
        self._max_result_bytes = max_result_bytes

    def preview(self, arguments: dict[str, Any]) -> Preview:
        """Show the message and the paths."""
        self._check(arguments)
        paths = ", ".join(arguments["paths"]) or "all changed files that git knows"
        detail = spell_controls(f"{arguments['message']}\n\n({paths})")
        title = f"git commit: {one_line(spell_controls(arguments['message']), 80)}"
        return Preview(title=title, detail=detail, subject=arguments["message"])

    def run(
        self, arguments: dict[str, Any], cancel: threading.Event, on_output: OnOutput
    ) -> ToolResult:
        """Make the commit and return what git says."""
        self._check(arguments)
        git = ["git", *SAFE_OPTIONS]
        for setting in ("commit.gpgSign=false", "core.editor=false", "gc.auto=0"):
            git += ["-c", setting]
        for name in ("user.name", "user.email"):
            value = self._configured(name)
            git += ["-c", f"{name}={value}"] if value else []
        commit = [*git, "commit", "--no-verify", "-m", arguments["message"]]
        paths = arguments["paths"]
        if paths:
            steps = [[*git, "add", "--", *paths], [*commit, "--", *paths]]
        else:
            steps = [[*commit, "--all"]]
        repository = self._sandbox.root / ".git"
        absent = [repository / part for part in _STAY_PROTECTED if not _is_there(repository / part)]
        output = OutputKeeper(self._max_result_bytes, on_output)
        result = self._sandbox.run(
            " && ".join(map(shlex.join, steps)), _TIMEOUT_S, cancel, output.feed, adjust=_opened
        )
        output.finish()
        for path in filter(_is_there, absent):
            # Only a program of the repository's own configuration could have made it.
            os.rename(path, path.with_name(f"{path.name}.refused-{secrets.token_hex(4)}"))
        code = result.exit_code
        status = f"Exit code {code}." if code else result.stopped_because
        text = "\n".join(part for part in (output.text(), status) if part)
        title = f"git commit: {one_line(arguments['message'], 80)}"
        return ToolResult(ok=code == 0, text=text, title=title, exit_code=code)

    def _check(self, arguments: dict[str, Any]) -> None:
        if not arguments["message"].strip():
            raise ToolError("the message is empty", "Say what the change is for.")
        git = self._sandbox.root / ".git"
        if git.is_symlink() or not (git / "HEAD").is_file():
            raise ToolError(
                "the workspace is not the top folder of a plain git repository",
                "Ask the user to commit.",
            )
        for path in arguments["paths"]:
            if path.startswith((":", "/")) or ".." in Path(path).parts:
                raise ToolError(f"{one_line(path)} is no path below the workspace", "Give one.")
            if is_hidden(Path(path).name):
                raise ToolError(f"{one_line(path)} may hold secrets", "Leave it out.")
        if not self._sandbox.can_open_protected:
            raise SandboxUnavailable(
                f"{self._sandbox.name} cannot open the repository without its configuration",
                "Ask the user to commit.",
            )

    def _configured(self, name: str) -> str:
        """Return a setting of the person, whose file the sandbox cannot see."""
        program = find_trusted("git", self._sandbox.root)
        if not program:
            return ""
        done = subprocess.run(
            [program, "-C", str(self._sandbox.root), "config", "--get", name],
            env={"HOME": os.environ.get("HOME", "/"), "PATH": "/usr/bin:/bin"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ASK_TIMEOUT_S,
            check=False,
        )
        return done.stdout.decode("utf-8", "replace").strip()


def _is_there(path: Path) -> bool:
    return os.path.lexists(path)


def _opened(policy: SandboxPolicy) -> SandboxPolicy:
    """Make the repository's folder writable, without what decides which programs git runs."""
    git = policy.root / ".git"
    kept = tuple(git / name for name in _STAY_PROTECTED if _is_there(git / name))
    others = tuple(path for path in policy.protected if path != git)
    return replace(policy, pinned=(*policy.pinned, git), protected=(*others, *kept))
