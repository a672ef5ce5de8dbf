"""A call waits for the person's word, and the program ends: the question comes again."""

from pathlib import Path

import pytest

from ds4agent.agent.answer import Answering, new_call_id
from ds4agent.agent.saver import Saver
from ds4agent.agent.waiting import (
    MAY_HAVE_RUN,
    MAY_HAVE_RUN_BEFORE,
    NOT_RUN,
    RUNNING_ASKED_AGAIN,
    Waiting,
    waiting_in,
)
from ds4agent.events import (
    ApprovalNeeded,
    Notice,
    Outcome,
    Ready,
    ToolCallReady,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)
from ds4agent.requests import Answer, Mode, Start, Submit
from engine.chat.format import ToolCall
from tests.agent.conftest import call

ASKS = call("write", path="a.txt", content="one\n")


@pytest.fixture
def options(tmp_path: Path) -> dict:
    return {"mode": Mode.ASK, "store_folder": tmp_path / "kv"}


def again(options: dict) -> dict:
    return {**options, "start": Start(resume_latest=True)}


def ask(rig, text: str = "write a.txt") -> ApprovalNeeded:
    rig.ready()
    rig.send(Submit(text))
    return rig.wait(ApprovalNeeded)


def test_the_question_comes_again_and_yes_runs_the_call(open_rig, options, workspace) -> None:
    replies = [ASKS, "It is written."]
    first = open_rig(replies, **options)
    question = ask(first)
    first.close()
    assert not (workspace / "a.txt").exists()
    assert first.of(TurnEnded)[-1].outcome is Outcome.INTERRUPTED

    second = open_rig(replies, **again(options))
    ready = second.wait(Ready)
    assert [entry.role for entry in ready.history] == ["user"]  # the call is shown by its question
    second.wait(Notice, lambda event: "asked about again" in event.text)
    repeated = second.wait(ApprovalNeeded)
    assert (repeated.name, repeated.diff, repeated.rule) == (
        question.name,
        question.diff,
        question.rule,
    )
    second.send(Answer(repeated.call_id, approved=True))
    assert second.wait(TurnEnded).outcome is Outcome.DONE
    assert (workspace / "a.txt").read_text(encoding="utf-8") == "one\n"
    assert second.texts() == "It is written."
    said = second.said()
    assert said.count("<tool_call>") == 1 and said.count("<tool_response>") == 1
    second.close()

    third = open_rig(replies, **again(options))
    roles = [entry.role for entry in third.ready().history]
    assert roles == ["user", "call", "result", "assistant"]
    assert not third.of(ApprovalNeeded)


def test_no_is_told_to_the_model_and_the_turn_goes_on(open_rig, options, workspace) -> None:
    replies = [ASKS, "Then not."]
    ask(first := open_rig(replies, **options))
    first.close()
    second = open_rig(replies, **again(options))
    second.send(Answer(second.wait(ApprovalNeeded).call_id, approved=False, reason="not that file"))
    assert second.wait(TurnEnded).outcome is Outcome.DONE
    assert "refused by the user: not that file" in second.said()
    assert not (workspace / "a.txt").exists()


@pytest.fixture
def add_call(monkeypatch):
    """Let the first answer make one more call: the script's own format allows one only."""

    def add(name: str, arguments: dict, *, at: int) -> None:
        run = Answering.run
        is_first = [True]

        def with_another(self, *args, **options):
            answer = run(self, *args, **options)
            if answer.calls and is_first.pop():
                is_first.append(False)
                answer.calls.insert(at, (new_call_id(), ToolCall(name, arguments, "")))
            return answer

        monkeypatch.setattr(Answering, "run", with_another)

    return add


def test_what_ran_before_the_question_does_not_run_again(
    open_rig, options, workspace, add_call
) -> None:
    add_call("read", {"path": "notes.txt"}, at=0)
    replies = [ASKS, "Both."]
    ask(first := open_rig(replies, **options))
    first.close()
    (workspace / "notes.txt").write_text("changed since\n", encoding="utf-8")
    second = open_rig(replies, **again(options))
    second.send(Answer(second.wait(ApprovalNeeded).call_id, approved=True))
    second.wait(TurnEnded)
    assert [event.name for event in second.of(ToolFinished)] == ["write"]
    assert "alpha" in second.said() and "changed since" not in second.said()
    assert second.said().count("<tool_response>") == 2


