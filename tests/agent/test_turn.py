"""Turns over a scripted model: tools, mistakes, loops, limits."""

import pytest

from ds4agent.events import (
    MalformedCall,
    Notice,
    Outcome,
    Phase,
    PhaseChanged,
    TextDelta,
    ToolCallReady,
    ToolCallStarted,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)
from ds4agent.requests import Mode
from tests.agent.conftest import call

BAD_CALL = "<tool_call>\n{not json}\n</tool_call>"


def kinds(events) -> list[str]:
    """Event names without repeats and without what depends on timing."""
    names: list[str] = []
    for event in events:
        name = type(event).__name__
        if isinstance(event, PhaseChanged):
            name = str(event.phase)
        if name in ("PrefillProgress", "GenerationProgress", "ToolCallDelta"):
            continue
        if not names or names[-1] != name:
            names.append(name)
    return names


def test_turn_with_call_when_result_arrives_answers_in_documented_order(open_rig) -> None:
    rig = open_rig(["Let me see.\n" + call("read", path="notes.txt"), "It says alpha."])
    rig.ready()
    start = len(rig.seen)
    end = rig.turn("what is in notes.txt?")
    rig.wait_idle()
    assert end.outcome is Outcome.DONE
    assert kinds(rig.seen[start:]) == [
        "TurnStarted",
        "prefill",
        "generating",
        "TextDelta",
        "ToolCallStarted",
        "ToolCallReady",
        "tool",
        "ToolFinished",
        "prefill",
        "generating",
        "TextDelta",
        "TurnEnded",
        "idle",
    ]
    finished = rig.of(ToolFinished)[0]
    assert finished.ok and "alpha" in finished.text
    assert rig.of(ToolCallStarted)[0].call_id == rig.of(ToolCallReady)[0].call_id
    assert finished.call_id == rig.of(ToolCallReady)[0].call_id
    assert rig.texts().endswith("It says alpha.")


def test_usage_of_a_turn_adds_up_to_the_context(open_rig) -> None:
    rig = open_rig([call("read", path="notes.txt"), "Done.", "Again."])
    ready = rig.ready()
    first = rig.turn("read it").usage
    second = rig.turn("and?").usage
    assert first.reused_tokens == ready.context_tokens
    assert first.generated_tokens == len(call("read", path="notes.txt")) + len("Done.") + 1
    for usage in (first, second):
        parts = usage.reused_tokens + usage.prefilled_tokens + usage.generated_tokens
        assert parts == usage.context_tokens
    assert second.reused_tokens == first.context_tokens
    rig.wait_idle()
    assert len(rig.conversation.session.tokens) == second.context_tokens


def test_live_state_after_turns_is_a_legal_conversation(open_rig) -> None:
    rig = open_rig([call("read", path="notes.txt"), "Done.", "Yes."])
    rig.ready()
    rig.turn("read it")
    rig.turn("sure?")
    rig.wait_idle()
    assert rig.said() == (
        "<|im_start|>user\nread it<|im_end|>\n"
        f"<|im_start|>assistant\n{call('read', path='notes.txt')}<|im_end|>\n"
        "<|im_start|>user\n<tool_response>\n"
        f"{rig.of(ToolFinished)[0].text}\n</tool_response><|im_end|>\n"
        "<|im_start|>assistant\nDone.<|im_end|>\n"
        "<|im_start|>user\nsure?<|im_end|>\n"
        "<|im_start|>assistant\nYes.<|im_end|>\n"
    )


def test_several_calls_when_complete_run_in_order(open_rig, workspace) -> None:
    both = call("write", path="a.txt", content="one") + "\n" + call("read", path="a.txt")
    rig = open_rig([both, "Done."])
    rig.ready()
    assert rig.turn("go").outcome is Outcome.DONE
    finished = rig.of(ToolFinished)
    assert [event.name for event in finished][0] == "write"
    assert (workspace / "a.txt").read_text(encoding="utf-8") == "one"


