"""The worker around the turn: opening, saving, resuming, replacing, failing, closing."""

import dataclasses
import resource
import time
from pathlib import Path

from ds4agent.agent.settings import AgentSettings
from ds4agent.agent.worker import AgentWorker
from ds4agent.events import (
    Closed,
    LoadProgress,
    Notice,
    Outcome,
    Phase,
    PhaseChanged,
    QueueChanged,
    Ready,
    Saved,
    SessionList,
    TextDelta,
    TurnEnded,
    TurnStarted,
)
from ds4agent.requests import ListSessions, Load, Mode, New, Quit, Save, Start, Submit
from engine.errors import ModelFileError
from sessions.identity import session_id
from tests.agent.conftest import DEADLINE_S, call, words
from tests.fakes.scripted_model import scripted_engine

REPLIES = [call("read", path="notes.txt"), "It says alpha.", "Second answer.", "Third answer."]


def errors(rig) -> list[str]:
    return [notice.text for notice in rig.of(Notice) if notice.level in ("warning", "error")]


def test_first_turn_when_done_is_saved_and_told(open_rig, tmp_path) -> None:
    rig = open_rig(REPLIES, store_folder=tmp_path / "kv")
    rig.ready()
    end = rig.turn("what is\nin notes.txt?")
    (saved,) = rig.of(Saved)
    assert saved.automatic
    assert saved.session_id == end.session_id
    assert saved.title == "what is in notes.txt?"
    assert saved.tokens == end.usage.context_tokens
    sizes = [
        (tmp_path / "kv" / f"{end.session_id}.kv{part}").stat().st_size for part in ("", ".journal")
    ]
    assert sum(sizes) == saved.file_bytes
    assert rig.close().resume_id == end.session_id


def test_resume_in_a_new_worker_prefills_only_what_is_new(open_rig, tmp_path) -> None:
    store = tmp_path / "kv"
    first = open_rig(REPLIES, store_folder=store)
    first.ready()
    end = first.turn("what is in notes.txt?")
    first.close()

    second = open_rig(REPLIES, store_folder=store, start=Start(resume_id=end.session_id[:8]))
    ready = second.ready()
    assert ready.session_id == end.session_id
    assert ready.title == "what is in notes.txt?"
    assert (ready.reused_tokens, ready.prefilled_tokens) == (end.usage.context_tokens, 0)
    assert [(entry.role, entry.name) for entry in ready.history] == [
        ("user", ""),
        ("call", "read"),
        ("result", "read"),
        ("assistant", ""),
    ]
    assert second.engine._model.n_positions == 0
    again = second.turn("and now?")
    new_input = "<|im_start|>user\nand now?<|im_end|>\n<|im_start|>assistant\n" + "\n"
    n_markers = 3  # control tokens count one each
    n_marker_bytes = len("<|im_start|><|im_end|><|im_start|>")
    assert again.usage.reused_tokens == end.usage.context_tokens
    assert again.usage.prefilled_tokens == len(new_input) - n_marker_bytes + n_markers
    assert again.usage.generated_tokens == len("Second answer.") + 1
    assert second.texts() == "Second answer."
    assert again.session_id == end.session_id

    third = open_rig(REPLIES, store_folder=tmp_path / "none")
    third.ready()
    third.turn("what is in notes.txt?")
    third.turn("and now?")
    third.wait_idle()
    second.wait_idle()
    assert third.conversation.session.tokens == second.conversation.session.tokens


def test_continue_opens_the_newest_of_this_folder(open_rig, tmp_path) -> None:
    store = tmp_path / "kv"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for cwd, text in ((tmp_path / "project", "ours"), (elsewhere, "theirs")):
        rig = open_rig(["Fine."], store_folder=store, cwd=cwd)
        rig.ready()
        rig.turn(text)
        rig.close()
    rig = open_rig(["Fine."], store_folder=store, start=Start(resume_latest=True))
    assert rig.ready().title == "ours"


def test_equal_prompts_in_the_same_second_are_two_conversations(open_rig, tmp_path) -> None:
    ids = set()
    for _ in range(3):
        rig = open_rig(["Fine."], store_folder=tmp_path / "kv")
        rig.ready()
        ids.add(rig.turn("same words").session_id)
        rig.close()
    assert len(ids) == 3