def test_calls_after_the_question_are_run_too(open_rig, options, add_call) -> None:
    add_call("read", {"path": "notes.txt"}, at=1)
    replies = [ASKS, "Both."]
    ask(first := open_rig(replies, **options))
    first.close()
    second = open_rig(replies, **again(options))
    second.send(Answer(second.wait(ApprovalNeeded).call_id, approved=True))
    second.wait(TurnEnded)
    assert [event.name for event in second.of(ToolFinished)] == ["write", "read"]


def test_the_second_question_of_an_answer_comes_again_alone(
    open_rig, options, workspace, add_call
) -> None:
    add_call("write", {"path": "b.txt", "content": "two\n"}, at=1)
    replies = [ASKS, "Both."]
    first = open_rig(replies, **options)
    first.send(Answer(ask(first).call_id, approved=True))
    first.wait(ApprovalNeeded)
    first.close()
    (workspace / "a.txt").write_text("of the person\n", encoding="utf-8")
    second = open_rig(replies, **again(options))
    question = second.wait(ApprovalNeeded)
    assert "b.txt" in question.title
    second.send(Answer(question.call_id, approved=True))
    assert second.wait(TurnEnded).outcome is Outcome.DONE
    assert (workspace / "a.txt").read_text(encoding="utf-8") == "of the person\n"
    assert (workspace / "b.txt").read_text(encoding="utf-8") == "two\n"


def test_it_is_asked_even_where_it_would_be_allowed_by_now(open_rig, options, workspace) -> None:
    replies = [ASKS, "Done."]
    ask(first := open_rig(replies, **options))
    first.close()
    second = open_rig(replies, **{**again(options), "mode": Mode.AUTO})
    second.wait(ApprovalNeeded)
    assert not (workspace / "a.txt").exists()


def test_left_open_twice_it_still_comes_again(open_rig, options, workspace) -> None:
    replies = [ASKS, "Done."]
    ask(first := open_rig(replies, **options))
    first.close()
    second = open_rig(replies, **again(options))
    second.wait(ApprovalNeeded)
    second.close()
    third = open_rig(replies, **again(options))
    third.send(Answer(third.wait(ApprovalNeeded).call_id, approved=True))
    assert third.wait(TurnEnded).outcome is Outcome.DONE
    assert (workspace / "a.txt").exists()


def test_an_interrupt_gives_it_the_result_that_it_was_not_run(open_rig, options) -> None:
    replies = [ASKS, "Next."]
    ask(first := open_rig(replies, **options))
    first.close()
    second = open_rig(replies, **again(options))
    second.wait(ApprovalNeeded)
    second.worker.interrupt()
    assert second.wait(TurnEnded).outcome is Outcome.INTERRUPTED
    assert "not executed: interrupted" in second.said()
    assert second.turn("and now?").outcome is Outcome.DONE


def test_without_a_screen_it_is_not_run_and_the_model_is_told(open_rig, options, workspace) -> None:
    replies = [ASKS, "I see."]
    ask(first := open_rig(replies, **options))
    first.close()
    second = open_rig(replies, **{**again(options), "headless": True, "mode": Mode.AUTO})
    second.ready()
    assert second.turn("go on").outcome is Outcome.DONE
    assert not second.of(ApprovalNeeded) and not (workspace / "a.txt").exists()
    assert NOT_RUN in second.said()
    assert second.said().count("<tool_response>") == 1
    assert [event.ok for event in second.of(ToolFinished)] == [False]