def test_malformed_call_when_followed_by_a_good_one_goes_on(open_rig) -> None:
    rig = open_rig([BAD_CALL, call("read", path="notes.txt"), "Done."])
    rig.ready()
    assert rig.turn("read it").outcome is Outcome.DONE
    assert len(rig.of(MalformedCall)) == 1
    rig.wait_idle()
    assert rig.of(MalformedCall)[0].reason in rig.said()


def test_malformed_calls_when_three_in_a_row_stop_the_turn(open_rig) -> None:
    rig = open_rig([BAD_CALL] * 5 + ["never"])
    rig.ready()
    end = rig.turn("read it")
    assert end.outcome is Outcome.ERROR
    assert "3 calls in a row" in end.error
    assert len(rig.of(MalformedCall)) == 3
    assert len([e for e in rig.seen if e == PhaseChanged(Phase.GENERATING)]) == 3


def test_unknown_tool_when_called_is_told_to_the_model(open_rig) -> None:
    rig = open_rig([call("teleport", to="moon"), "Sorry."])
    rig.ready()
    assert rig.turn("go").outcome is Outcome.DONE
    rig.wait_idle()
    assert "teleport" in rig.said().split("tool_response")[1]


@pytest.mark.parametrize("fence", ["", "```"])
def test_bare_call_of_an_unknown_tool_is_no_answer(open_rig, fence) -> None:
    bare = fence + '{"name": "add", "arguments": {"path": "calc.py"}}' + fence
    rig = open_rig([bare, "Sorry."])
    rig.ready()
    assert rig.turn("go").outcome is Outcome.DONE
    rig.wait_idle()
    assert "there is no tool 'add'" in rig.said()
    assert rig.texts().endswith("Sorry.")


def test_json_that_was_asked_for_is_an_answer(open_rig) -> None:
    rig = open_rig(['{"name": "Ada", "age": 36}'])
    rig.ready()
    assert rig.turn("as json").outcome is Outcome.DONE
    assert not rig.of(MalformedCall)


def test_same_call_with_same_result_is_warned_then_stopped(open_rig) -> None:
    rig = open_rig([call("read", path="notes.txt")] * 8)
    rig.ready()
    end = rig.turn("loop")
    assert end.outcome is Outcome.ERROR
    assert "the same read call" in end.error
    rig.wait_idle()
    assert "Do something else" in rig.said()
    assert len(rig.of(ToolFinished)) <= 6


def test_rounds_when_too_many_end_the_turn_with_a_limit(open_rig) -> None:
    replies = [call("read", path="notes.txt", start_line=n) for n in range(1, 9)]
    rig = open_rig(replies, max_rounds=3)
    rig.ready()
    end = rig.turn("go")
    assert end.outcome is Outcome.LIMIT
    assert "3 rounds" in end.error
    assert len(rig.of(ToolFinished)) == 3
    rig.wait_idle()
    assert rig.said().endswith("</tool_response><|im_end|>\n")


def test_answer_when_longer_than_the_cap_ends_with_a_limit(open_rig) -> None:
    rig = open_rig(["0123456789" * 5, "Short."], max_tokens=20)
    rig.ready()
    end = rig.turn("count")
    assert end.outcome is Outcome.LIMIT
    assert "20 tokens" in end.error
    assert end.usage.generated_tokens == 20
    assert rig.turn("again").outcome is Outcome.DONE
    rig.wait_idle()
    assert "01234567890123456789<|im_end|>\n<|im_start|>user\nagain" in rig.said()


def test_context_when_full_ends_the_turn_and_stays_legal(open_rig) -> None:
    probe = open_rig(["x"])
    n_head = probe.ready().context_tokens
    words = " ".join(str(n) for n in range(500))
    rig = open_rig([words, "never"], ctx=n_head + 700)
    rig.ready()
    end = rig.turn("count")
    assert end.outcome is Outcome.LIMIT
    assert "context is full" in end.error
    rig.wait_idle()
    assert rig.said().endswith("<|im_end|>\n")
    assert any("/new" in notice.text for notice in rig.of(Notice))


