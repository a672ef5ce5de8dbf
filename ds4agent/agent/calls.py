"""Carrying out the calls of one answer: show, ask, run, tell."""

import dataclasses
import itertools
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ds4agent.agent.approval import ApprovalPolicy, rule_for
from ds4agent.agent.event_stream import EventStream
from ds4agent.agent.mailbox import Mailbox
from ds4agent.agent.waiting import LeftWaiting
from ds4agent.errors import ConfigError, explain
from ds4agent.events import ApprovalNeeded, Notice, Phase, PhaseChanged, ToolCallReady, ToolFinished
from ds4agent.extensions.hooks import Hooks
from ds4agent.permissions.rules import Verdict
from ds4agent.plain import one_line
from ds4agent.requests import Mode
from engine.chat.format import ToolCall
from tools.base import Access, Preview, ToolResult
from tools.errors import ToolError
from tools.toolbox import Toolbox

NOT_EXECUTED = "not executed: interrupted"
_log = logging.getLogger(__name__)
_unasked = itertools.count(1)  # names for calls that no model made
REPEATED = "not executed: the same call was made before and nothing has changed since"


@dataclass(frozen=True, slots=True)
class CallOutcome:
    """One call that was dealt with."""

    name: str
    arguments: dict[str, Any]
    text: str  # for the model
    ok: bool
    changed: bool = False  # a file was changed
    refused: bool = False  # headless: nobody could be asked
    diff: str = ""  # of the file that was changed
    exit_code: int | None = None  # of a command
    missed: bool = False  # it was not forbidden, but could not be done