def test_what_is_typed_meanwhile_waits_for_the_answer(open_rig, options) -> None:
    replies = [ASKS, "Done.", "Hello."]
    ask(first := open_rig(replies, **options))
    first.close()
    start = Start(resume_latest=True, prompt="and say hello")
    second = open_rig(replies, **{**options, "start": start})
    question = second.wait(ApprovalNeeded)
    assert second.of(TurnStarted)[-1].text == ""
    second.send(Answer(question.call_id, approved=True))
    second.wait(TurnEnded)
    second.wait(TurnEnded)
    assert "and say hello" in second.said()


def test_without_a_store_the_call_ends_with_the_program(open_rig, workspace) -> None:
    rig = open_rig([ASKS, "Done."], mode=Mode.ASK)
    ask(rig)
    rig.close()
    assert "not executed: interrupted" in rig.of(ToolFinished)[-1].text
    assert len(rig.of(ToolCallReady)) == 1


@pytest.mark.parametrize(
    "damage", [{"tokens": 6}, {"calls": [{}]}, {"calls": 3}, {"done": [["x"]]}, {"event": "call"}]
)
def test_a_note_that_does_not_fit_is_passed_over(damage) -> None:
    waiting = Waiting((ToolCall("write", {"path": "a"}, ""),))
    event = waiting.event(5)
    assert waiting_in([{}, event], 5) == waiting
    assert waiting_in([event | damage], 5) is None
    assert waiting_in([event, {"event": "call"}], 5) is None
    assert waiting_in([], 5) is None


def test_a_result_that_the_model_had_not_read_is_read_after_a_restart(
    open_rig, options, workspace, monkeypatch
) -> None:
    """The program is gone between the end of a call and the reading of its result."""
    replies = [call("read", path="notes.txt"), "It says alpha."]
    first = open_rig(replies, **options)
    first.ready()
    monkeypatch.setattr(Saver, "after_results", lambda self, conversation: None)
    monkeypatch.setattr(Saver, "after_turn", lambda self, conversation, outcome=None: None)
    monkeypatch.setattr(Saver, "before_end", lambda self, conversation: None)
    first.turn("what is in notes.txt?")
    first.close()
    monkeypatch.undo()
    (workspace / "notes.txt").write_text("changed since\n", encoding="utf-8")
    second = open_rig(["It says alpha."], **again(options))
    roles = [entry.role for entry in second.ready().history]
    assert roles == ["user", "call", "result"]
    assert not second.of(ApprovalNeeded)
    second.turn("and?")
    assert second.of(ToolFinished) == []  # nothing ran again
    assert "alpha" in second.said() and "changed since" not in second.said()
    assert second.said().count("<tool_response>") == 1


@pytest.mark.parametrize("is_started", [False, True])
def test_only_a_call_that_was_running_may_have_run(is_started) -> None:
    calls = tuple(ToolCall(name, {}, "") for name in ("read", "bash", "write"))
    noted = Waiting(calls, (("read", "alpha"),), ("no JSON",), is_started)
    found = waiting_in([noted.event(5)], 5)
    assert found == noted
    assert [name for name, _ in found.results()] == ["read", "bash", "write", "tool_call"]
    texts = [text for _, text in found.results()]
    assert texts[0] == "alpha" and texts[2] == NOT_RUN and "no JSON" in texts[3]
    assert texts[1] == (MAY_HAVE_RUN if is_started else NOT_RUN)
    assert [(call.name, text) for call, text in found.not_run] == found.results()[1:3]


def test_a_note_that_does_not_tell_whether_the_call_ran_is_taken_for_one_that_may_have() -> None:
    event = Waiting((ToolCall("bash", {}, ""),)).event(5)
    del event["started"]
    assert waiting_in([event], 5).is_started


@pytest.fixture
def killed_while_it_ran(open_rig, options, workspace, monkeypatch):
    """Leave a conversation on the disk as it is when the program is killed during a call; return
    what the worker had noted of the call when it began."""

    def leave(replies: list[str], **more) -> list[Waiting]:
        noted: list[Waiting] = []
        note_calls = Saver.note_calls

        def note(self, conversation, waiting):
            noted.append(waiting)
            return waiting.done or note_calls(self, conversation, waiting)

        monkeypatch.setattr(Saver, "note_calls", note)
        for name in ("after_results", "after_turn", "before_end"):
            monkeypatch.setattr(Saver, name, lambda *arguments, **options: None)
        rig = open_rig(replies, **{**options, **more})
        rig.ready()
        rig.send(Submit("write a.txt"))
        event = rig.wait((ApprovalNeeded, TurnEnded))
        if isinstance(event, ApprovalNeeded):
            rig.send(Answer(event.call_id, approved=True))
            rig.wait(TurnEnded)
        rig.close()
        monkeypatch.undo()
        return noted

    return leave