def test_message_when_too_long_for_the_context_changes_nothing(open_rig) -> None:
    rig = open_rig(["Fine."], ctx=8192)
    ready = rig.ready()
    end = rig.turn("x" * 9000)
    assert end.outcome is Outcome.LIMIT
    assert "Shorten it" in end.error
    assert end.usage.context_tokens == ready.context_tokens
    assert rig.turn("hi").outcome is Outcome.DONE


def test_result_when_larger_than_the_context_is_cut(open_rig, workspace) -> None:
    lines = "".join(f"line {n} of a long file\n" for n in range(150))
    (workspace / "long.txt").write_text(lines, encoding="utf-8")
    probe = open_rig(["x"])
    n_head = probe.ready().context_tokens
    rig = open_rig([call("read", path="long.txt"), "Long."], ctx=n_head + 2000)
    rig.ready()
    end = rig.turn("read")
    assert end.outcome is Outcome.DONE
    rig.wait_idle()
    assert "do not fit into the context" in rig.said()


def test_repeating_answer_when_hopeless_is_ended(open_rig) -> None:
    rig = open_rig(["la la " * 1000], max_tokens=8000)
    rig.ready()
    end = rig.turn("sing")
    assert end.outcome is Outcome.LIMIT
    assert "repeats itself" in end.error
    assert end.usage.generated_tokens < 4000


def test_plan_mode_when_a_file_would_change_refuses_and_goes_on(open_rig, workspace) -> None:
    rig = open_rig(
        [call("write", path="a.txt", content="one"), call("read", path="notes.txt"), "A plan."],
        mode=Mode.PLAN,
    )
    rig.ready()
    assert rig.turn("go").outcome is Outcome.DONE
    write, read = rig.of(ToolFinished)
    assert not write.ok and "read-only" in write.text
    assert read.ok
    assert not (workspace / "a.txt").exists()


def test_display_when_text_has_control_sequences_strips_them(open_rig, workspace) -> None:
    (workspace / "evil.txt").write_text("a\x1b]0;title\x07b\x1b[31mc\n", encoding="utf-8")
    rig = open_rig(["\x1b[2Jclean\x1b]52;c;AAAA\x07 text\n" + call("read", path="evil.txt"), "ok"])
    rig.ready()
    rig.turn("go \x1b[5m")
    for event in rig.seen:
        assert "\x1b" not in repr(event) and "\\x1b" not in repr(event)
    assert rig.texts().startswith("clean text")
    assert rig.of(TurnStarted)[0].text == "go "


def test_error_in_the_model_when_it_happens_mid_answer_closes_the_turn(open_rig) -> None:
    rig = open_rig(["Hello there.", "Fine."])
    rig.ready()
    forward = rig.engine._model.layers
    state = {"left": 6}

    def failing(first, last, hidden, cache, ids):
        if len(ids) == 1:
            state["left"] -= 1
            if state["left"] == 0:
                raise MemoryError("no room on the device")
        return forward(first, last, hidden, cache, ids)

    rig.engine._model.layers = failing
    end = rig.turn("hi")
    assert end.outcome is Outcome.ERROR
    assert "no room on the device" in end.error
    assert rig.turn("again").outcome is Outcome.DONE
    rig.wait_idle()
    assert rig.said().endswith("again<|im_end|>\n<|im_start|>assistant\nFine.<|im_end|>\n")
    assert rig.texts().endswith("Fine.")


def test_text_deltas_when_the_model_is_fast_are_joined(open_rig) -> None:
    answer = " ".join(str(n) for n in range(400))
    rig = open_rig([answer])
    rig.ready()
    rig.turn("count")
    deltas = rig.of(TextDelta)
    assert "".join(event.text for event in deltas) == answer
    assert len(deltas) < len(answer) / 4
    assert isinstance(rig.seen[-1], TurnEnded)


def test_answer_that_only_nests_too_deeply_is_an_answer(open_rig) -> None:
    rig = open_rig(['{"a": ' + "[" * 1500])
    rig.ready()
    assert rig.turn("go").outcome is Outcome.DONE