class CallRunner:
    """Runs calls in the workspace under the approval policy."""

    def __init__(
        self,
        toolbox: Toolbox,
        policy: ApprovalPolicy,
        mailbox: Mailbox,
        stream: EventStream,
        is_headless: bool,
        hooks: Hooks,
    ) -> None:
        self._hooks = hooks
        self._toolbox = toolbox
        self._policy = policy
        self._mailbox = mailbox
        self._stream = stream
        self._is_headless = is_headless

    def can_change(self, name: str) -> bool:
        """Tell whether a tool changes files by itself."""
        tool = self._toolbox.tools.get(name)
        return tool is not None and tool.access is Access.WRITE

    def run(
        self,
        call_id: str,
        call: ToolCall,
        *,
        is_asked_again: bool = False,
        note: Callable[[bool], bool] = lambda is_started: False,
    ) -> CallOutcome:
        """Deal with one call. Whatever happens is a result for the model, never an exception.

        Args:
            call_id: names it in events.
            call: what the model wrote.
            is_asked_again: it was noted as open before, so it never runs without a question.
            note: brings to the disk that the call is open, before the person is asked about it
                (False) and before it runs, if it may change something (True); returns whether
                that is there. Without one, nothing is.

        Raises:
            LeftWaiting: the program ends while the person is asked.
        """
        tool = self._toolbox.tools.get(call.name)
        problem = ""
        preview = Preview(call.name)
        try:
            preview = self._toolbox.preview(call.name, call.arguments)
        except ToolError as error:
            problem = explain(error)
        title = one_line(preview.title or call.name)
        self._stream.emit(ToolCallReady(call_id, call.name, call.arguments, title, preview.diff))
        if tool is None or problem:
            return dataclasses.replace(self._refuse(call_id, call, problem), missed=True)
        if self._mailbox.cancel.is_set():
            return self.skip(call_id, call, NOT_EXECUTED, is_shown=True)
        mode = self._mailbox.mode
        decision = self._policy.decide(call.name, tool.access, mode, preview.subject)
        verdict = decision.verdict
        if is_asked_again and verdict is Verdict.ALLOW:
            verdict = Verdict.ASK
        match verdict:
            case Verdict.DENY if mode is Mode.PLAN and tool.access is not Access.READ:
                return self._refuse(call_id, call, _not_in(mode))
            case Verdict.DENY:
                text = f"not executed: {decision.reason}. Do it another way, or ask the person."
                return self._refuse(call_id, call, text)
            case Verdict.ASK if self._is_headless:
                text = f"not executed: {call.name} needs an approval and nobody is there to give it"
                return self._refuse(call_id, call, text, refused=True)
            case Verdict.ASK:
                refusal = self._ask(call_id, call, title, preview, tool.access, note)
                if refusal:
                    return self._refuse(call_id, call, refusal)
        if tool.access is not Access.READ:
            note(True)
        return self._execute(call_id, call, tool.access, title, preview.subject)

    def run_unasked(self, name: str, arguments: dict[str, Any]) -> CallOutcome | None:
        """Run a call that the model did not make; None when a person would have to allow it and
        nobody is there, or when it is forbidden."""
        call = ToolCall(name, arguments, "")
        tool = self._toolbox.tools.get(name)
        if tool is None or self._mailbox.cancel.is_set():
            return None
        try:
            subject = self._toolbox.preview(call.name, call.arguments).subject
        except ToolError:
            return None
        decision = self._policy.decide(call.name, tool.access, self._mailbox.mode, subject)
        is_asked = decision.verdict is Verdict.ASK and not self._is_headless
        if decision.verdict is not Verdict.ALLOW and not is_asked:
            return None
        return self.run(f"unasked-{next(_unasked)}", call)

    def skip(
        self, call_id: str, call: ToolCall, reason: str, *, is_shown: bool = False
    ) -> CallOutcome:
        """Give a call that is not run its result."""
        if not is_shown:
            self._stream.emit(ToolCallReady(call_id, call.name, call.arguments, call.name))
        return self._refuse(call_id, call, reason)

    def _ask(
        self,
        call_id: str,
        call: ToolCall,
        title: str,
        preview: Preview,
        access: Access,
        note: Callable[[bool], bool],
    ) -> str:
        """Ask the person; return "" for a yes, or the result that tells the model of the no."""
        self._stream.emit(PhaseChanged(Phase.APPROVAL, call.name))
        rule = rule_for(call.name, access, preview.subject)
        question = ApprovalNeeded(
            call_id, call.name, title, preview.detail, preview.diff, preview.risky, str(rule)
        )
        is_kept = note(False)
        answer = self._mailbox.ask(question)
        if answer is None:
            if is_kept and self._mailbox.is_quitting:
                raise LeftWaiting
            return NOT_EXECUTED
        _log.info(
            "%s by the person%s: %s",
            "allowed" if answer.approved else "refused",
            f", always {one_line(str(rule))}" if answer.approved and answer.always else "",
            title,
        )
        if answer.approved:
            if answer.always:
                try:
                    self._policy.remember(rule)
                except ConfigError as error:
                    self._stream.emit(
                        Notice(f"Allowed for this run only: {explain(error)}", "warning")
                    )
            return ""
        reason = answer.reason.strip()
        return f"refused by the user: {reason}" if reason else "refused by the user"

    def _execute(
        self, call_id: str, call: ToolCall, access: Access, title: str, subject: str
    ) -> CallOutcome:
        self._stream.emit(PhaseChanged(Phase.TOOL, call.name))
        start_s = time.monotonic()
        of_call = (call.name, access, subject, call.arguments, self._mailbox.cancel)
        refusal = self._hooks.before(*of_call)
        if refusal:
            return self._refuse(call_id, call, refusal)
        result = self._toolbox.run(
            call.name,
            call.arguments,
            self._mailbox.cancel,
            lambda text: self._stream.tool_output(call_id, text),
        )
        added = self._hooks.after(*of_call)
        if added:
            result = dataclasses.replace(result, text=result.text + added)
        self._tell(call_id, call, result, title, time.monotonic() - start_s)
        return CallOutcome(
            call.name,
            call.arguments,
            result.text,
            result.ok,
            changed=result.ok and access is Access.WRITE,
            diff=result.diff if result.ok else "",
            exit_code=result.exit_code,
            missed=not result.ok,
        )

    def _refuse(
        self, call_id: str, call: ToolCall, text: str, *, refused: bool = False
    ) -> CallOutcome:
        self._tell(call_id, call, ToolResult(False, text), call.name, 0.0)
        return CallOutcome(call.name, call.arguments, text, False, refused=refused)

    def _tell(
        self, call_id: str, call: ToolCall, result: ToolResult, title: str, seconds: float
    ) -> None:
        self._stream.emit(
            ToolFinished(
                call_id=call_id,
                name=call.name,
                ok=result.ok,
                title=one_line(result.title or title),
                text=result.text,
                diff=result.diff,
                exit_code=result.exit_code,
                seconds=seconds,
            )
        )


def _not_in(mode: Mode) -> str:
    return (
        f"not executed: {mode.value} mode is read-only. Read what you need, then describe the "
        "change you would make."
    )
