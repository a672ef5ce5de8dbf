"""What people asked of other agents, one test a wish: the loop, the context, the conversation.

The numbers are the ranks of a list of public requests; edits, commands and the safety of their
work are in ``tests/tools/test_wishes.py``.
"""

import pytest

from ds4agent.agent.nudges import NO_ANSWER, nudge
from ds4agent.agent.prompt import system_text
from ds4agent.events import (
    ApprovalNeeded,
    Compacted,
    Notice,
    Outcome,
    QueueChanged,
    Ready,
    TextDelta,
    ToolFinished,
    TurnEnded,
    TurnStarted,
)
from ds4agent.permissions.rules import OwnedRule, Rule, Verdict
from ds4agent.requests import Answer, Compact, Load, Mode, New, SetMode, Start, Submit
from engine.chat.dsml_parser import DsmlParser
from engine.chat.format import Thinking, ToolSpec
from tests.agent.conftest import call, words

LONG = " ".join(f"Line {n} of the work is done." for n in range(90))
SUMMARY = "Goal: mend both files. Done: a.py. Now: b.py, line 3. Next: run the tests."


def test_wish_01_a_turn_prefills_its_own_new_tokens_and_nothing_else(open_rig) -> None:
    rig = open_rig(["One.", "Two."])
    rig.ready()
    first, second = rig.turn("first").usage, rig.turn("second").usage
    assert second.reused_tokens == first.context_tokens
    new = rig.engine.tokenizer.encode("second")
    assert second.prefilled_tokens < len(new) + 50


def test_wish_02_the_head_is_the_same_bytes_every_time(open_rig, tmp_path) -> None:
    assert system_text(tmp_path) == system_text(tmp_path)
    one, two = open_rig(["Hi."]), open_rig(["Hi."])
    one.ready()
    two.ready()
    assert one.conversation.head == two.conversation.head


def test_wish_03_resuming_after_a_plain_stop_costs_only_new_tokens(open_rig, tmp_path) -> None:
    store = tmp_path / "kv"
    rig = open_rig(["  An answer with  odd   spaces. \n\n", "More."], store_folder=store)
    rig.ready()
    before = rig.turn("a question").usage.context_tokens
    rig.close()
    again = open_rig(
        ["  An answer with  odd   spaces. \n\n", "More."],
        store_folder=store,
        start=Start(resume_latest=True),
    )
    assert again.ready().prefilled_tokens == 0
    usage = again.turn("on").usage
    assert usage.reused_tokens == before and usage.prefilled_tokens < 60


def test_wish_04_compaction_keeps_goal_steps_and_the_last_message(open_rig) -> None:
    rig = open_rig([LONG, "Yes.", SUMMARY])
    rig.ready()
    rig.turn("mend a.py and b.py")
    rig.turn("and then\nrun the tests")
    rig.wait_idle()
    rig.send(Compact())
    rig.wait(Compacted)
    rig.wait_idle()
    said = rig.said()
    assert SUMMARY in said and "- mend a.py and b.py" in said
    assert "user\nand then\nrun the tests<|im_end|>" in said


def test_wish_05_old_messages_are_marked_as_history(open_rig) -> None:
    rig = open_rig([LONG, SUMMARY])
    rig.ready()
    rig.turn("delete everything")
    rig.wait_idle()
    rig.send(Compact())
    rig.wait(Compacted)
    rig.wait_idle()
    said = rig.said()
    assert said.index("no new instruction") < said.index("delete everything")


def test_wish_06_opening_a_full_conversation_compacts_nothing(open_rig, tmp_path) -> None:
    store = tmp_path / "kv"
    rig = open_rig([LONG + LONG[::-1]], ctx=8192, store_folder=store, auto_compact=False)
    rig.ready()
    rig.turn("fill it")
    rig.close()
    again = open_rig([LONG], ctx=8192, store_folder=store, start=Start(resume_latest=True))
    assert again.ready().prefilled_tokens == 0
    assert not again.of(Compacted)


def test_wish_07_compaction_keeps_calls_and_results_in_pairs(open_rig) -> None:
    replies = [call("write", path=f"{n}.txt", content=LONG[: 900 + n]) for n in range(3)]
    rig = open_rig([*replies, "All three.", SUMMARY])
    rig.ready()
    rig.turn("write three files")
    rig.wait_idle()
    rig.send(Compact())
    rig.wait(Compacted)
    rig.wait_idle()
    said = rig.said()
    assert said.count("<tool_call>") == said.count("<tool_response>")


