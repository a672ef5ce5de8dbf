"""A full disk, a folder that can't be written, a file that may not grow: nothing that was there is
damaged, and when there is room again everything is kept."""

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions import journal
from sessions.errors import CheckpointError
from sessions.store import SessionStore
from tests.sessions.deltas import append, fold, keeper_of, text_of, whole
from tests.sessions.states import assert_same

SHAPE = {"n_heads": 4, "head_dim": 64}  # 2 KB a token
_DISK_BYTES = 1 << 20


def state_of(n_tokens: int):
    return whole(n_tokens, **SHAPE)


def assert_is(folder: Path, session_id: str, n_tokens: int) -> None:
    restored = SessionStore(folder).restore(session_id)
    assert_same(restored.state, state_of(n_tokens))
    assert restored.text == text_of(restored.state.tokens)
    assert restored.notes == ()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_append_to_a_full_disk_changes_nothing_and_works_again_later(small_disk: Path) -> None:
    keeper = keeper_of(SessionStore(small_disk))
    fold(keeper, state_of(20))
    append(keeper, state_of(30))
    n_on_disk = 30
    with pytest.raises(CheckpointError, match="No space left on device") as caught:
        for n_tokens in range(60, 400, 30):
            append(keeper, state_of(n_tokens))
            n_on_disk = n_tokens
        append(keeper, state_of(400), 0)  # all of it once more
    assert caught.value.hint == "Make room on this disk and try again."
    assert_is(small_disk, keeper.id, n_on_disk)
    assert keeper.tokens == n_on_disk
    before = contents(small_disk)
    for _ in range(3):
        with pytest.raises(CheckpointError, match="No space left"):
            append(keeper, state_of(400), 0)
        assert contents(small_disk) == before
        with pytest.raises(CheckpointError, match="No space left"):
            fold(keeper, state_of(400))
        assert contents(small_disk) == before
    assert keeper.can_append
    subprocess.run(["mount", "-o", "remount,size=8M", small_disk], check=True)
    append(keeper, state_of(400))
    assert_is(small_disk, keeper.id, 400)
    fold(keeper, state_of(400))
    assert_is(small_disk, keeper.id, 400)
    keeper.close()


def test_fold_with_room_for_all_but_its_new_journal(small_disk: Path) -> None:
    """The checkpoint is whole; the journal begins later."""
    keeper = keeper_of(SessionStore(small_disk))
    fold(keeper, state_of(20))
    append(keeper, state_of(30))
    keeper.events = [{"text": "x" * _DISK_BYTES}]  # its base alone is larger than the disk
    fold(keeper, state_of(40))
    assert not journal.path_for(keeper.path).exists()
    assert_is(small_disk, keeper.id, 40)
    with pytest.raises(CheckpointError, match="No space left"):
        append(keeper, state_of(50))
    assert_is(small_disk, keeper.id, 40)
    keeper.events = []
    append(keeper, state_of(50))
    assert_is(small_disk, keeper.id, 50)
    keeper.close()


@pytest.fixture
def file_limit() -> Iterator[None]:
    """Give the limit back."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def limit(n_bytes: int) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, most))


def test_append_up_to_every_limit_of_the_file_size(store, folder, file_limit) -> None:
    """As a disk that fills up in the middle of a record, at every place of it."""
    keeper = keeper_of(store)
    fold(keeper, state_of(3))
    append(keeper, state_of(4))
    path = journal.path_for(keeper.path)
    before = path.read_bytes()
    for n_bytes in (*range(len(before), len(before) + 700, 9), len(before) + 2000):
        limit(n_bytes)
        try:
            with pytest.raises(CheckpointError, match="File too large") as caught:
                append(keeper, state_of(6))
        finally:
            limit(resource.RLIM_INFINITY)
        assert caught.value.hint == "Make room on this disk and try again."
        assert path.read_bytes() == before
    append(keeper, state_of(8))
    assert_is(folder, keeper.id, 8)
    keeper.close()


def test_a_record_that_can_not_even_be_cut_off_again_is_written_over(
    store, folder, file_limit, monkeypatch
) -> None:
    keeper = keeper_of(store)
    fold(keeper, state_of(3))
    append(keeper, state_of(4))
    path = journal.path_for(keeper.path)

    def refused(descriptor: int, n_bytes: int) -> None:
        raise OSError(5, "Input/output error")

    limit(path.stat().st_size + 1000)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "ftruncate", refused)
            with pytest.raises(CheckpointError):
                append(keeper, state_of(9))
    finally:
        limit(resource.RLIM_INFINITY)
    restored = store.restore(keeper.id)  # the torn record is passed over, and told
    assert_same(restored.state, state_of(4))
    assert "is cut off; its last 1,000 bytes were dropped" in restored.notes[0]
    append(keeper, state_of(7))
    assert_is(folder, keeper.id, 7)
    keeper.close()


def test_a_sync_that_fails_is_not_believed_again(store, folder, monkeypatch) -> None:
    """After it, the system may have forgotten what was written: the whole conversation is due."""
    keeper = keeper_of(store)
    fold(keeper, state_of(3))
    append(keeper, state_of(4))

    def broken(descriptor: int) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("sessions.journal_writer.data_to_disk", broken)
        with pytest.raises(CheckpointError, match="Input/output error"):
            append(keeper, state_of(5))
    assert not keeper.can_append
    assert_is(folder, keeper.id, 4)
    fold(keeper, state_of(6))
    assert keeper.can_append
    append(keeper, state_of(7))
    assert_is(folder, keeper.id, 7)
    keeper.close()


def test_a_folder_that_can_not_be_written(plain_folder: Path) -> None:
    folder = plain_folder / "kvcache"
    keeper = keeper_of(SessionStore(folder))
    fold(keeper, state_of(3))
    append(keeper, state_of(4))
    before = contents(folder)
    folder.chmod(0o500)
    try:
        with pytest.raises(CheckpointError, match="Permission denied") as caught:
            fold(keeper, state_of(5))
        assert caught.value.hint == f"Allow your user to read and write {folder}."
        assert contents(folder) == before
        append(keeper, state_of(6))  # into a file that is open: that still works
        assert_is(folder, keeper.id, 6)
        keeper.close()
        journal.path_for(keeper.path).chmod(0o400)
        with pytest.raises(CheckpointError, match="Permission denied"):
            keeper_of(SessionStore(folder), SessionStore(folder).restore(keeper.id))
        assert_is(folder, keeper.id, 6)
    finally:
        folder.chmod(0o700)
        journal.path_for(keeper.path).chmod(0o600)
    again = keeper_of(SessionStore(folder), SessionStore(folder).restore(keeper.id))
    append(again, state_of(9))
    assert_is(folder, keeper.id, 9)
    again.close()
