"""The calls of one answer: what is noted of them, and when."""

import threading
from typing import Any

import pytest

from ds4agent.agent.answer import Answer, End
from ds4agent.agent.answer_calls import AnswerCalls
from ds4agent.agent.calls import NOT_EXECUTED, CallOutcome
from ds4agent.agent.guards import REPEATED_CALLS, CallHistory
from ds4agent.agent.stop import INTERRUPTED, Stop
from ds4agent.agent.waiting import MAY_HAVE_RUN_BEFORE, LeftWaiting, Waiting
from ds4agent.events import Outcome
from engine.chat.format import CallMalformed, ToolCall


class Runner:
    """Carries out nothing; notes as a runner does whose every call is asked about and changes
    something."""

    def __init__(self, log: list[Any], results: dict[str, CallOutcome]) -> None:
        self._log = log
        self._results = results
        self.is_quitting = False

    def run(self, call_id, call, *, is_asked_again=False, note) -> CallOutcome:
        is_there = note(False)
        if self.is_quitting:
            assert is_there
            raise LeftWaiting
        note(True)
        self._log.append(f"{call.name} again" if is_asked_again else call.name)
        plain = CallOutcome(call.name, call.arguments, f"{call.name} ran", True)
        return self._results.get(call.name, plain)

    def skip(self, call_id, call, reason) -> CallOutcome:
        return CallOutcome(call.name, call.arguments, reason, False)


class Bench:
    """One answer with the calls ``a`` and ``b``, and a log of what was run and noted."""

    def __init__(self, **results: CallOutcome) -> None:
        self.log: list[Any] = []
        self.runner = Runner(self.log, results)
        self.cancel = threading.Event()
        self.history = CallHistory()
        self.answer_calls = AnswerCalls(self.runner, self.history, self.cancel, self._keep)
        self.calls = tuple(ToolCall(name, {}, "") for name in "ab")
        self.answer = Answer(End.CALLS, calls=[(f"id-{c.name}", c) for c in self.calls])

    def _keep(self, waiting: Waiting) -> bool:
        assert waiting.calls == self.calls
        self.log.append((tuple(text for _, text in waiting.done), waiting.is_started))
        return True

    def run(self, waiting: Waiting | None = None, stop: Stop | None = None):
        outcomes, stop = self.answer_calls.run(self.answer, waiting, stop)
        return [outcome.text for outcome in outcomes], stop


def test_each_call_is_noted_before_the_question_before_it_runs_and_when_it_has_ended() -> None:
    bench = Bench()
    assert bench.run() == (["a ran", "b ran"], None)
    assert bench.log == [
        ((), False),
        ((), True),
        "a",
        (("a ran",), False),
        (("a ran",), False),
        (("a ran",), True),
        "b",
        (("a ran", "b ran"), False),
    ]


def test_what_has_a_result_is_not_run_again_and_the_first_open_call_is_asked_about_again() -> None:
    bench = Bench()
    assert bench.run(Waiting(bench.calls, (("a", "alpha"),))) == (["alpha", "b ran"], None)
    assert bench.log[2] == "b again" and "a" not in bench.log


def test_a_call_that_may_have_run_stays_one_until_it_has_a_result() -> None:
    bench = Bench()
    bench.runner.is_quitting = True
    with pytest.raises(LeftWaiting):
        bench.run(Waiting(bench.calls, is_started=True))
    assert bench.log == [((), True)]
    bench.log.clear()
    bench.runner.is_quitting = False
    assert bench.run(Waiting(bench.calls, is_started=True)) == (["a ran", "b ran"], None)
    assert bench.log[:5] == [
        ((), True),
        ((), True),
        "a again",
        (("a ran",), False),
        (("a ran",), False),
    ]


def test_only_the_result_of_a_failure_says_that_it_may_have_run_before() -> None:
    failed = {name: CallOutcome(name, {}, "no", False) for name in "ab"}
    texts, _ = Bench(**failed).run(Waiting(Bench().calls, is_started=True))
    assert texts == ["no" + MAY_HAVE_RUN_BEFORE, "no"]
    texts, _ = Bench(**failed).run(Waiting(Bench().calls))
    assert texts == ["no", "no"]


@pytest.mark.parametrize(
    ("stop", "told"),
    [
        (INTERRUPTED, NOT_EXECUTED),
        (Stop(Outcome.ERROR, "enough"), "not executed: the turn was stopped"),
    ],
)
def test_a_stop_leaves_every_call_without_a_run_or_a_note(stop, told) -> None:
    bench = Bench()
    assert bench.run(stop=stop) == ([told, told], stop)
    assert bench.log == []


def test_an_interrupt_during_a_call_leaves_the_next_one() -> None:
    bench = Bench()
    bench.cancel.set()
    assert bench.run() == (["a ran", NOT_EXECUTED], INTERRUPTED)


def test_a_call_that_needs_somebody_ends_the_turn() -> None:
    bench = Bench(a=CallOutcome("a", {}, "nobody", False, refused=True))
    texts, stop = bench.run()
    assert texts == ["nobody", "not executed: the turn was stopped"]
    assert stop.outcome is Outcome.REFUSED and "--approval auto" in stop.error


def test_a_result_that_came_too_often_warns_and_then_stops() -> None:
    bench = Bench()
    for _ in range(REPEATED_CALLS - 1):
        assert bench.run() == (["a ran", "b ran"], None)
    texts, stop = bench.run()
    assert stop is None and all("Do something else" in text for text in texts)
    texts, stop = bench.run()
    assert stop.outcome is Outcome.ERROR and "same a call" in stop.error


def test_calls_that_could_not_be_read_are_noted_with_the_others() -> None:
    bench = Bench()
    bench.answer.malformed = [CallMalformed("no JSON", "")]
    noted: list[Waiting] = []
    runs = AnswerCalls(
        bench.runner, bench.history, bench.cancel, lambda waiting: noted.append(waiting) or True
    )
    runs.run(bench.answer, None, None)
    assert {waiting.malformed for waiting in noted} == {("no JSON",)}
