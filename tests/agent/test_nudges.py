"""A model that stops too early is asked once to go on, and only when that is sure to be right."""

import pytest

from ds4agent.agent.nudges import GO_ON, NO_ANSWER, NOTHING_CHANGED, nudge
from ds4agent.agent.profiles.guide import ReplyForm
from ds4agent.agent.profiles.small import SmallGuide
from ds4agent.events import Notice, Outcome
from ds4agent.requests import Mode
from tests.agent.conftest import call

SMALL = 1_500_000_000  # parameters


@pytest.mark.parametrize(
    "answer",
    ["I will read the file.", "Sure! Let me look at it:", "Found it.\nNow I'll fix the test.",
     "Let's run it", "I am going to change a.py now..."],
)  # fmt: skip
def test_intent_without_a_call_is_answered(answer) -> None:
    assert nudge(answer) == GO_ON


@pytest.mark.parametrize(
    "answer",
    ["Done. I will not touch b.py. All tests pass.", "The file has 3 lines.", "Shall I go on?",
     "I will explain. " + "words " * 200 + "I will stop."],
)  # fmt: skip
def test_answer_is_left_alone(answer) -> None:
    assert nudge(answer) == ""


def test_no_answer_at_all_is_asked_for_one() -> None:
    assert nudge(" \n") == nudge("", is_undone=True) == NO_ANSWER


def test_a_change_that_was_only_described_is_asked_for() -> None:
    answer = "The bug is in line 3."
    assert nudge(answer, is_undone=True) == NOTHING_CHANGED
    assert nudge(answer) == ""
    assert nudge("I will fix it.", is_undone=True) == GO_ON


@pytest.mark.parametrize(
    ("task", "n_params", "told"),
    [
        ("Fix the bug in a.py.", SMALL, NOTHING_CHANGED),
        ("Fix the bug in a.py.", 0, ""),
        ("How do I fix the bug?", SMALL, ""),
        ("What would change?", SMALL, ""),
        ("Tell me about a.py.", SMALL, ""),
    ],
)
def test_only_a_small_model_that_was_to_change_something_is_told(
    open_rig, workspace, monkeypatch, task, n_params, told
) -> None:
    monkeypatch.setattr(SmallGuide, "form", lambda self: ReplyForm())  # the reply is left free
    (workspace / "a.py").write_text("x\n", encoding="utf-8")
    rig = open_rig(["The bug is in line 3.", "It is."], n_params=n_params)
    rig.ready()
    assert rig.turn(task).outcome is Outcome.DONE
    notices = [event.text for event in rig.of(Notice) if "it was told" in event.text]
    assert [notice.partition("told: ")[2] for notice in notices] == ([told] if told else [])


def test_nudge_comes_once_in_a_turn_and_the_person_sees_it(open_rig, workspace) -> None:
    rig = open_rig(["I will look.", call("read", path="notes.txt"), "I will stop."])
    rig.ready()
    assert rig.turn("what is in the notes?").outcome is Outcome.DONE
    notices = [notice.text for notice in rig.of(Notice) if GO_ON in notice.text]
    assert len(notices) == 1
    rig.wait_idle()
    assert rig.said().count(GO_ON) == 1
    assert rig.said().endswith("I will stop.<|im_end|>\n")


def test_nudge_never_comes_in_the_last_round(open_rig) -> None:
    rig = open_rig(["I will look."], max_rounds=1)
    rig.ready()
    assert rig.turn("look").outcome is Outcome.DONE
    assert GO_ON not in rig.said()


SMALL = 1_500_000_000  # parameters


def test_small_model_is_not_sent_to_change_files_in_plan_mode(open_rig) -> None:
    rig = open_rig(["The bug is in line 3."], mode=Mode.PLAN, n_params=SMALL)
    rig.ready()
    assert rig.turn("Fix the bug in notes.txt.").outcome is Outcome.DONE
    assert NOTHING_CHANGED not in rig.said()


def test_answer_in_a_form_is_never_nudged(open_rig) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    rig = open_rig(['{"n": 4}', '{"n": 5}'], n_params=SMALL, answer_schema=schema)
    rig.ready()
    assert rig.turn("Write the number of lines.").outcome is Outcome.DONE
    assert rig.texts() == '{"n": 4}'


def test_model_that_was_made_to_answer_in_words_is_not_sent_back_to_calls(open_rig) -> None:
    read = call("read", path="notes.txt")
    rig = open_rig([read, read, "It says alpha.", "Never said."], n_params=SMALL)
    rig.ready()
    assert rig.turn("Change what the notes say.").outcome is Outcome.DONE
    assert NOTHING_CHANGED not in rig.said()


def test_interrupt_while_the_nudge_is_read_ends_the_turn_as_interrupted(open_rig) -> None:
    rig = open_rig(["I will look.", "Never said."])
    rig.ready()
    conversation = rig.conversation
    feed = conversation.feed

    def feed_interrupted(tokens, *arguments):
        if GO_ON in rig.engine.tokenizer.render(tokens).decode("utf-8", "replace"):
            rig.worker.interrupt()
        return feed(tokens, *arguments)

    conversation.feed = feed_interrupted
    assert rig.turn("look").outcome is Outcome.INTERRUPTED
    rig.wait_idle()
    assert rig.turn("and now?").outcome is Outcome.DONE
