"""Appending to a conversation and folding it: what is on the disk after each step."""

import dataclasses
import os
from pathlib import Path

import pytest

from sessions import checkpoint, journal, session_file, side_file, upkeep
from sessions.errors import CheckpointError
from sessions.journal import Boundary
from sessions.keeper import fold_offline
from sessions.store import SessionStore
from tests.sessions.deltas import append, fold, keeper_of, since, text_of, whole
from tests.sessions.states import META, assert_same


@pytest.fixture
def keeper(store: SessionStore):
    keeper = keeper_of(store, clock=lambda: 1_900_000_000)
    fold(keeper, whole(3))
    yield keeper
    keeper.close()


def journal_path(keeper) -> Path:
    return journal.path_for(keeper.path)


def assert_is(store: SessionStore, keeper, state) -> None:
    restored = store.restore(keeper.id)
    assert_same(restored.state, state)
    assert restored.text == text_of(state.tokens)
    assert restored.notes == ()
    assert restored.record.tokens == len(state.tokens)


def test_appended_tokens_are_part_of_the_session(store, keeper) -> None:
    before = keeper.path.read_bytes()
    for n_tokens in (5, 6, 40, 41):
        append(keeper, whole(n_tokens))
        assert_is(store, keeper, whole(n_tokens))
    assert keeper.path.read_bytes() == before  # nothing was written again
    (record,) = store.list()
    assert record.tokens == 41 and record.cwd == META.cwd
    assert record.file_bytes == len(before) + journal_path(keeper).stat().st_size
    assert record.last_used == 1_900_000_000


def test_a_record_costs_what_is_new_and_not_what_is_there(store, keeper) -> None:
    sizes = []
    for n_tokens in range(10, 400, 10):
        sizes.append(append(keeper, whole(n_tokens)))
    of_ten = sizes[1:]
    assert max(of_ten) - min(of_ten) < 16  # the digits of the counts
    rows_and_ids = 10 * (2 * 2 * 2 * 2 + 4 + 2)
    assert max(of_ten) < rows_and_ids + 20 + 700  # logits, a head


def test_events_alone_are_a_record_without_rows(store, keeper) -> None:
    """Also an array that changes as a whole is written only with tokens."""
    state = whole(50)
    append(keeper, state)
    again = since(state, 50)
    again = dataclasses.replace(
        again, arrays=dict(state.arrays), first_rows=dict.fromkeys(state.arrays, 0)
    )
    digest = journal.tokens_sha256(state.tokens)
    n_bytes = keeper.append(
        again, b"", keeper.text_bytes, kind="call", tokens_sha256=digest, events=[{"call": "bash"}]
    )
    with journal_path(keeper).open("rb") as file:
        found = journal.scan(file)
    assert sum(rows.n_bytes for rows in found.records[-1].rows) == 0
    n_logits = 4 * len(state.logits)
    assert n_logits < n_bytes < n_logits + 800  # a head
    assert_is(store, keeper, state)
    assert store.restore(keeper.id).events == ({"call": "bash"},)
    append(keeper, whole(60))
    assert_is(store, keeper, whole(60))


def test_going_back_without_new_tokens_writes_the_rows_that_change(store, keeper) -> None:
    append(keeper, whole(50))
    append(keeper, whole(50, seed=9), kept=0)
    append(keeper, whole(40, seed=9), kind="rewind", kept=40)
    assert_is(store, keeper, whole(40, seed=9))
    append(keeper, whole(40, seed=9), kind="call", events=[{"call": "bash"}])
    assert_is(store, keeper, whole(40, seed=9))


def test_going_back_and_on_is_one_record(store, keeper) -> None:
    append(keeper, whole(50))
    other = whole(20, seed=9)
    append(keeper, other, kept=0)  # another conversation from its first token on
    assert_is(store, keeper, other)
    append(keeper, whole(30, seed=9))
    append(keeper, whole(25, seed=9), kept=22, kind="rewind")
    assert_is(store, keeper, whole(25, seed=9))