def test_system_prompt_when_kept_is_not_computed_again(open_rig, tmp_path) -> None:
    first = open_rig(["Fine."], store_folder=tmp_path / "kv")
    computed = first.ready()
    assert (computed.reused_tokens, computed.prefilled_tokens) == (0, computed.context_tokens)
    first.close()
    second = open_rig(["Fine."], store_folder=tmp_path / "kv")
    kept = second.ready()
    assert (kept.reused_tokens, kept.prefilled_tokens) == (computed.context_tokens, 0)
    second.send(New())
    again = second.ready()
    assert again.prefilled_tokens == 0


def test_start_prompt_is_sent_when_the_model_is_ready(open_rig) -> None:
    rig = open_rig(["Fine."], start=Start(prompt="go"))
    assert rig.wait(TurnStarted).text == "go"
    assert rig.wait(TurnEnded).outcome is Outcome.DONE


def test_load_and_new_replace_the_conversation_and_lose_nothing(open_rig, tmp_path) -> None:
    rig = open_rig(["First.", "Second."], store_folder=tmp_path / "kv")
    rig.ready()
    first = rig.turn("one")
    rig.wait_idle()
    rig.send(New())
    assert rig.ready().history == ()
    second = rig.turn("two")
    rig.wait_idle()
    rig.send(Load(first.session_id[:10]))
    ready = rig.ready()
    assert ready.session_id == first.session_id
    assert [entry.text for entry in ready.history] == ["one", "First."]
    rig.send(ListSessions())
    listed = rig.wait(SessionList).sessions
    assert {entry.id for entry in listed} == {first.session_id, second.session_id}
    assert all(entry.resumable for entry in listed)


def test_load_when_there_is_none_leaves_the_current_conversation(open_rig, tmp_path) -> None:
    rig = open_rig(["First.", "Second."], store_folder=tmp_path / "kv")
    rig.ready()
    rig.turn("one")
    rig.wait_idle()
    rig.send(Load("abcdef"))
    assert "abcdef" in rig.wait(Notice).text
    rig.wait_idle()
    assert rig.turn("two").outcome is Outcome.DONE
    assert rig.texts() == "First.Second."


def test_load_of_another_models_conversation_is_refused(open_rig, tmp_path, monkeypatch) -> None:
    rig = open_rig(["First."], store_folder=tmp_path / "kv")
    rig.ready()
    saved = rig.turn("one")
    rig.close()
    other = scripted_engine(["Other."])
    monkeypatch.setattr(other, "info", _with_fingerprint(other.info))
    worker = AgentWorker(
        lambda progress, cancel: other,
        AgentSettings(cwd=tmp_path / "project", mode=Mode.AUTO, store_folder=tmp_path / "kv"),
        Start(),
    )
    worker.start()
    _until(worker, lambda event: event == PhaseChanged(Phase.IDLE))
    worker.send(Load(saved.session_id))
    notice = _until(worker, lambda event: isinstance(event, Notice))
    assert notice.level == "error" and "made with" in notice.text
    worker.send(Submit("hi"))
    end = _until(worker, lambda event: isinstance(event, TurnEnded))
    assert end.outcome is Outcome.DONE
    worker.send(Quit())
    _until(worker, lambda event: isinstance(event, Closed))


def test_load_of_a_conversation_that_is_open_elsewhere_is_refused(open_rig, tmp_path) -> None:
    first = open_rig(["First."], store_folder=tmp_path / "kv")
    first.ready()
    saved = first.turn("one")
    second = open_rig(["First."], store_folder=tmp_path / "kv")
    second.ready()
    second.send(Load(saved.session_id))
    assert "open in process" in second.wait(Notice).text


def test_load_and_new_when_busy_are_refused(open_rig) -> None:
    rig = open_rig(["word " * 20, "x"], delay_s=0.005)
    rig.ready()
    rig.send(Submit("go"))
    rig.wait(TextDelta)
    rig.send(New())
    rig.send(Load("abc"))
    assert "turn is running" in rig.wait(Notice).text
    assert "turn is running" in rig.wait(Notice).text
    assert rig.wait(TurnEnded).outcome is Outcome.DONE


