"""Who may do what: the policy as a table, and the question as events."""

import pytest

from ds4agent.agent.approval import ApprovalPolicy, Verdict
from ds4agent.events import (
    Answer,
    ApprovalNeeded,
    Mode,
    ModeChanged,
    Outcome,
    SetMode,
    Submit,
    ToolFinished,
    TurnEnded,
)
from tests.agent.conftest import call
from tools.base import Access


@pytest.mark.parametrize(
    ("mode", "access", "is_sandboxed", "verdict"),
    [
        (Mode.PLAN, Access.READ, True, Verdict.ALLOW),
        (Mode.PLAN, Access.WRITE, True, Verdict.REFUSE),
        (Mode.PLAN, Access.EXECUTE, True, Verdict.REFUSE),
        (Mode.ASK, Access.READ, True, Verdict.ALLOW),
        (Mode.ASK, Access.WRITE, True, Verdict.ASK),
        (Mode.ASK, Access.EXECUTE, True, Verdict.ASK),
        (Mode.AUTO, Access.WRITE, False, Verdict.ALLOW),
        (Mode.AUTO, Access.EXECUTE, True, Verdict.ALLOW),
        (Mode.AUTO, Access.EXECUTE, False, Verdict.ASK),
    ],
)
def test_policy_table(mode, access, is_sandboxed, verdict) -> None:
    assert ApprovalPolicy(is_sandboxed).decide("any", access, mode) is verdict


def test_policy_when_always_was_said_never_overrules_plan() -> None:
    policy = ApprovalPolicy(is_sandboxed=True)
    policy.remember("write")
    assert policy.decide("write", Access.WRITE, Mode.ASK) is Verdict.ALLOW
    assert policy.decide("edit", Access.WRITE, Mode.ASK) is Verdict.ASK
    assert policy.decide("write", Access.WRITE, Mode.PLAN) is Verdict.REFUSE


def test_approval_when_given_runs_the_call(open_rig, workspace) -> None:
    rig = open_rig([call("write", path="a.txt", content="one\n"), "Done."], mode=Mode.ASK)
    rig.ready()
    rig.send(Submit("write"))
    asked = rig.wait(ApprovalNeeded)
    assert "a.txt" in asked.title and "+one" in asked.diff
    assert not (workspace / "a.txt").exists()
    rig.send(Answer("call-0", True))  # of another call: ignored
    rig.send(Answer(asked.call_id, True))
    assert rig.wait(TurnEnded).outcome is Outcome.DONE
    assert (workspace / "a.txt").read_text(encoding="utf-8") == "one\n"


def test_approval_when_refused_tells_the_model_why_and_goes_on(open_rig, workspace) -> None:
    rig = open_rig([call("write", path="a.txt", content="one"), "Then not."], mode=Mode.ASK)
    rig.ready()
    rig.send(Submit("write"))
    asked = rig.wait(ApprovalNeeded)
    rig.send(Answer(asked.call_id, False, reason="wrong folder"))
    assert rig.wait(TurnEnded).outcome is Outcome.DONE
    rig.wait_idle()
    assert "refused by the user: wrong folder" in rig.said()
    assert not (workspace / "a.txt").exists()


def test_approval_when_always_is_not_asked_again(open_rig, workspace) -> None:
    replies = [call("write", path=f"{n}.txt", content="x") for n in range(3)] + ["Done."]
    rig = open_rig(replies, mode=Mode.ASK)
    rig.ready()
    rig.send(Submit("write"))
    asked = rig.wait(ApprovalNeeded)
    rig.send(Answer(asked.call_id, True, always=True))
    assert rig.wait(TurnEnded).outcome is Outcome.DONE
    assert len(rig.of(ApprovalNeeded)) == 1
    assert (workspace / "2.txt").exists()


def test_mode_when_set_holds_from_the_next_call_on(open_rig) -> None:
    rig = open_rig(
        [call("write", path="a.txt", content="x"), call("write", path="b.txt", content="x"), "Ok."],
        mode=Mode.ASK,
    )
    rig.ready()
    rig.send(Submit("write"))
    asked = rig.wait(ApprovalNeeded)
    rig.send(SetMode(Mode.PLAN))
    assert rig.wait(ModeChanged).mode is Mode.PLAN
    rig.send(Answer(asked.call_id, True))
    rig.wait(TurnEnded)
    first, second = rig.of(ToolFinished)
    assert first.ok and not second.ok


def test_call_that_cannot_happen_is_not_asked_about(open_rig) -> None:
    rig = open_rig([call("write", path="../out.txt", content="x"), "Sorry."], mode=Mode.ASK)
    rig.ready()
    assert rig.turn("write").outcome is Outcome.DONE
    assert not rig.of(ApprovalNeeded)
    assert not rig.of(ToolFinished)[0].ok


def test_headless_when_an_approval_is_needed_ends_refused(open_rig, workspace) -> None:
    rig = open_rig(
        [call("write", path="a.txt", content="x"), "never"], mode=Mode.ASK, headless=True
    )
    rig.ready()
    end = rig.turn("write")
    assert end.outcome is Outcome.REFUSED
    assert "--approval" in end.error
    assert not (workspace / "a.txt").exists()
