"""Who may do what: the policy as a table, and the question as events."""

import pytest

from ds4agent.agent.approval import ApprovalPolicy, rule_for
from ds4agent.events import (
    ApprovalNeeded,
    ModeChanged,
    Notice,
    Outcome,
    PermissionList,
    ToolFinished,
    TurnEnded,
)
from ds4agent.permissions.file import PermissionFile
from ds4agent.permissions.rules import OwnedRule, Rule, Verdict
from ds4agent.requests import Answer, EditPermissions, Mode, SetMode, Submit
from tests.agent.conftest import call
from tools.base import Access


@pytest.mark.parametrize(
    ("mode", "access", "is_sandboxed", "verdict"),
    [
        (Mode.PLAN, Access.READ, True, Verdict.ALLOW),
        (Mode.PLAN, Access.WRITE, True, Verdict.DENY),
        (Mode.PLAN, Access.EXECUTE, True, Verdict.DENY),
        (Mode.ASK, Access.READ, True, Verdict.ALLOW),
        (Mode.ASK, Access.WRITE, True, Verdict.ASK),
        (Mode.ASK, Access.EXECUTE, True, Verdict.ASK),
        (Mode.AUTO, Access.WRITE, False, Verdict.ALLOW),
        (Mode.AUTO, Access.EXECUTE, True, Verdict.ALLOW),
        (Mode.AUTO, Access.EXECUTE, False, Verdict.ASK),
        (Mode.FULL, Access.WRITE, False, Verdict.ALLOW),
        (Mode.FULL, Access.EXECUTE, False, Verdict.ALLOW),
    ],
)
def test_policy_table(mode, access, is_sandboxed, verdict) -> None:
    assert ApprovalPolicy(is_sandboxed).decide("any", access, mode).verdict is verdict


def test_policy_when_always_was_said_never_overrules_plan() -> None:
    policy = ApprovalPolicy(is_sandboxed=True)
    policy.remember(Rule("write"))
    assert policy.decide("write", Access.WRITE, Mode.ASK).verdict is Verdict.ALLOW
    assert policy.decide("edit", Access.WRITE, Mode.ASK).verdict is Verdict.ASK
    assert policy.decide("write", Access.WRITE, Mode.PLAN).verdict is Verdict.DENY


@pytest.mark.parametrize("mode", Mode)
def test_policy_when_a_rule_denies_holds_in_every_mode(mode) -> None:
    rules = [
        OwnedRule(Verdict.ALLOW, Rule("bash"), "settings"),
        OwnedRule(Verdict.DENY, Rule.parse("bash(git push*)"), "project"),
        OwnedRule(Verdict.DENY, Rule.parse("read(secrets/**)"), "project"),
    ]
    policy = ApprovalPolicy(True, rules)
    for tool, access, subject in (
        ("bash", Access.EXECUTE, "cd a && git push -f"),
        ("read", Access.READ, "secrets/key.pem"),
    ):
        assert policy.decide(tool, access, mode, subject).verdict is Verdict.DENY


def test_policy_when_a_rule_asks_full_mode_asks() -> None:
    policy = ApprovalPolicy(True, [OwnedRule(Verdict.ASK, Rule("bash"), "project")])
    assert policy.decide("bash", Access.EXECUTE, Mode.FULL, "ls").verdict is Verdict.ASK


def test_policy_always_for_a_command_is_this_command_only() -> None:
    policy = ApprovalPolicy(is_sandboxed=True)
    policy.remember(rule_for("bash", Access.EXECUTE, "ls *.py"))
    asked = [
        policy.decide("bash", Access.EXECUTE, Mode.ASK, command).verdict
        for command in ("ls *.py", "ls a.py", "ls *.py; rm a.py")
    ]
    assert asked == [Verdict.ALLOW, Verdict.ASK, Verdict.ASK]


def test_policy_logs_every_decision(caplog) -> None:
    caplog.set_level("INFO")
    ApprovalPolicy(is_sandboxed=True).decide("bash", Access.EXECUTE, Mode.AUTO, "ls\x1b[2J")
    assert "allow: bash ls (auto mode)" in caplog.text


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


def test_always_is_remembered_for_the_project_and_for_the_next_run(
    open_rig, workspace, tmp_path
) -> None:
    file = PermissionFile(workspace, tmp_path / "permissions.toml")
    write = call("write", path="a.txt", content="x")
    rig = open_rig([write, "Done."], mode=Mode.ASK, permission_file=file)
    rig.ready()
    rig.send(Submit("write"))
    asked = rig.wait(ApprovalNeeded)
    assert asked.rule == "write"
    rig.send(Answer(asked.call_id, True, always=True))
    rig.wait(TurnEnded)
    again = open_rig(
        [call("write", path="b.txt", content="x"), "Done."], mode=Mode.ASK, permission_file=file
    )
    again.ready()
    assert again.turn("write").outcome is Outcome.DONE
    assert not again.of(ApprovalNeeded)
    again.send(EditPermissions("remove", "write"))
    assert again.wait(PermissionList).entries == ()
    assert file.read() == []


def test_denied_call_tells_the_model_which_rule(open_rig, workspace) -> None:
    rules = (OwnedRule(Verdict.DENY, Rule.parse("write(*.lock)"), ".ds4/config.toml:1"),)
    rig = open_rig([call("write", path="a.lock", content="x"), "Not then."], rules=rules)
    rig.ready()
    assert rig.turn("write").outcome is Outcome.DONE
    rig.wait_idle()
    assert "the rule write(*.lock) forbids it" in rig.said()
    assert not (workspace / "a.lock").exists()


def test_full_mode_is_given_at_the_start_only(open_rig) -> None:
    rig = open_rig(["Hi."], mode=Mode.ASK)
    rig.ready()
    rig.send(SetMode(Mode.FULL))
    assert "--approval full" in rig.wait(Notice).text
    full = open_rig(["Hi."], mode=Mode.FULL)
    full.ready()
    assert [notice for notice in full.of(Notice) if "Full mode" in notice.text]
    full.send(SetMode(Mode.ASK))
    assert full.wait(ModeChanged).mode is Mode.ASK
    full.send(SetMode(Mode.FULL))
    assert full.wait(ModeChanged).mode is Mode.FULL


def test_wrong_rule_is_one_line_and_changes_nothing(open_rig) -> None:
    rig = open_rig(["Hi."])
    rig.ready()
    for action, rule, told in (
        ("allow", "bash(", "is no rule"),
        ("remove", "bash", "no remembered rule"),
        ("grant", "bash", "nothing that can be done"),
    ):
        rig.send(EditPermissions(action, rule))
        assert told in rig.wait(Notice).text
    rig.send(EditPermissions())
    assert rig.wait(PermissionList).entries == ()
