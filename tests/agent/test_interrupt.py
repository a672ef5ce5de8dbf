"""Interrupts at every phase, and messages typed meanwhile: the next turn must be fine."""

import time

import pytest

from ds4agent.events import (
    ApprovalNeeded,
    MessageDelivered,
    Notice,
    Outcome,
    Phase,
    PhaseChanged,
    QueueChanged,
    TextDelta,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)
from ds4agent.requests import Mode, Submit, TakeBackQueued
from tests.agent.conftest import call

SLOW = 0.005  # seconds a token: a long answer then lasts long enough to be interrupted
LONG = " ".join(str(n) for n in range(2000))


def test_interrupt_mid_answer_keeps_the_text_and_the_next_turn_works(open_rig) -> None:
    rig = open_rig([LONG, "Fine."], delay_s=SLOW)
    rig.ready()
    rig.send(Submit("count"))
    rig.wait(TextDelta)
    rig.worker.interrupt()
    end = rig.wait(TurnEnded)
    assert end.outcome is Outcome.INTERRUPTED
    partial = rig.texts()
    assert LONG.startswith(partial) and partial
    assert rig.turn("again").outcome is Outcome.DONE
    rig.wait_idle()
    assert rig.said() == (
        f"<|im_start|>user\ncount<|im_end|>\n<|im_start|>assistant\n{partial}<|im_end|>\n"
        "<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\nFine.<|im_end|>\n"
    )


def test_interrupt_while_a_call_is_written_runs_nothing(open_rig, workspace) -> None:
    rig = open_rig([call("write", path="a.txt", content=LONG), "Fine."], delay_s=SLOW)
    rig.ready()
    rig.send(Submit("write"))
    rig.wait(PhaseChanged, lambda event: event.phase is Phase.GENERATING)
    deadline = time.monotonic() + 10
    while not rig.engine._model.n_forwards > 60 and time.monotonic() < deadline:
        time.sleep(0.01)
    rig.worker.interrupt()
    assert rig.wait(TurnEnded).outcome is Outcome.INTERRUPTED
    assert rig.turn("again").outcome is Outcome.DONE
    assert not rig.of(ToolFinished)
    assert not (workspace / "a.txt").exists()
    rig.wait_idle()
    assert rig.said().endswith(
        "<|im_end|>\n<|im_start|>user\nagain<|im_end|>\n<|im_start|>assistant\nFine.<|im_end|>\n"
    )


def test_interrupt_during_a_command_stops_it_and_later_calls(open_rig, sandbox) -> None:
    replies = [
        call("bash", command="echo started; sleep 60") + "\n" + call("read", path="notes.txt"),
        "Fine.",
    ]
    rig = open_rig(replies)
    rig.ready()
    rig.send(Submit("run"))
    rig.wait(PhaseChanged, lambda event: event.phase is Phase.TOOL)
    started = time.monotonic()
    rig.worker.interrupt()
    assert rig.wait(TurnEnded).outcome is Outcome.INTERRUPTED
    assert time.monotonic() - started < 5
    finished = rig.of(ToolFinished)
    assert not finished[0].ok
    assert all(event.text == "not executed: interrupted" for event in finished[1:])
    assert rig.turn("again").outcome is Outcome.DONE
    rig.wait_idle()
    assert "</tool_response><|im_end|>\n<|im_start|>user\nagain" in rig.said()


def test_interrupt_in_an_approval_gives_the_call_a_result(open_rig, workspace) -> None:
    rig = open_rig([call("write", path="a.txt", content="x"), "Fine."], mode=Mode.ASK)
    rig.ready()
    rig.send(Submit("write"))
    rig.wait(ApprovalNeeded)
    rig.worker.interrupt()
    assert rig.wait(TurnEnded).outcome is Outcome.INTERRUPTED
    assert rig.of(ToolFinished)[0].text == "not executed: interrupted"
    assert not (workspace / "a.txt").exists()
    assert rig.turn("again").outcome is Outcome.DONE
    rig.wait_idle()
    assert "not executed: interrupted\n</tool_response><|im_end|>\n<|im_start|>user" in rig.said()


def test_interrupt_before_the_message_was_read_leaves_the_conversation_as_it_was(open_rig) -> None:
    rig = open_rig(["Fine."])
    ready = rig.ready()
    forward = rig.engine._model.layers

    def interrupting(first, last, hidden, cache, ids):
        rig.worker.interrupt()
        return forward(first, last, hidden, cache, ids)

    rig.engine._model.layers = interrupting
    end = rig.turn("y " * 600)
    assert end.outcome is Outcome.INTERRUPTED
    assert end.usage.context_tokens == ready.context_tokens
    assert any("Send it again" in notice.text for notice in rig.of(Notice))
    rig.engine._model.layers = forward
    assert rig.turn("hi").outcome is Outcome.DONE
    rig.wait_idle()
    assert rig.said().startswith("<|im_start|>user\nhi<|im_end|>\n")