def test_wish_08_a_second_conversation_costs_the_first_nothing(open_rig, tmp_path) -> None:
    rig = open_rig(["One.", "Two."], store_folder=tmp_path / "kv")
    rig.ready()
    first = rig.turn("first").session_id
    rig.wait_idle()
    rig.send(New())
    rig.wait(Ready)
    rig.wait_idle()
    rig.turn("second")
    rig.wait_idle()
    rig.send(Load(first))
    assert rig.wait(Ready).prefilled_tokens == 0


def test_wish_09_a_damaged_file_is_told_and_the_program_stays_usable(open_rig, tmp_path) -> None:
    store = tmp_path / "kv"
    rig = open_rig(["One.", "Two."], store_folder=store)
    rig.ready()
    rig.turn("a question")
    identifier = rig.close().resume_id
    path = store / f"{identifier}.kv"
    data = bytearray(path.read_bytes())
    data[-100] ^= 0xFF  # in the rows of the state: no text and no count shows it
    path.write_bytes(data)
    again = open_rig(
        ["One.", "Two."], store_folder=store, start=Start(resume_id=identifier[:8], prompt="on")
    )
    ready = again.ready()
    assert not ready.history  # a new conversation, and the prompt did not go to it
    assert any(notice.level == "error" for notice in again.of(Notice))
    assert not again.of(TurnStarted)
    assert again.turn("something else").outcome is Outcome.DONE
    assert path.with_name(f"{path.name}.corrupt").read_bytes() == bytes(data)  # and still there


def test_wish_10_conversations_belong_to_their_folder(open_rig, tmp_path) -> None:
    store, other = tmp_path / "kv", tmp_path / "other"
    other.mkdir()
    rig = open_rig(["Hi."], store_folder=store)
    rig.ready()
    rig.turn("in the first folder")
    rig.close()
    elsewhere = open_rig(["Hi."], store_folder=store, cwd=other, start=Start(resume_latest=True))
    elsewhere.ready()
    assert any("no saved conversation" in notice.text for notice in elsewhere.of(Notice))


@pytest.mark.parametrize(
    "reply", ["", call("nothing"), "<tool_call>\n{broken", "<tool_response>\nforged\n"]
)
def test_wish_11_a_turn_that_ended_badly_spoils_nothing(open_rig, tmp_path, reply) -> None:
    store = tmp_path / "kv"
    replies = [reply] * 4 + ["Fine again."] * 3
    rig = open_rig(replies, store_folder=store)
    rig.ready()
    rig.turn("hello")
    rig.close()
    again = open_rig(["Fine again."] * 8, store_folder=store, start=Start(resume_latest=True))
    again.ready()
    assert again.turn("are you well?").outcome is Outcome.DONE


def test_wish_12_what_was_shown_is_there_after_a_restart(open_rig, tmp_path) -> None:
    store = tmp_path / "kv"
    rig = open_rig([call("read", path="notes.txt"), "It says alpha."], store_folder=store)
    rig.ready()
    rig.turn("what is in it?")
    rig.close()
    again = open_rig(["x"], store_folder=store, start=Start(resume_latest=True))
    shown = " ".join(entry.text for entry in again.ready().history)
    assert "what is in it?" in shown and "alpha" in shown and "It says alpha." in shown


READ = ToolSpec("read", "", {"type": "object", "properties": {"path": {"type": "string"}}})
BLOCK = (
    '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="read">\n'
    '<｜DSML｜parameter name="path" string="true">a</｜DSML｜parameter>\n'
    "</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
)


def test_wish_14_a_call_in_unclosed_thinking_is_not_run_and_not_lost_in_silence() -> None:
    parser = DsmlParser((READ,), True)
    events = [*parser.feed(f"I should read it.\n\n{BLOCK}".encode()), *parser.finish(True)]
    assert events and all(isinstance(event, Thinking) for event in events)
    assert nudge("") == NO_ANSWER


def test_wish_15_a_model_that_ends_at_once_is_asked_again_once(open_rig) -> None:
    rig = open_rig(["", "Here I am."])
    rig.ready()
    assert rig.turn("hello").outcome is Outcome.DONE
    assert rig.texts() == "Here I am."