def test_boundaries_are_where_each_record_ended(store, keeper) -> None:
    append(keeper, whole(9), kind="result", events=[{"tool": "read"}])
    append(keeper, whole(12))
    append(keeper, whole(20), kind="result")
    append(keeper, whole(15), kept=12, events=[{"outcome": "done"}])
    now = 1_900_000_000
    expected = [(3, "turn"), (9, "result"), (12, "turn"), (15, "turn")]
    assert keeper.boundaries == tuple(Boundary(n, now, kind) for n, kind in expected)
    restored = store.restore(keeper.id)
    assert restored.boundaries == keeper.boundaries
    assert restored.events == ({"tool": "read"}, {"outcome": "done"})
    fold(keeper, whole(15))
    assert keeper.n_records == keeper.journal_bytes == 0
    restored = store.restore(keeper.id)
    assert restored.boundaries == keeper.boundaries
    assert restored.events == ({"tool": "read"}, {"outcome": "done"})


def test_fold_takes_up_the_journal_and_goes_on(store, keeper) -> None:
    append(keeper, whole(10))
    saved = fold(keeper, whole(10))
    with checkpoint.opened(saved.path) as opened:  # for the C program: all of it is in the .kv
        assert opened.header.tokens == 10
        assert_same(opened.state(opened.text()), whole(10))
    assert_is(store, keeper, whole(10))
    append(keeper, whole(12))
    assert_is(store, keeper, whole(12))


def test_a_session_is_resumed_with_its_journal_open(store, keeper) -> None:
    append(keeper, whole(10))
    append(keeper, whole(12))
    keeper.close()
    again = keeper_of(store, store.restore(keeper.id), clock=lambda: 1_900_000_100)
    assert (again.tokens, again.n_records, again.text_bytes) == (12, 2, 24)
    assert again.can_append
    append(again, whole(20))
    assert_is(store, again, whole(20))
    assert [b.tokens for b in again.boundaries] == [3, 10, 12, 20]
    fold(again, whole(20))
    assert_is(store, again, whole(20))
    again.close()


def test_a_spent_journal_is_passed_over_without_a_word(store, keeper) -> None:
    """The instant between the rename of the checkpoint and that of the new journal."""
    append(keeper, whole(10), events=[{"a": 1}])
    spent = journal_path(keeper).read_bytes()
    fold(keeper, whole(12))
    journal_path(keeper).write_bytes(spent)
    assert_is(store, keeper, whole(12))
    assert store.list()[0].tokens == 12
    restored = store.restore(keeper.id)
    assert restored.events == ({"a": 1},)
    assert [b.tokens for b in restored.boundaries] == [3, 10]
    keeper.close()
    again = keeper_of(store, restored)
    append(again, whole(14))
    assert_is(store, again, whole(14))
    again.close()


def test_a_journal_spent_by_going_back_is_not_applied(store, keeper) -> None:
    append(keeper, whole(10))
    spent = journal_path(keeper).read_bytes()
    fold(keeper, whole(2))
    journal_path(keeper).write_bytes(spent)
    assert_is(store, keeper, whole(2))


def test_the_journal_of_another_version_is_told_and_kept(store, keeper) -> None:
    append(keeper, whole(10))
    ours = journal_path(keeper).read_bytes()
    keeper.close()
    # Another program rewrites the checkpoint; it knows neither journals nor side files.
    other = keeper_of(SessionStore(store.folder.parent / "other"))
    fold(other, whole(7, seed=5))
    keeper.path.write_bytes(other.path.read_bytes())
    restored = store.restore(keeper.id)
    assert_same(restored.state, whole(7, seed=5))
    assert restored.notes == (
        "its journal belongs to another version of the file and was left out",
    )
    again = keeper_of(store, restored)
    append(again, whole(9, seed=5))
    assert_is(store, again, whole(9, seed=5))
    kept = journal_path(keeper).with_name(journal_path(keeper).name + ".corrupt")
    assert kept.read_bytes() == ours
    again.close()


