"""Compaction: what is kept, what is never torn, and that nothing is lost when it fails."""

import pytest

from ds4agent.agent import compaction
from ds4agent.events import (
    Closed,
    Compacted,
    GenerationProgress,
    Notice,
    Outcome,
    Phase,
    PhaseChanged,
    Ready,
    TurnEnded,
    TurnStarted,
)
from ds4agent.requests import Compact, Load, Submit
from sessions.errors import CheckpointError
from tests.agent.conftest import call

LONG = " ".join(f"Line {n} of the first file is done." for n in range(100))
SUMMARY = "Goal: mend both files. Done: a.py. Now: b.py, line 3. Next: run the tests."


def test_compact_keeps_summary_messages_and_the_tail_word_for_word(open_rig, tmp_path) -> None:
    rig = open_rig([LONG, "Looking at b.py.", SUMMARY], store_folder=tmp_path / "kv")
    rig.ready()
    rig.turn("mend a.py, and never touch c.py")
    rig.turn("now\nb.py")
    rig.wait_idle()
    before = rig.live_text()
    rig.send(Compact())
    done = rig.wait(Compacted)
    rig.wait_idle()
    said = rig.said()
    assert done.summary == SUMMARY and SUMMARY in said
    assert "- mend a.py, and never touch c.py" in said
    assert "no new instruction" in said
    assert LONG[:200] not in said
    assert "<|im_start|>user\nnow\nb.py<|im_end|>\n<|im_start|>assistant\nLooking at b.py." in said
    assert done.tokens_after < 0.65 * done.tokens_before
    assert rig.of(GenerationProgress)
    # What was before is a conversation of its own and opens as it was.
    assert rig.turn("go on").outcome is Outcome.DONE
    rig.wait_idle()
    rig.send(Load(done.kept_id))
    rig.wait(Ready)
    rig.wait_idle()
    assert rig.live_text() == before


def test_compact_lists_changed_files_and_never_parts_a_call_from_its_result(open_rig) -> None:
    replies = [
        call("write", path="a.py", content=LONG),
        call("write", path="docs/b.md", content="y"),
        "Both are written.",
        SUMMARY,
    ]
    rig = open_rig(replies)
    rig.ready()
    rig.turn("write both")
    rig.wait_idle()
    rig.send(Compact())
    rig.wait(Compacted)
    rig.wait_idle()
    said = rig.said()
    # The whole turn is too long for a tail, so that begins at a step of the model.
    assert "- a.py" in said and LONG[:100] not in said
    assert said.count("<tool_call>") == said.count("<tool_response>") == 1
    assert said.index("docs/b.md") < said.index("<tool_response>")
    note = said.partition("<|im_end|>")[0]
    assert "write both" in note
    rig.turn("go on")
    assert rig.of(TurnEnded)[-1].outcome is Outcome.DONE


def test_full_context_is_compacted_within_the_turn_that_fills_it(open_rig, workspace) -> None:
    lines = LONG.replace(". ", ".\n") + "\n"
    (workspace / "one.txt").write_text(lines * 2, encoding="utf-8")
    (workspace / "two.txt").write_text("second " + lines, encoding="utf-8")
    rig = open_rig(
        [call("read", path="one.txt"), call("read", path="two.txt")],
        answers={
            "Stop here for a moment": SUMMARY,
            "<tool_response>\n1 second": "Read both of them.",
        },
    )
    rig.ready()
    end = rig.turn("read the files, then say that you did\nand nothing else")
    assert end.outcome is Outcome.DONE
    assert rig.texts().endswith("Read both of them.")
    done = rig.of(Compacted)
    assert len(done) == 1 and done[0].tokens_before >= 0.85 * 16384
    said = rig.said()
    assert "being worked on now" in said
    assert "read the files, then say that you did\nand nothing else" in said
    assert said.count("<tool_call>") == said.count("<tool_response>") == 1


def test_second_compaction_keeps_the_messages_of_the_first(open_rig) -> None:
    rig = open_rig([LONG, SUMMARY, LONG, SUMMARY, SUMMARY])
    rig.ready()
    rig.turn("the very first wish")
    rig.wait_idle()
    rig.send(Compact())
    rig.wait(Compacted)
    rig.wait_idle()
    rig.turn("the second wish")
    rig.turn("the third wish")
    rig.wait_idle()
    rig.send(Compact())
    rig.wait(Compacted)
    rig.wait_idle()
    note = rig.said().partition("<|im_end|>")[0]
    assert note.count("no new instruction") == 1
    assert note.index("the very first wish") < note.index("the second wish")