def test_list_when_busy_is_answered_during_the_turn(open_rig, tmp_path) -> None:
    rig = open_rig(["word " * 25], delay_s=0.005, store_folder=tmp_path / "kv")
    rig.ready()
    rig.send(Submit("go"))
    rig.wait(TextDelta)
    rig.send(ListSessions())
    rig.wait(SessionList)
    rig.wait(TurnEnded)


def test_list_that_fails_is_told_and_the_turn_goes_on(open_rig, tmp_path) -> None:
    store = tmp_path / "kv"
    store.write_text("no folder", encoding="utf-8")
    rig = open_rig(["word " * 25], delay_s=0.005, store_folder=store)
    rig.ready()
    rig.send(Submit("go"))
    rig.wait(TextDelta)
    rig.send(ListSessions())
    assert "list the sessions" in rig.wait(Notice).text
    assert rig.wait(TurnEnded).outcome is Outcome.DONE


def test_save_when_nothing_was_said_is_a_notice(open_rig, tmp_path) -> None:
    rig = open_rig(["First."], store_folder=tmp_path / "kv")
    rig.ready()
    rig.send(Save())
    assert "nothing to save" in rig.wait(Notice).text
    rig.wait_idle()
    rig.turn("one")
    rig.wait_idle()
    rig.send(Save())
    assert not rig.wait(Saved, lambda event: not event.automatic).automatic
    rig.wait_idle()


def test_save_when_the_folder_cannot_be_written_warns_and_goes_on(open_rig, tmp_path) -> None:
    blocked = tmp_path / "kv"
    blocked.write_text("a file where the folder should be", encoding="utf-8")
    rig = open_rig(["First.", "Second."], store_folder=blocked)
    rig.ready()
    assert rig.turn("one").outcome is Outcome.DONE
    assert any("was not saved" in text for text in errors(rig))
    rig.wait_idle()
    rig.send(New())
    rig.wait(Notice, lambda event: "stays open" in event.text)
    rig.wait_idle()
    blocked.unlink()
    end = rig.turn("two")
    assert end.outcome is Outcome.DONE and end.session_id
    assert rig.texts() == "First.Second."


def test_save_that_failed_keeps_its_id_for_the_next_try(open_rig, tmp_path) -> None:
    rig = open_rig(["Fine."], store_folder=tmp_path / "kv")
    rig.ready()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))  # like a full disk
    try:
        rig.turn("go")
        rig.wait_idle()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert any("not saved" in text for text in errors(rig))
    created_at = rig.conversation.created_at
    rig.send(Save())
    saved = rig.wait(Saved)
    assert saved.session_id == session_id(b"go", created_at)


def test_quit_mid_turn_saves_the_partial_answer(open_rig, tmp_path) -> None:
    rig = open_rig([words(250), "Fine."], delay_s=0.005, store_folder=tmp_path / "kv")
    rig.ready()
    rig.send(Submit("go"))
    rig.wait(TextDelta)
    closed = rig.close()
    assert rig.of(TurnEnded)[0].outcome is Outcome.INTERRUPTED
    assert rig.seen[-1] == closed and rig.seen[-2] == PhaseChanged(Phase.CLOSED)
    again = open_rig(
        [words(250), "Fine."], store_folder=tmp_path / "kv", start=Start(closed.resume_id)
    )
    history = again.ready().history
    assert history[-1].role == "assistant"
    assert history[-1].text == rig.texts().strip()
    assert again.turn("more").outcome is Outcome.DONE


def test_model_that_cannot_be_opened_is_told_and_quit_still_works(tmp_path) -> None:
    def open_engine(progress, cancel):
        progress(10, 100)
        raise ModelFileError("model.gguf is no GGUF file", "Name another file.")

    worker = AgentWorker(open_engine, AgentSettings(cwd=tmp_path), Start())
    worker.start()
    seen = []
    failed = _until(worker, _is_failed, seen)
    assert "no GGUF file. Name another file." in failed.detail
    assert LoadProgress(10, 100) in seen
    worker.send(Submit("hello?"))
    assert _until(worker, lambda event: isinstance(event, Notice)).level == "error"
    worker.send(Quit())
    assert _until(worker, lambda event: isinstance(event, Closed)).resume_id == ""
    assert worker.join(DEADLINE_S)


