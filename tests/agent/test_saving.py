"""When a conversation goes to the disk: after each result and each turn what is new, whole when
asked, at the end and in idle time; and what is told when it can't."""

import os
import resource
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from ds4agent.events import Compacted, LoadProgress, Notice, Outcome, Saved, TextDelta, TurnEnded
from ds4agent.requests import Compact, New, Rewind, Save, Start, Submit
from engine.chat.format import User
from sessions import checkpoint, journal
from sessions.store import SessionStore
from tests.agent.conftest import DEADLINE_S, call, words
from tests.agent.test_forks_and_rewinds import forget_rows

REPLIES = [call("read", path="notes.txt"), "It says alpha.", "Second.", "Third.", "Fourth.", "5."]


def warnings(rig) -> list[str]:
    return [notice.text for notice in rig.of(Notice) if notice.level != "info"]


def files(folder: Path, session_id: str) -> tuple[Path, Path]:
    path = folder / f"{session_id}.kv"
    return path, journal.path_for(path)


def n_records(path: Path) -> int:
    with path.open("rb") as file:
        return len(journal.scan(file).records)


def tokens_in(path: Path) -> int:
    with checkpoint.opened(path) as opened:
        return opened.header.tokens


def until(condition) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def test_a_turn_costs_what_is_new(open_rig, tmp_path) -> None:
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES[1:], store_folder=folder)
    rig.ready()
    rig.turn("one")
    (first,) = rig.of(Saved)
    path, beside = files(folder, first.session_id)
    before, sizes = path.read_bytes(), []
    for text in ("two", "six", "ten"):
        sizes.append(beside.stat().st_size)
        rig.turn(text)
        assert path.read_bytes() == before
    grown = [b - a for a, b in zip(sizes, [*sizes[1:], beside.stat().st_size], strict=True)]
    # A byte of text is a token of 10 bytes here, and there are 259 logits.
    assert all(size < 40 * 10 + 4 * 259 + 900 for size in grown), grown
    assert max(grown) < len(before) / 8
    assert rig.of(Saved)[-1].file_bytes == len(before) + beside.stat().st_size


def test_a_result_is_on_the_disk_before_the_model_goes_on(open_rig, tmp_path) -> None:
    """Killed in the middle of the answer, the conversation has its call and the result."""
    folder, at_kill = tmp_path / "kv", tmp_path / "killed"
    rig = open_rig([REPLIES[0], words(300)], delay_s=0.003, store_folder=folder)
    rig.ready()
    rig.send(Submit("what is in notes.txt?"))
    rig.wait(TextDelta, lambda event: "word" in event.text)
    shutil.copytree(folder, at_kill)  # nothing that the program does later is in there
    rig.worker.interrupt()
    rig.wait(TurnEnded)
    rig.close()
    (record,) = SessionStore(at_kill).list()
    again = open_rig(
        [*REPLIES[:1], "Never mind.", "Good."],
        store_folder=at_kill,
        start=Start(resume_id=record.id),
    )
    ready = again.ready()
    assert [entry.role for entry in ready.history] == ["user", "call", "result"]
    assert "alpha" in ready.history[-1].text
    assert ready.prefilled_tokens == 0
    assert again.turn("go on").outcome is Outcome.DONE


def test_save_takes_up_the_journal(open_rig, tmp_path) -> None:
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES, store_folder=folder)
    rig.ready()
    end = rig.turn("what is in notes.txt?")
    rig.wait_idle()
    path, beside = files(folder, end.session_id)
    assert n_records(beside) == 2 and tokens_in(path) < end.usage.context_tokens
    rig.send(Save())
    saved = rig.wait(Saved, lambda event: not event.automatic)
    assert n_records(beside) == 0
    assert tokens_in(path) == saved.tokens == end.usage.context_tokens
    assert saved.file_bytes == path.stat().st_size
    rig.wait_idle()
    written = path.stat().st_ino
    rig.send(Save())  # nothing is new: nothing is written
    assert rig.wait(Saved).tokens == saved.tokens
    assert path.stat().st_ino == written