def test_a_journal_that_is_none_is_told_and_kept(store, keeper) -> None:
    keeper.close()
    journal_path(keeper).write_bytes(b"no journal")
    restored = store.restore(keeper.id)
    assert_same(restored.state, whole(3))
    assert "its journal was left out: not a journal" in restored.notes[0]
    again = keeper_of(store, restored)
    append(again, whole(4))
    assert_is(store, again, whole(4))
    again.close()


def test_a_journal_that_contradicts_the_state_is_left_out(store, keeper) -> None:
    """Every checksum is right, and the arrays are those of another network."""
    state = whole(5, n_layers=3)
    keeper.append(
        since(state, 3),
        text_of(state.tokens[3:]),
        6,
        kind="turn",
        tokens_sha256=journal.tokens_sha256(whole(3).tokens + state.tokens[3:]),
    )
    restored = store.restore(keeper.id)
    assert_same(restored.state, whole(3))
    assert "has not the arrays of the state" in restored.notes[0]
    assert restored.is_orphaned


def test_a_cut_journal_is_told_in_one_line(store, keeper) -> None:
    append(keeper, whole(10))
    append(keeper, whole(20))
    keeper.close()
    with journal_path(keeper).open("r+b") as file:
        file.truncate(journal_path(keeper).stat().st_size - 7)
    restored = store.restore(keeper.id)
    assert_same(restored.state, whole(10))
    (note,) = restored.notes
    assert note.startswith("record 2 of the journal, at byte ") and "is cut off; its last" in note


def test_a_checkpoint_that_vanished_is_noticed(store, keeper) -> None:
    assert keeper.can_append
    keeper.path.unlink()
    assert not keeper.can_append
    fold(keeper, whole(5))
    assert keeper.can_append
    assert_is(store, keeper, whole(5))


def test_a_journal_that_vanished_is_noticed(store, keeper) -> None:
    append(keeper, whole(5))
    journal_path(keeper).unlink()
    assert not keeper.can_append
    fold(keeper, whole(6))
    append(keeper, whole(8))
    assert_is(store, keeper, whole(8))


def test_delete_removes_the_journal(store, keeper) -> None:
    append(keeper, whole(5))
    keeper.close()
    store.delete(keeper.id)
    assert [path for path in store.folder.iterdir() if keeper.id in path.name] == []


def test_a_damaged_checkpoint_takes_its_journal_aside(store, keeper) -> None:
    append(keeper, whole(5))
    keeper.close()
    data = bytearray(keeper.path.read_bytes())
    with checkpoint.opened(keeper.path) as opened:
        data[opened.envelope.payload_end - 40] ^= 1
    keeper.path.write_bytes(data)
    with pytest.raises(CheckpointError, match="checksum"):
        store.load(keeper.id)
    names = {path.name for path in store.folder.iterdir()}
    assert {f"{keeper.id}.kv.corrupt", f"{keeper.id}.kv.journal.corrupt"} <= names
    assert f"{keeper.id}.kv.journal" not in names


def test_fold_without_anybody_who_has_it_open(store, keeper) -> None:
    append(keeper, whole(10))
    append(keeper, whole(12))
    keeper.close()
    assert fold_offline(store, keeper.id) == 2
    assert fold_offline(store, keeper.id) == 0
    with checkpoint.opened(keeper.path) as opened:
        assert opened.header.tokens == 12
    assert_is(store, keeper, whole(12))
    with store.open_lock(keeper.id), pytest.raises(CheckpointError, match="is open in process"):
        fold_offline(store, keeper.id)


def test_files_are_for_their_owner_only(store, keeper) -> None:
    before = os.umask(0)
    try:
        append(keeper, whole(10))
        fold(keeper, whole(11))
        append(keeper, whole(12))
    finally:
        os.umask(before)
    paths = [keeper.path, journal_path(keeper), side_file.path_for(keeper.path)]
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
    assert store.folder.stat().st_mode & 0o777 == 0o700


