"""What the agent does for models that seldom end a turn by themselves."""

from itertools import pairwise
from pathlib import Path

from ds4agent.agent.profiles.small import SMALL as PROFILE
from ds4agent.events import Outcome, ToolFinished
from tests.agent.conftest import call

SMALL = 1_500_000_000  # parameters
READ = call("read", path="notes.txt")


def test_task_is_repeated_after_each_result_for_a_small_model_only(open_rig) -> None:
    for n_params, times in ((SMALL, 2), (0, 1)):
        rig = open_rig([READ, "It says alpha."], n_params=n_params)
        rig.ready()
        assert rig.turn("what is in notes?").outcome is Outcome.DONE
        assert rig.said().count("what is in notes?") == times


def test_repeated_call_is_taken_back_and_answered_in_words(open_rig) -> None:
    rig = open_rig([READ, READ, "not reached"], n_params=SMALL)
    rig.ready()
    end = rig.turn("what is in notes?")
    assert end.outcome is Outcome.DONE
    first, second = rig.of(ToolFinished)
    assert first.ok and not second.ok and "nothing has changed" in second.text
    rig.wait_idle()
    # The second call is no part of the conversation, and the answer does not begin like a call.
    assert rig.said().count("<tool_response>") == 1
    answer = rig.said().rpartition("<|im_start|>assistant\n")[2]
    assert answer and answer[0] not in "<{[` \n" and answer.endswith("<|im_end|>\n")


def test_same_read_after_a_change_is_run_again(open_rig, workspace: Path) -> None:
    edit = call("edit", path="notes.txt", old="alpha", new="gamma")
    rig = open_rig([READ, edit, READ, "Now it says gamma."], n_params=SMALL)
    rig.ready()
    assert rig.turn("what if alpha were gamma?").outcome is Outcome.DONE
    assert [finished.ok for finished in rig.of(ToolFinished)] == [True, True, True]
    assert "Now it says gamma." in rig.texts()


def test_large_model_may_repeat_a_call(open_rig) -> None:
    rig = open_rig([READ, READ, "Twice the same."], n_params=0)
    rig.ready()
    assert rig.turn("read it twice").outcome is Outcome.DONE
    assert [finished.ok for finished in rig.of(ToolFinished)] == [True, True]


def test_turn_after_an_answer_in_words_goes_on(open_rig) -> None:
    rig = open_rig([READ, READ, "Fine."], n_params=SMALL)
    rig.ready()
    rig.turn("what is in notes?")
    end = rig.turn("thanks")
    assert end.outcome is Outcome.DONE and "Fine." in rig.texts()


def test_small_model_answers_in_words_after_ten_rounds(open_rig, workspace: Path) -> None:
    words = ["alpha", *(f"<{i}>" for i in range(30))]
    calls = [call("edit", path="notes.txt", old=a, new=b) for a, b in pairwise(words)]
    rig = open_rig([READ, *calls], n_params=SMALL)
    rig.ready()
    assert rig.turn("count").outcome is Outcome.DONE
    assert len(rig.of(ToolFinished)) == PROFILE.max_call_rounds