ADDS = call("bash", command="echo once >> a.txt")


def test_a_call_killed_between_yes_and_result_is_asked_about_as_one_that_may_have_run(
    open_rig, options, workspace, killed_while_it_ran
) -> None:
    replies = [ADDS, "It is written."]
    noted = killed_while_it_ran(replies)
    assert [waiting.is_started for waiting in noted] == [False, True, False]
    second = open_rig(replies, **again(options))
    second.wait(Notice, lambda event: event.text == RUNNING_ASKED_AGAIN)
    question = second.wait(ApprovalNeeded)
    second.send(Answer(question.call_id, approved=False, reason="it is there"))
    assert second.wait(TurnEnded).outcome is Outcome.DONE
    assert f"refused by the user: it is there{MAY_HAVE_RUN_BEFORE}" in second.said()
    assert (workspace / "a.txt").read_text(encoding="utf-8") == "once\n"


def test_a_second_yes_runs_it_again_and_its_result_stands_for_itself(
    open_rig, options, workspace, killed_while_it_ran
) -> None:
    replies = [ADDS, "It is written."]
    killed_while_it_ran(replies)
    second = open_rig(replies, **again(options))
    second.send(Answer(second.wait(ApprovalNeeded).call_id, approved=True))
    assert second.wait(TurnEnded).outcome is Outcome.DONE
    assert (workspace / "a.txt").read_text(encoding="utf-8") == "once\nonce\n"
    assert MAY_HAVE_RUN_BEFORE not in second.said()


def test_a_write_whose_file_was_changed_since_fails_and_the_model_is_told_of_the_first_time(
    open_rig, options, workspace, killed_while_it_ran
) -> None:
    replies = [ASKS, "It is written."]
    killed_while_it_ran(replies)
    (workspace / "a.txt").write_text("of the person\n", encoding="utf-8")
    second = open_rig(replies, **again(options))
    assert second.wait(TurnEnded).outcome is Outcome.DONE
    assert f"a.txt exists and was not read. Read it first, then write.{MAY_HAVE_RUN_BEFORE}" in (
        second.said()
    )


def test_left_open_once_more_it_still_may_have_run(open_rig, options, killed_while_it_ran) -> None:
    replies = [ADDS, "It is written."]
    killed_while_it_ran(replies)
    second = open_rig(replies, **again(options))
    second.wait(ApprovalNeeded)
    second.close()
    third = open_rig(replies, **again(options))
    third.wait(Notice, lambda event: event.text == RUNNING_ASKED_AGAIN)
    third.wait(ApprovalNeeded)


def test_a_call_that_needed_no_question_is_noted_before_it_runs_too(
    open_rig, options, killed_while_it_ran
) -> None:
    replies = [ASKS, "I look."]
    noted = killed_while_it_ran(replies, mode=Mode.AUTO)
    assert [waiting.is_started for waiting in noted] == [True, False]
    headless = {**again(options), "headless": True, "mode": Mode.AUTO}
    second = open_rig(replies, **headless)
    second.ready()
    assert second.turn("go on").outcome is Outcome.DONE
    assert MAY_HAVE_RUN in second.said() and not second.of(ApprovalNeeded)


def test_a_call_that_only_reads_is_noted_with_its_result_alone(
    open_rig, options, killed_while_it_ran
) -> None:
    noted = killed_while_it_ran([call("read", path="notes.txt"), "alpha"], mode=Mode.AUTO)
    assert [(len(waiting.done), waiting.is_started) for waiting in noted] == [(1, False)]