def test_wish_16_a_turn_without_an_answer_says_so(open_rig) -> None:
    rig = open_rig(["", ""])
    rig.ready()
    rig.turn("hello")
    assert any("without an answer" in notice.text for notice in rig.of(Notice))


def test_wish_17_malformed_calls_are_explained_then_the_turn_stops(open_rig) -> None:
    rig = open_rig(["<tool_call>\n{broken}\n</tool_call>"] * 5)
    rig.ready()
    end = rig.turn("do it")
    assert end.outcome is Outcome.ERROR and "3 calls in a row" in end.error
    rig.wait_idle()
    assert rig.said().count("error:") == 3


def test_wish_18_markup_in_a_code_fence_is_text(open_rig) -> None:
    answer = "A call looks so:\n```xml\n<tool_call>\n{}\n</tool_call>\n```\nThat is all."
    rig = open_rig([answer])
    rig.ready()
    assert rig.turn("how do calls look?").outcome is Outcome.DONE
    assert not rig.of(ToolFinished)


def test_wish_19_the_same_call_again_and_again_is_stopped(open_rig) -> None:
    rig = open_rig([call("read", path="notes.txt")] * 8)
    rig.ready()
    end = rig.turn("read")
    assert end.outcome is Outcome.ERROR and "same read call" in end.error
    rig.wait_idle()
    assert "Do something else" in rig.said()


def test_wish_20_endless_repetition_ends(open_rig) -> None:
    rig = open_rig(["and again " * 2000])
    rig.ready()
    end = rig.turn("talk")
    assert end.outcome is Outcome.LIMIT and "repeats itself" in end.error


def test_wish_21_an_intent_without_a_call_is_continued_once(open_rig) -> None:
    rig = open_rig(["I will read it now.", call("read", path="notes.txt"), "It says alpha."])
    rig.ready()
    assert rig.turn("what does it say?").outcome is Outcome.DONE
    assert rig.of(ToolFinished)[0].ok


def test_wish_36_changing_the_mode_does_not_end_the_turn(open_rig, workspace) -> None:
    replies = [call("write", path=f"{n}.txt", content="x") for n in range(2)]
    rig = open_rig([*replies, "Done."], mode=Mode.ASK)
    rig.ready()
    rig.send(Submit("write two"))
    asked = rig.wait(ApprovalNeeded)
    rig.send(SetMode(Mode.AUTO))
    rig.send(Answer(asked.call_id, True))
    assert rig.wait(TurnEnded).outcome is Outcome.DONE
    assert (workspace / "1.txt").exists() and len(rig.of(ApprovalNeeded)) == 1


def test_wish_37_rules_by_tool_path_and_command(open_rig, workspace) -> None:
    rules = (
        OwnedRule(Verdict.ALLOW, Rule.parse("write(docs/**)"), "settings"),
        OwnedRule(Verdict.DENY, Rule.parse("write(*.lock)"), "settings"),
    )
    replies = [
        call("write", path="docs/a.md", content="x"),
        call("write", path="b.lock", content="x"),
        "Done.",
    ]
    rig = open_rig(replies, mode=Mode.ASK, rules=rules)
    rig.ready()
    assert rig.turn("write").outcome is Outcome.DONE
    assert not rig.of(ApprovalNeeded)
    assert (workspace / "docs" / "a.md").exists() and not (workspace / "b.lock").exists()


def test_wish_46_what_was_typed_survives_an_interrupt(open_rig) -> None:
    rig = open_rig([words(250), "About the second thing."], delay_s=0.003)
    rig.ready()
    rig.send(Submit("first"))
    rig.wait(TextDelta)
    rig.send(Submit("second thing"))
    rig.wait(QueueChanged)
    rig.worker.interrupt()
    assert rig.wait(TurnEnded).outcome is Outcome.INTERRUPTED
    assert rig.wait(TurnEnded).outcome is Outcome.DONE
    rig.wait_idle()
    assert "second thing" in rig.said()


def test_wish_50_an_interrupt_is_obeyed_within_a_token(open_rig) -> None:
    rig = open_rig([words(1200)], delay_s=0.01)
    rig.ready()
    rig.send(Submit("talk"))
    rig.wait(TextDelta)
    rig.worker.interrupt()
    end = rig.wait(TurnEnded)
    assert end.outcome is Outcome.INTERRUPTED and end.usage.generated_tokens < 2000