@pytest.mark.parametrize("phase_detail", ["", "reading the summary"])
def test_interrupted_compaction_leaves_the_conversation_as_it_was(open_rig, phase_detail) -> None:
    rig = open_rig([LONG, LONG[:600], "Here."], delay_s=0.001)
    rig.ready()
    rig.turn("a message")
    rig.wait_idle()
    before = rig.live_text()
    rig.send(Compact())
    rig.wait(PhaseChanged, lambda e: e.phase is Phase.COMPACTING and e.detail == phase_detail)
    rig.worker.interrupt()
    told = rig.wait((Notice, Compacted))
    rig.wait_idle()
    if isinstance(told, Notice):  # else it was done before the interrupt came
        assert "as it was" in told.text
        assert rig.live_text() == before
    assert rig.turn("and now").outcome is Outcome.DONE


def test_compaction_that_makes_no_room_is_refused(open_rig) -> None:
    rig = open_rig(["Hi.", SUMMARY])
    rig.ready()
    rig.turn("hello")
    rig.wait_idle()
    before = rig.live_text()
    rig.send(Compact())
    assert "no room is made" in rig.wait(Notice).text
    rig.wait_idle()
    assert rig.live_text() == before


def test_nothing_to_compact_is_said(open_rig) -> None:
    rig = open_rig(["Hi."])
    rig.ready()
    rig.send(Compact())
    assert "nothing to compact" in rig.wait(Notice).text


def test_resuming_a_full_conversation_compacts_only_with_the_next_message(
    open_rig, tmp_path
) -> None:
    store = tmp_path / "kv"
    rig = open_rig([LONG + LONG[::-1]], ctx=8192, store_folder=store, auto_compact=False)
    rig.ready()
    rig.turn("fill it")
    saved = rig.close().resume_id
    again = open_rig([LONG + LONG[::-1], SUMMARY, "On it."], ctx=8192, store_folder=store)
    again.ready()
    again.send(Load(saved))
    again.wait(Ready)
    again.wait_idle()
    assert not again.of(Compacted)
    again.send(Submit("go on"))
    again.wait(TurnStarted)
    again.wait(Compacted)
    assert again.wait(TurnEnded).outcome is Outcome.DONE


def test_model_that_writes_no_summary_costs_no_facts(open_rig) -> None:
    rig = open_rig([LONG, "", "Yes."])
    rig.ready()
    rig.turn("keep this wish")
    rig.wait_idle()
    rig.send(Compact())
    done = rig.wait(Compacted)
    rig.wait_idle()
    assert done.summary == "" and "- keep this wish" in rig.said()


def test_is_full_waits_for_growth_after_a_compaction(open_rig) -> None:
    rig = open_rig(["Hi."])
    rig.ready()
    conversation = rig.conversation
    ctx = conversation.session.ctx
    n_more = int(0.9 * ctx)
    assert compaction.is_full(conversation, n_more)
    conversation.compacted_tokens = conversation.n_tokens + n_more - 10
    assert not compaction.is_full(conversation, n_more)
    assert isinstance(rig.close(), Closed)


def test_what_cannot_be_saved_is_not_given_up(open_rig, tmp_path, monkeypatch) -> None:
    rig = open_rig([LONG, SUMMARY, "Here."], store_folder=tmp_path / "kv")
    rig.ready()

    def full(*arguments, **options):
        raise CheckpointError("can't save the session: No space left on device", "Make room.")

    monkeypatch.setattr("sessions.keeper.Keeper.fold", full)
    monkeypatch.setattr("sessions.keeper.Keeper.append", full)
    rig.turn("a message")
    rig.wait_idle()
    before = rig.live_text()
    rig.send(Compact())
    assert (
        "cannot be saved, so it stays open"
        in rig.wait(Notice, lambda notice: notice.level == "error").text
    )
    rig.wait_idle()
    assert rig.live_text() == before
    assert rig.turn("and now").outcome is Outcome.DONE