def test_the_end_takes_up_the_journal(open_rig, tmp_path) -> None:
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES, store_folder=folder)
    rig.ready()
    rig.turn("what is in notes.txt?")
    end = rig.turn("and?")
    rig.close()
    path, beside = files(folder, end.session_id)
    assert tokens_in(path) == end.usage.context_tokens and n_records(beside) == 0


def test_idle_time_takes_up_a_long_journal(open_rig, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ds4agent.agent.worker.IDLE_S", 0.05)
    monkeypatch.setattr("ds4agent.agent.keeping._FOLD_SHARE", 0.0)
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES, store_folder=folder)
    rig.ready()
    end = rig.turn("what is in notes.txt?")
    path, beside = files(folder, end.session_id)
    until(lambda: tokens_in(path) == end.usage.context_tokens and n_records(beside) == 0)
    assert rig.turn("and?").outcome is Outcome.DONE
    assert n_records(beside) == 1


def test_a_short_journal_is_left_for_later(open_rig, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ds4agent.agent.worker.IDLE_S", 0.01)
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES, store_folder=folder)
    rig.ready()
    end = rig.turn("what is in notes.txt?")
    rig.wait_idle()
    time.sleep(0.1)
    assert n_records(files(folder, end.session_id)[1]) == 2  # the results were read; the turn


def test_idle_time_ends_when_somebody_wants_something(open_rig, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ds4agent.agent.worker.IDLE_S", 0.02)
    monkeypatch.setattr("ds4agent.agent.keeping._FOLD_SHARE", 0.0)
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES, store_folder=folder)
    rig.ready()
    waited: list[int] = []

    def slow_save(self, *arguments, progress, **options):
        """A disk that takes for ever: only being wanted ends it."""
        deadline = time.monotonic() + DEADLINE_S
        waited.append(1)
        while time.monotonic() < deadline:
            progress(1, 2)
            time.sleep(0.001)
        raise AssertionError("nobody could interrupt it")

    rig.turn("what is in notes.txt?")
    monkeypatch.setattr("ds4agent.agent.archive.Archive.save", slow_save)
    until(lambda: waited)
    start_s = time.monotonic()
    assert rig.turn("and?").outcome is Outcome.DONE
    assert time.monotonic() - start_s < DEADLINE_S / 2
    monkeypatch.undo()


def test_what_the_tokens_do_not_tell_is_kept_with_them(open_rig, tmp_path) -> None:
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES, store_folder=folder)
    rig.ready()
    end = rig.turn("what is in notes.txt?")
    for _ in range(2):  # in the journal, and taken up
        events = SessionStore(folder).restore(end.session_id).events
        assert [event["event"] for event in events] == ["call", "turn"]
        assert (events[0]["name"], events[0]["ok"]) == ("read", True)
        assert events[1]["outcome"] == "done"
        rig.send(Save())
        rig.wait(Saved)


def test_a_torn_record_is_told_when_the_conversation_is_opened(open_rig, tmp_path) -> None:
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES, store_folder=folder)
    rig.ready()
    end = rig.turn("what is in notes.txt?")
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    beside = files(copy, end.session_id)[1]
    with beside.open("r+b") as file:
        file.truncate(beside.stat().st_size - 9)
    again = open_rig(REPLIES, store_folder=copy, start=Start(resume_id=end.session_id))
    ready = again.ready()
    (told,) = warnings(again)
    assert "is cut off; its last" in told and "\n" not in told
    assert [entry.role for entry in ready.history] == ["user", "call", "result"]
    assert again.turn("go on").outcome is Outcome.DONE


# --- it can't be written ------------------------------------------------------------------------


