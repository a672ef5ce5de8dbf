"""The calls of one answer, one after the other, each noted on the disk as far as it has come.

There is a note when the person is asked about a call, one before a call that may change something
runs, and one when a call has ended. So a program that was killed asks again what was not answered,
says of a call that was running that it may have run, and runs nothing twice unasked.
"""

import dataclasses
import threading
from collections.abc import Callable

from ds4agent.agent.answer import Answer
from ds4agent.agent.calls import NOT_EXECUTED, CallOutcome, CallRunner
from ds4agent.agent.guards import REPEATED_CALLS, CallHistory
from ds4agent.agent.stop import INTERRUPTED, Stop
from ds4agent.agent.waiting import MAY_HAVE_RUN_BEFORE, Waiting
from ds4agent.events import Outcome


class AnswerCalls:
    """Runs the calls of the answers of one turn."""

    def __init__(
        self,
        runner: CallRunner,
        history: CallHistory,
        cancel: threading.Event,
        keep_waiting: Callable[[Waiting], bool],
    ) -> None:
        """Prepare.

        Args:
            runner: deals with single calls.
            history: which calls the turn has made.
            cancel: set when the turn was interrupted.
            keep_waiting: brings the answer and a note of its calls to the disk; returns whether
                they are there.
        """
        self._runner = runner
        self._history = history
        self._cancel = cancel
        self._keep_waiting = keep_waiting

    def run(
        self, answer: Answer, waiting: Waiting | None, stop: Stop | None
    ) -> tuple[list[CallOutcome], Stop | None]:
        """Run the calls of an answer.

        Args:
            answer: it made them.
            waiting: what was noted of them when the conversation was saved, None for new ones.
            stop: why none of them is run, None when they are.

        Returns:
            What they came to, and why the turn ends with them, None when it goes on.

        Raises:
            LeftWaiting: the program ends while the person is asked.
        """
        done = waiting.done if waiting is not None else ()
        outcomes = [
            CallOutcome(name, call.arguments, text, ok=True)
            for (name, text), (_, call) in zip(done, answer.calls, strict=False)
        ]
        is_asked_again = waiting is not None  # the first of them
        may_have_run = waiting is not None and waiting.is_started

        def keep(is_started: bool) -> bool:
            calls = tuple(call for _, call in answer.calls)
            results = tuple((outcome.name, outcome.text) for outcome in outcomes)
            malformed = tuple(bad.reason for bad in answer.malformed)
            is_started = is_started or may_have_run
            return self._keep_waiting(Waiting(calls, results, malformed, is_started))

        for call_id, call in answer.calls[len(done) :]:
            if stop is not None:
                reason = NOT_EXECUTED
                if stop.outcome is not Outcome.INTERRUPTED:
                    reason = "not executed: the turn was stopped"
                outcomes.append(self._runner.skip(call_id, call, reason))
                continue
            outcome = self._runner.run(call_id, call, is_asked_again=is_asked_again, note=keep)
            if may_have_run and not outcome.ok:
                outcome = dataclasses.replace(outcome, text=outcome.text + MAY_HAVE_RUN_BEFORE)
            is_asked_again = may_have_run = False
            outcome, stop = self._judge(outcome)
            outcomes.append(outcome)
            keep(False)  # what ran is not run again, and its result is not lost
            if self._cancel.is_set():
                stop = INTERRUPTED
        return outcomes, stop

    def _judge(self, outcome: CallOutcome) -> tuple[CallOutcome, Stop | None]:
        """Add a warning to a result that came before, and stop when warnings do not help."""
        if outcome.refused:
            return outcome, Stop(
                Outcome.REFUSED,
                f"{outcome.name} needs an approval and nobody is there to give it. "
                "Use --approval auto to allow it.",
            )
        times = self._history.count(
            outcome.name, outcome.arguments, outcome.text, changed=outcome.changed
        )
        if times > REPEATED_CALLS:
            return outcome, Stop(
                Outcome.ERROR,
                f"stopped: the model made the same {outcome.name} call {times} times and got the "
                "same result. Say what to do differently.",
            )
        if times == REPEATED_CALLS:
            warning = (
                f"\nThis same call gave this same result {times} times. "
                "Do something else, or answer now."
            )
            outcome = dataclasses.replace(outcome, text=outcome.text + warning)
        return outcome, None