def test_quit_while_loading_gives_up_loading(tmp_path) -> None:
    def open_engine(progress, cancel):
        assert cancel.wait(DEADLINE_S)
        raise ModelFileError("loading was stopped")

    worker = AgentWorker(open_engine, AgentSettings(cwd=tmp_path), Start())
    worker.start()
    worker.send(Submit("typed early"))
    worker.send(Quit())
    seen = []
    _until(worker, lambda event: isinstance(event, Closed), seen)
    assert QueueChanged(("typed early",)) in seen
    assert not any(_is_failed(event) for event in seen)


def test_message_typed_while_loading_is_the_first_turn(open_rig) -> None:
    rig = open_rig(["Fine."])
    rig.send(Submit("early"))
    assert rig.wait(TurnStarted).text == "early"
    assert rig.wait(TurnEnded).outcome is Outcome.DONE


def test_resume_of_nothing_on_a_screen_begins_anew_and_headless_fails(open_rig, tmp_path) -> None:
    store = tmp_path / "kv"
    start = Start(resume_id="abcdef", prompt="go on")
    rig = open_rig(["Fine."], store_folder=store, start=start)
    rig.ready()
    assert any("abcdef" in text for text in errors(rig))
    assert not rig.of(TurnStarted)
    headless = open_rig(["Fine."], store_folder=store, start=start, headless=True)
    failed = headless.wait(PhaseChanged, lambda event: event.phase is Phase.FAILED)
    assert "abcdef" in failed.detail
    assert not headless.of(Ready)


def test_continue_when_the_folder_cannot_be_read_begins_anew_on_a_screen(
    open_rig, tmp_path
) -> None:
    store = tmp_path / "kv"
    store.write_text("no folder", encoding="utf-8")
    start = Start(resume_latest=True, prompt="go on")
    rig = open_rig(["Fine."], store_folder=store, start=start)
    rig.ready()
    assert any("list the sessions" in text for text in errors(rig))
    assert not rig.of(TurnStarted)
    headless = open_rig(["Fine."], store_folder=store, start=start, headless=True)
    failed = headless.wait(PhaseChanged, lambda event: event.phase is Phase.FAILED)
    assert "list the sessions" in failed.detail


def test_head_is_byte_stable_and_names_the_folder(open_rig, tmp_path) -> None:
    texts = set()
    for _ in range(2):
        rig = open_rig(["Fine."])
        rig.ready()
        texts.add(rig.live_text())
        rig.close()
    (text,) = texts
    assert str(tmp_path / "project") in text


def test_unexpected_error_in_a_command_is_one_line_and_the_worker_goes_on(
    open_rig, tmp_path, monkeypatch
) -> None:
    rig = open_rig(["Fine."], store_folder=tmp_path / "kv")
    rig.ready()

    def broken(self):
        raise KeyError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr("sessions.store.SessionStore.list", broken)
        rig.send(ListSessions())
        notice = rig.wait(Notice)
    assert notice.text.startswith("Internal error") and "\n" not in notice.text
    assert rig.turn("hi").outcome is Outcome.DONE


def _with_fingerprint(info):
    return dataclasses.replace(info, fingerprint="0d" * 32)


def _is_failed(event) -> bool:
    return isinstance(event, PhaseChanged) and event.phase is Phase.FAILED


def _until(worker: AgentWorker, is_it, seen: list | None = None):
    deadline = time.monotonic() + DEADLINE_S
    while True:
        event = worker.events.get(timeout=max(0.01, deadline - time.monotonic()))
        if seen is not None:
            seen.append(event)
        if is_it(event):
            return event


def test_log_folder_is_not_touched_by_a_worker(tmp_path: Path, open_rig, isolated_home) -> None:
    rig = open_rig(["Fine."])
    rig.ready()
    rig.turn("hi")
    rig.close()
    assert not list(isolated_home.iterdir())