@pytest.fixture
def full_disk():
    """Switch a limit on and off that ends every larger file, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda n_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk_is_told_once_and_the_conversation_goes_on(
    open_rig, tmp_path, full_disk
) -> None:
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES, store_folder=folder)
    rig.ready()
    end = rig.turn("what is in notes.txt?")
    rig.wait_idle()
    path, beside = files(folder, end.session_id)
    before = (path.read_bytes(), beside.read_bytes())
    full_disk(beside.stat().st_size + 10)
    for text in ("two", "three", "four"):
        assert rig.turn(text).outcome is Outcome.DONE
        assert (path.read_bytes(), beside.read_bytes()) == before
    (told,) = warnings(rig)
    assert told.startswith("The conversation was not saved: can't append")
    assert "Make room on this disk" in told and told.endswith("It goes on in memory.")
    assert not [path for path in folder.iterdir() if ".tmp." in path.name]
    rig.send(New())  # it must not be lost by that
    rig.wait(Notice, lambda event: "stays open" in event.text)
    rig.wait_idle()
    full_disk(resource.RLIM_INFINITY)
    last = rig.turn("five")
    assert any("is saved again" in notice.text for notice in rig.of(Notice))
    assert n_records(beside) == 3  # one record more has all of it
    restored = SessionStore(folder).restore(end.session_id)
    assert restored.state.tokens == rig.conversation.session.tokens
    assert restored.record.tokens == last.usage.context_tokens


@pytest.fixture
def plain_user(monkeypatch):
    """Be a user that permissions apply to, in all threads, with a folder of its own."""
    nobody = 65534
    folder = Path(tempfile.mkdtemp())
    for name in ("HOME", "DS4_HOME"):
        monkeypatch.setenv(name, str(folder))
    is_root = os.geteuid() == 0
    if is_root:
        os.chown(folder, nobody, nobody)
        os.seteuid(nobody)
    yield folder
    if is_root:
        os.seteuid(0)
    folder.chmod(0o700)
    shutil.rmtree(folder)


def test_a_conversation_in_a_folder_that_can_not_be_written(open_rig, plain_user) -> None:
    folder = plain_user / "kv"
    rig = open_rig(REPLIES[1:], store_folder=folder, cwd=plain_user)
    rig.ready()
    end = rig.turn("one")
    rig.close()
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    folder.chmod(0o500)
    again = open_rig(
        REPLIES[1:], store_folder=folder, cwd=plain_user, start=Start(resume_id=end.session_id)
    )
    ready = again.ready()
    assert [entry.role for entry in ready.history] == ["user", "assistant"]
    assert "It is kept as a copy from here on: can't lock the session" in warnings(again)[0]
    assert again.turn("two").outcome is Outcome.DONE
    assert again.turn("three").outcome is Outcome.DONE
    assert "was not saved" in warnings(again)[1] and len(warnings(again)) == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    folder.chmod(0o700)
    assert again.turn("four").session_id != end.session_id  # the first one is as it was
    again.close()
    assert SessionStore(folder).load(end.session_id)[1].tokens == end.usage.context_tokens


def test_progress_of_a_large_file_is_told(open_rig, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("ds4agent.agent.meter._INTERVAL_S", 0.0)
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES[1:], store_folder=folder)
    rig.ready()
    end = rig.turn("one")
    rig.turn("two")
    rig.wait_idle()
    n_before = len(rig.of(LoadProgress))
    rig.send(Save())
    rig.wait(Saved, lambda event: not event.automatic)
    told = rig.of(LoadProgress)[n_before:]
    assert told and told[-1].done_bytes == told[-1].total_bytes
    rig.close()
    again = open_rig(REPLIES[1:], store_folder=folder, start=Start(resume_id=end.session_id))
    again.ready()
    assert again.of(LoadProgress)[-1].total_bytes == told[-1].total_bytes


def test_a_conversation_opened_as_a_copy_leaves_the_first_one_alone(open_rig, tmp_path) -> None:
    folder = tmp_path / "kv"
    rig = open_rig(REPLIES[1:], store_folder=folder)
    rig.ready()
    end = rig.turn("one")
    rig.wait_idle()
    archive, before = rig.worker._archive, files(folder, end.session_id)[0].read_bytes()
    conversation, warning = archive.open(end.session_id, as_copy=True)
    assert (conversation.id, warning) == ("", "")
    conversation.feed(conversation.render([User("more")]))
    conversation.commit()
    saved = archive.keep(conversation)
    assert saved.session_id != end.session_id and saved.title == "one"
    assert files(folder, end.session_id)[0].read_bytes() == before
    assert len(SessionStore(folder).list()) == 2


def test_what_comes_after_a_compaction_and_after_one_that_failed_is_kept(
    open_rig, tmp_path
) -> None:
    folder = tmp_path / "kv"
    long = words(250)
    rig = open_rig([long, "Second.", "A summary of all the words that were said.", "Third."],
                   store_folder=folder)  # fmt: skip
    rig.ready()
    first = rig.turn("one")
    rig.turn("two")
    rig.wait_idle()
    session = rig.conversation.session
    # As a compaction that fails does: something else was computed, and the state put back.
    before = session.state()
    session.sync([*session.tokens[:50], 7, 7, 7])
    session.load(before)
    rig.turn("three")
    rig.wait_idle()
    restored = SessionStore(folder).restore(first.session_id)
    assert restored.state.tokens == rig.conversation.session.tokens
    rig.send(Compact())
    rig.wait(Compacted)
    rig.wait_idle()
    end = rig.turn("four")
    rig.wait_idle()
    assert end.session_id != first.session_id
    for session_id, tokens in (
        (first.session_id, restored.state.tokens),
        (end.session_id, rig.conversation.session.tokens),
    ):
        assert SessionStore(folder).restore(session_id).state.tokens == tokens
    rig.turn("five")
    rig.close()
    assert SessionStore(folder).restore(end.session_id).journal.records == ()


def test_a_journal_without_idle_time_does_not_grow_for_ever(open_rig, tmp_path, monkeypatch):
    monkeypatch.setattr("ds4agent.agent.keeping._MOST_BYTES", 0)
    monkeypatch.setattr("ds4agent.agent.keeping._MOST_SHARE", 0.1)
    folder = tmp_path / "kv"
    rig = open_rig(["word " * 30] * 8, store_folder=folder)
    rig.ready()
    end = rig.turn("one")
    path, beside = files(folder, end.session_id)
    shares = []
    for n in range(7):
        rig.turn(f"turn {n}")
        shares.append(beside.stat().st_size / path.stat().st_size)
    assert max(shares) < 0.2 and any(b < a for a, b in zip(shares, shares[1:], strict=False))
    restored = SessionStore(folder).restore(end.session_id)
    assert restored.state.tokens == rig.conversation.session.tokens
    assert len(restored.boundaries) == 8


def test_going_back_to_a_state_of_the_journal_appends_no_second_conversation(
    open_rig, tmp_path, monkeypatch
) -> None:
    folder = tmp_path / "kv"
    rig = open_rig(["First.", "Second.", "Third."], store_folder=folder)
    rig.ready()
    ends = [rig.turn(text) for text in ("one", "two", "three")]
    rig.wait_idle()
    beside = files(folder, ends[0].session_id)[1]
    forget_rows(monkeypatch, keeps=1)
    rig.send(Rewind(1))
    rig.ready()
    with beside.open("rb") as file:
        last = journal.scan(file).records[-1]
    assert (last.kind, last.keep) == ("rewind", ends[1].usage.context_tokens)
    assert last.tokens == last.keep
    rig.turn("three again")
    restored = SessionStore(folder).restore(ends[0].session_id)
    assert restored.state.tokens == rig.conversation.session.tokens
