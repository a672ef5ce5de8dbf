"""Hooks: commands of the person that run before or after calls of the model.

::

    [[hooks]]
    when = "after"
    calls = "edit(**.py)"
    run = "ruff check ."

``calls`` is a rule as in ``ds4agent.permissions.rules``. The command runs in the sandbox of the
model's commands, in the workspace, and finds the call in ``DS4_TOOL``, ``DS4_SUBJECT`` (its path
or command) and ``DS4_ARGUMENTS`` (JSON). *before*: an exit code other than 0 forbids the call, and
the model reads what the command printed. *after*: what it printed stands behind the result.
A hook that cannot run forbids the call, too: whoever wrote it counts on it. What a hook changes in
the workspace belongs to the turn, and is undone with it.
"""

import json
import shlex
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ds4agent.permissions.rules import Rule, Verdict
from ds4agent.plain import PlainStream
from tools.base import Access
from tools.errors import ToolError

if TYPE_CHECKING:  # settings hold hooks, and they are read before the first paint
    from tools.sandbox.run import Sandbox
    from tools.undo.log import UndoLog

_MOST_OUTPUT = 4000  # characters of one hook that the model reads: the end of it
_LONGEST_ARGUMENTS = 32 << 10  # characters; more does not fit into an environment


class When(StrEnum):
    """On which side of the call."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Hook:
    """One entry of the settings."""

    when: When
    calls: Rule
    run: str
    timeout_s: float = 60.0


class Hooks:
    """Runs the hooks that a call has."""

    def __init__(
        self, hooks: Sequence[Hook], sandbox: "Sandbox | None", undo: "UndoLog | None" = None
    ) -> None:
        self._hooks = tuple(hooks)
        self._sandbox = sandbox
        self._undo = undo

    def before(
        self,
        tool: str,
        access: Access,
        subject: str,
        arguments: dict[str, Any],
        cancel: threading.Event,
    ) -> str:
        """Return "" when the call may run, else what the model is told."""
        for hook in self._of(When.BEFORE, tool, access, subject):
            ok, output = self._run(hook, tool, subject, arguments, cancel)
            if not ok:
                told = output or "it gave no reason"
                return f"not executed: a hook of the person forbids it: {told}"
        return ""

    def after(
        self,
        tool: str,
        access: Access,
        subject: str,
        arguments: dict[str, Any],
        cancel: threading.Event,
    ) -> str:
        """Return what is to stand behind the result, "" for nothing."""
        outputs = []
        for hook in self._of(When.AFTER, tool, access, subject):
            ok, output = self._run(hook, tool, subject, arguments, cancel)
            if output or not ok:
                state = "" if ok else " (failed)"
                outputs.append(f"\n[{hook.run.splitlines()[0]}{state}]\n{output}".rstrip())
        return "".join(outputs)

    def _of(self, when: When, tool: str, access: Access, subject: str) -> list[Hook]:
        is_command = access is Access.EXECUTE
        # As for a rule that denies: a hook is there to catch, so it fits parts of a line, too.
        return [
            hook
            for hook in self._hooks
            if hook.when is when
            and hook.calls.fits(tool, subject, is_command=is_command, verdict=Verdict.DENY)
        ]

    def _run(
        self,
        hook: Hook,
        tool: str,
        subject: str,
        arguments: dict[str, Any],
        cancel: threading.Event,
    ) -> tuple[bool, str]:
        if self._sandbox is None:
            return False, "the hook cannot run, there is no sandbox"
        text = json.dumps(arguments, ensure_ascii=False)
        if len(text) > _LONGEST_ARGUMENTS:
            text = json.dumps({"too_long": len(text)})
        values = {"DS4_TOOL": tool, "DS4_SUBJECT": subject[:_LONGEST_ARGUMENTS]}
        values["DS4_ARGUMENTS"] = text
        exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
        stream, pieces = PlainStream(), []
        try:
            with self._undo.step(None) if self._undo is not None else nullcontext():
                result = self._sandbox.run(
                    f"export {exports}\n{hook.run}",
                    hook.timeout_s,
                    cancel,
                    lambda data: pieces.append(stream.feed(data.decode("utf-8", "replace"))),
                )
        except ToolError as error:
            return False, f"the hook cannot run: {error}"
        output = ("".join(pieces) + stream.finish()).strip()[-_MOST_OUTPUT:]
        if result.stopped_because:
            return False, f"{output}\nstopped: {result.stopped_because}".strip()
        return result.exit_code == 0, output