def test_interrupt_while_results_are_read_returns_the_queued_message(open_rig, workspace) -> None:
    (workspace / "long.txt").write_text("word " * 700, encoding="utf-8")
    rig = open_rig([call("read", path="long.txt"), "Fine."])
    rig.ready()
    forward = rig.engine._model.layers
    state = {"armed": False}

    def interrupting(first, last, hidden, cache, ids):
        if state["armed"] and len(ids) > 100:
            state["armed"] = False
            rig.worker.interrupt()
        elif len(ids) == 1 and not state.get("queued"):
            state["queued"] = state["armed"] = True
            rig.send(Submit("typed meanwhile"))
        return forward(first, last, hidden, cache, ids)

    rig.engine._model.layers = interrupting
    assert rig.turn("read it").outcome is Outcome.INTERRUPTED
    end = rig.wait(TurnEnded)  # the queued message, as the next turn
    assert end.outcome is Outcome.DONE
    assert rig.of(TurnStarted)[1].text == "typed meanwhile"
    assert not rig.of(MessageDelivered)
    rig.wait_idle()
    assert rig.said().count("typed meanwhile") == 1


def test_interrupt_when_idle_does_not_hit_the_next_turn(open_rig) -> None:
    rig = open_rig(["Fine."])
    rig.ready()
    rig.worker.interrupt()
    assert rig.turn("hi").outcome is Outcome.DONE


def test_message_typed_during_a_turn_goes_with_the_next_result(open_rig) -> None:
    rig = open_rig([call("read", path="notes.txt"), "Both done."], delay_s=SLOW)
    rig.ready()
    rig.send(Submit("read it"))
    rig.wait(PhaseChanged, lambda event: event.phase is Phase.GENERATING)
    rig.send(Submit("also this"))
    assert rig.wait(QueueChanged).texts == ("also this",)
    assert rig.wait(QueueChanged).texts == ()
    assert rig.wait(MessageDelivered).text == "also this"
    assert rig.wait(TurnEnded).outcome is Outcome.DONE
    rig.wait_idle()
    assert "</tool_response><|im_end|>\n<|im_start|>user\nalso this<|im_end|>" in rig.said()
    assert len(rig.of(TurnStarted)) == 1


def test_messages_typed_during_an_answer_become_one_turn(open_rig) -> None:
    rig = open_rig([LONG[:120], "Second."], delay_s=SLOW)
    rig.ready()
    rig.send(Submit("first"))
    rig.wait(TurnStarted)
    for text in ("two", "three", "oops"):
        rig.send(Submit(text))
    rig.send(TakeBackQueued())
    rig.wait(QueueChanged, lambda event: event.texts == ("two", "three", "oops"))
    assert rig.wait(QueueChanged).texts == ("two", "three")
    rig.wait(TurnEnded)
    assert rig.wait(TurnStarted).text == "two\n\nthree"
    assert rig.wait(TurnEnded).outcome is Outcome.DONE


def test_queue_when_the_turn_is_interrupted_is_delivered_next(open_rig) -> None:
    rig = open_rig([LONG, "Second."], delay_s=SLOW)
    rig.ready()
    rig.send(Submit("first"))
    rig.wait(TextDelta)
    rig.send(Submit("second"))
    rig.worker.interrupt()
    assert rig.wait(TurnEnded).outcome is Outcome.INTERRUPTED
    assert rig.wait(TurnStarted).text == "second"
    assert rig.wait(TurnEnded).outcome is Outcome.DONE


@pytest.mark.parametrize("n_tokens", [1, 2, 13, 40, 41, 42, 43])
def test_interrupt_after_any_token_leaves_a_legal_state(open_rig, n_tokens: int) -> None:
    reply = "I read.\n" + call("read", path="notes.txt")
    rig = open_rig([reply, "Fine.", "More."])
    rig.ready()
    forward = rig.engine._model.layers
    state = {"n": 0}

    def counting(first, last, hidden, cache, ids):
        if len(ids) == 1:
            state["n"] += 1
            if state["n"] == n_tokens:
                rig.worker.interrupt()
        return forward(first, last, hidden, cache, ids)

    rig.engine._model.layers = counting
    assert rig.turn("read").outcome is Outcome.INTERRUPTED
    rig.engine._model.layers = forward
    assert rig.turn("again").outcome is Outcome.DONE
    rig.wait_idle()
    items = rig.engine.chat.history(rig.conversation.session.tokens, rig.conversation.tools)
    assert [item.text for item in items if item.role == "user"] == ["read", "again"]
    assert items[-1].role == "assistant"
