"""All tools of one workspace, and the outer edge that turns every failure into a result.

The shell tool exists only with a working sandbox. Without one a command is not run at all.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tools.arguments import check
from tools.base import Access, OnOutput, Preview, Tool, ToolResult
from tools.edit import EditTool, MultiEditTool
from tools.errors import ToolError
from tools.executables import find_trusted
from tools.git import GitTool
from tools.git_commit import GitCommitTool
from tools.jobs import Jobs, JobStatusTool, JobStopTool
from tools.listing import ListTool
from tools.more import MoreTool
from tools.read import ReadTool
from tools.sandbox.probe import SandboxReport, open_sandbox
from tools.sandbox.run import Sandbox
from tools.search import SearchTool
from tools.seen import SeenFiles
from tools.shell import ShellTool
from tools.todo import TodoTool
from tools.undo.log import UndoLog
from tools.workspace import Workspace
from tools.write import WriteTool

DEFAULT_RESULT_BYTES = 32 << 10  # about 10,000 tokens: a third of a small context
_log = logging.getLogger(__name__)


class Toolbox:
    """The tools a model may call in one folder.

    Args:
        root: the workspace, an existing folder.
        sandbox: where commands run; None leaves the shell tool out.
        report: why there is no sandbox, for people.
        max_result_bytes: bound on the text of every result; choose less for a small context.
        undo: keeps what calls change; belongs to the caller.
    """

    def __init__(
        self,
        root: Path,
        sandbox: Sandbox | None,
        report: SandboxReport | None = None,
        max_result_bytes: int = DEFAULT_RESULT_BYTES,
        undo: UndoLog | None = None,
    ) -> None:
        self.workspace = Workspace(root)
        self.sandbox = sandbox
        self.todo = TodoTool()
        self._undo = undo
        self._jobs: Jobs | None = None
        self.seen = seen = SeenFiles()
        read = ReadTool(self.workspace, seen, max_result_bytes)
        tools: list[Tool] = [
            read,
            MoreTool(read),
            WriteTool(self.workspace, seen),
            EditTool(self.workspace, seen),
            MultiEditTool(self.workspace, seen),
            ListTool(self.workspace, max_result_bytes),
            SearchTool(self.workspace, max_result_bytes, find_trusted("rg", self.workspace.root)),
        ]
        if sandbox is not None:
            self._jobs = Jobs(sandbox, max_result_bytes)
            tools += [
                ShellTool(sandbox, self._jobs, max_result_bytes),
                JobStatusTool(self._jobs),
                JobStopTool(self._jobs),
            ]
            if find_trusted("git", self.workspace.root):
                tools += [
                    GitTool(sandbox, max_result_bytes),
                    GitCommitTool(sandbox, max_result_bytes),
                ]
            self.sandbox_name = sandbox.name
        else:
            reason = report.reason if report is not None and report.reason else "not asked for"
            self.sandbox_name = f"off: {reason}"
        tools.append(self.todo)
        self.tools: dict[str, Tool] = {tool.name: tool for tool in tools}

    @classmethod
    def from_folder(cls, root: Path, max_result_bytes: int = DEFAULT_RESULT_BYTES) -> "Toolbox":
        """Open the tools of a folder with the best sandbox this system has."""
        sandbox, report = open_sandbox(root)
        return cls(root, sandbox, report, max_result_bytes)

    def close(self) -> None:
        """End the background jobs and release the workspace."""
        if self._jobs is not None:
            self._jobs.close()
            self._absorb_jobs()
        self.workspace.close()

    def preview(self, name: str, arguments: dict[str, Any]) -> Preview:
        """Say what a call would do; changes nothing.

        Raises:
            ToolError: the call cannot be carried out. ``run`` returns the same as a result.
        """
        tool = self._tool(name)
        checked, _ = check(tool, arguments)
        try:
            return tool.preview(checked)
        except OSError as error:
            raise ToolError(_os_failure(name, error), "Try another way") from error

    def run(
        self,
        name: str,
        arguments: dict[str, Any],
        cancel: threading.Event | None = None,
        on_output: OnOutput | None = None,
    ) -> ToolResult:
        """Carry out a call. Never raises for what a model or a file system can do wrong."""
        title = name
        try:
            tool = self._tool(name)
            checked, notes = check(tool, arguments)
            with self._recorded(tool, checked):
                result = tool.run(checked, cancel or threading.Event(), on_output or _drop)
        except ToolError as error:
            hint = f". {error.hint}" if error.hint else ""
            return ToolResult(ok=False, text=f"{error}{hint}", title=title)
        except OSError as error:
            text = f"{_os_failure(name, error)}. Try another way."
            return ToolResult(ok=False, text=text, title=title)
        except Exception:  # the tool runner's outer edge: a bug of ours must not end the turn
            _log.exception("tool %s failed", name)
            return ToolResult(
                ok=False, text=f"{name} failed by an internal error. Try another way.", title=title
            )
        if not notes:
            return result
        return ToolResult(
            ok=result.ok,
            text=f"{result.text}\n({'; '.join(notes)})",
            title=result.title,
            diff=result.diff,
            exit_code=result.exit_code,
        )

    @contextmanager
    def _recorded(self, tool: Tool, arguments: dict[str, Any]) -> Iterator[None]:
        """Keep what the call changes, so that it can be undone."""
        if self._undo is None or tool.access not in (Access.WRITE, Access.EXECUTE):
            yield
            return
        self._absorb_jobs()
        paths = None
        if tool.access is Access.WRITE and "path" in arguments:
            paths = [str(self.workspace.relative(arguments["path"]))]
        with self._undo.step(paths):
            yield

    def _absorb_jobs(self) -> None:
        if self._undo is not None and self._jobs is not None and self._jobs.take_changed():
            self._undo.absorb()

    def _tool(self, name: str) -> Tool:
        tool = self.tools.get(name)
        if tool is not None:
            return tool
        if name == ShellTool.name:
            raise ToolError(
                f"there is no {name} tool because the sandbox is {self.sandbox_name}",
                "Use the other tools.",
            )
        raise ToolError(f"there is no tool {name!r}", f"The tools are: {', '.join(self.tools)}.")


def _os_failure(name: str, error: OSError) -> str:
    return f"{name} failed: {error.strerror or type(error).__name__}"


def _drop(text: str) -> None:
    """Ignore live output when nobody watches."""