def test_a_fold_that_is_broken_off_leaves_everything(store, keeper) -> None:
    append(keeper, whole(100))

    class Enough(Exception):
        pass

    def stop(done: int, total: int) -> None:
        if done > total // 2:
            raise Enough

    before = {path.name: path.read_bytes() for path in store.folder.iterdir()}
    with pytest.raises(Enough):
        fold(keeper, whole(300), progress=stop)
    assert {path.name: path.read_bytes() for path in store.folder.iterdir()} == before
    append(keeper, whole(101))
    assert_is(store, keeper, whole(101))


def test_progress_of_fold_and_restore_goes_up_to_the_end(store, keeper) -> None:
    seen: list[tuple[int, int]] = []
    fold(keeper, whole(300, head_dim=512), progress=lambda *at: seen.append(at))
    assert seen == sorted(seen) and seen[-1][0] == seen[-1][1] and len(seen) > 3
    wrote, seen[:] = seen[-1], []
    store.restore(keeper.id, lambda *at: seen.append(at))
    assert seen == sorted(seen) and seen[-1] == wrote and len(seen) > 3


def test_verify_reads_the_journal_too(store, keeper) -> None:
    append(keeper, whole(10))
    keeper.close()
    record, has_checksum = store.check(keeper.id)
    assert (record.tokens, has_checksum) == (10, True)
    data = bytearray(journal_path(keeper).read_bytes())
    data[-50] ^= 1
    journal_path(keeper).write_bytes(data)
    with pytest.raises(CheckpointError, match="record 1 of the journal.* has a wrong checksum"):
        store.check(keeper.id)
    assert journal_path(keeper).read_bytes() == data


def test_strip_takes_up_the_journal_first(store, keeper) -> None:
    append(keeper, whole(10))
    keeper.close()
    upkeep.strip(store, keeper.id)
    with checkpoint.opened(keeper.path) as opened:
        assert opened.is_stripped and opened.header.tokens == 10
        assert opened.text() == text_of(whole(10).tokens)


def test_verify_says_nothing_of_a_record_that_its_owner_may_be_writing(store, keeper) -> None:
    append(keeper, whole(10))
    data = journal_path(keeper).read_bytes()
    journal_path(keeper).write_bytes(data[:-3])
    with store.open_lock(keeper.id):
        assert store.check(keeper.id)[1]
    with pytest.raises(CheckpointError, match="is cut off"):
        store.check(keeper.id)


def test_a_fold_in_the_middle_of_a_restore_is_noticed(store, keeper, monkeypatch) -> None:
    """Another process reads the checkpoint, and its owner replaces it and the journal."""
    append(keeper, whole(10))
    real, folds = session_file.restore, []

    def restore_slowly(*arguments):
        if not folds:
            folds.append(fold(keeper, whole(12)))
            append(keeper, whole(20))
        return real(*arguments)

    monkeypatch.setattr(session_file, "restore", restore_slowly)
    assert_is(store, keeper, whole(20))


def test_view_events_are_bounded_and_the_oldest_go_first(store, keeper) -> None:
    long = [{"n": n, "text": "x" * 10_000} for n in range(1000)]
    append(keeper, whole(10), events=long)
    events = store.restore(keeper.id).events
    assert 300 < len(events) < 500 and events[-1]["n"] == 999
    append(keeper, whole(12), events=long[:300])
    fold(keeper, whole(12))
    append(keeper, whole(13))
    assert_is(store, keeper, whole(13))
    events = store.restore(keeper.id).events
    assert 300 < len(events) < 500 and events[-1]["n"] == 299


@pytest.mark.parametrize("kept", [2, 4])
def test_what_does_not_follow_is_not_appended(store, keeper, kept) -> None:
    """A fault of the program is told at once, and not by the load of a later day."""
    before = journal_path(keeper).read_bytes()
    with pytest.raises(CheckpointError, match="doesn't give the conversation"):
        keeper.append(
            since(whole(9, seed=4), kept),
            b"",
            0,
            kind="turn",
            tokens_sha256=journal.tokens_sha256(whole(9).tokens),
        )
    assert journal_path(keeper).read_bytes() == before
    append(keeper, whole(9))
    assert_is(store, keeper, whole(9))
