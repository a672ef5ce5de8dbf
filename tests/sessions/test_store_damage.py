"""Broken files and broken disks: one clear line, and nothing gets worse."""

import contextlib
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sessions.errors import CheckpointError, ChecksumError
from sessions.record import SavedFile
from sessions.store import SessionStore
from tests.sessions.states import TEXT, assert_same, make_state, save

# Header bytes that say nothing about the state: reason, hits, last used; and the time of creation,
# which the side file has too.
_FREE_BYTES = {5, *range(12, 16), *range(24, 40)}


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@contextlib.contextmanager
def memory_limit(extra_bytes: int) -> Iterator[None]:
    """Let this process allocate no more than ``extra_bytes`` from here on."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        pytest.skip("needs the address space limit of Linux")
    in_use = int(pages.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (in_use + extra_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def one_line(error: CheckpointError) -> bool:
    return bool(str(error)) and "\n" not in str(error) and bool(error.hint)


def test_file_cut_at_any_byte_is_refused_and_left_alone(store: SessionStore) -> None:
    saved = save(store)
    whole = saved.path.read_bytes()
    for n_bytes in range(len(whole)):
        saved.path.write_bytes(whole[:n_bytes])
        with pytest.raises(CheckpointError, match=f"session {saved.id[:8]}: ") as caught:
            store.load(saved.id)
        assert one_line(caught.value)
        assert store.list() == []
        (damaged,) = store.damaged
        assert damaged.path == saved.path
        assert damaged.reason
        assert saved.path.read_bytes() == whole[:n_bytes]
    saved.path.write_bytes(whole)
    assert_same(store.load(saved.id)[0], make_state())


@pytest.mark.parametrize("bit", range(8))
def test_flipped_bit_anywhere_is_noticed(store: SessionStore, bit: int) -> None:
    saved = save(store)
    whole = saved.path.read_bytes()
    corrupt = saved.path.with_name(saved.path.name + ".corrupt")
    for offset in range(len(whole)):
        data = bytearray(whole)
        data[offset] ^= 1 << bit
        saved.path.write_bytes(data)
        store.list()  # raises for nothing in a file
        if offset in _FREE_BYTES:
            assert_same(store.load(saved.id)[0], make_state())
            continue
        with pytest.raises(CheckpointError) as caught:
            store.load(saved.id)
        assert one_line(caught.value)
        kept = corrupt if isinstance(caught.value, ChecksumError) else saved.path
        assert kept.read_bytes() == data  # renamed or not, never lost
        kept.unlink()


def test_wrong_checksum_moves_the_file_out_of_the_way(store: SessionStore) -> None:
    saved = save(store)
    for n in ("", ".2", ".3"):
        save(store)
        data = bytearray(saved.path.read_bytes())
        data[-60] ^= 1
        saved.path.write_bytes(data)
        kept = f"{saved.id}.kv.corrupt{n}"
        with pytest.raises(ChecksumError, match="checksum") as caught:
            store.load(saved.id)
        assert kept in caught.value.hint
        assert (store.folder / kept).read_bytes() == data
        assert not saved.path.exists()
    assert store.list() == []
    assert store.damaged == ()


def test_absurd_sizes_are_refused_before_anything_is_allocated(store: SessionStore) -> None:
    saved = save(store)
    whole = saved.path.read_bytes()
    with memory_limit(256 << 20):
        for offset, size in [(8, 4), (16, 4), (40, 8), (48, 4)]:
            for value in (0x7FFFFFFF, 0xFFFFFFFF, 2**62, 2**64 - 1):
                lie = (value % 2 ** (8 * size)).to_bytes(size, "little")
                saved.path.write_bytes(whole[:offset] + lie + whole[offset + size :])
                with pytest.raises(CheckpointError):
                    store.load(saved.id)
                assert store.list() == []


def test_huge_hole_with_lying_counts_says_how_much_memory_it_wants(store: SessionStore) -> None:
    saved = save(store, n_layers=1, n_heads=1, head_dim=1, n_vocab=5)
    data = bytearray(saved.path.read_bytes())
    n_vocab = 2**32 - 1  # 16 GiB of logits that a sparse file does hold
    payload = 52 + len(TEXT)
    data[payload + 24 : payload + 28] = n_vocab.to_bytes(4, "little")
    payload_bytes = int.from_bytes(data[40:48], "little") + 4 * (n_vocab - 5)
    data[40:48] = payload_bytes.to_bytes(8, "little")
    title = data[-17:]
    with saved.path.open("wb") as file:
        file.write(data)
        file.seek(payload + payload_bytes)
        file.write(title)
    with (
        memory_limit(1 << 30),
        pytest.raises(CheckpointError, match="not enough memory for its 16384 MiB"),
    ):
        store.load(saved.id)


@pytest.mark.parametrize("content", [b"", b"GGUF" + bytes(100), b"KVC\2" + bytes(100)])
def test_something_else_under_a_session_name_is_reported(
    store: SessionStore, content: bytes
) -> None:
    saved = save(store)
    other = store.folder / f"{'ab' * 20}.kv"
    other.write_bytes(content)
    assert [record.id for record in store.list()] == [saved.id]
    assert [file.path for file in store.damaged] == [other]
    with pytest.raises(CheckpointError):
        store.load("abab")


def test_session_renamed_to_another_id_is_refused(store: SessionStore) -> None:
    saved = save(store)
    saved.path.rename(store.folder / f"{'ab' * 20}.kv")
    with pytest.raises(CheckpointError, match="don't belong to the name"):
        store.load("ab")


def test_pipe_and_folder_under_a_session_name_block_nothing(store: SessionStore) -> None:
    saved = save(store)
    os.mkfifo(store.folder / f"{'ab' * 20}.kv")
    (store.folder / f"{'cd' * 20}.kv").mkdir()
    assert [record.id for record in store.list()] == [saved.id]
    assert len(store.damaged) == 2
    for prefix in ("abab", "cdcd"):
        with pytest.raises(CheckpointError, match="not a regular file"):
            store.load(prefix)


def test_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kvcache"
    path.write_bytes(b"mine")
    for store in (SessionStore(path), SessionStore(path / "inner")):
        for action in (lambda s=store: save(s), store.list, lambda s=store: s.load("ab")):
            with pytest.raises(CheckpointError, match="Not a directory") as caught:
                action()
            assert "Move the file away" in caught.value.hint
    assert path.read_bytes() == b"mine"


def test_unreadable_file_is_reported(plain_folder: Path) -> None:
    store = SessionStore(plain_folder)
    saved = save(store)
    saved.path.chmod(0)
    assert store.list() == []
    assert "Permission denied" in store.damaged[0].reason
    with pytest.raises(CheckpointError, match="Permission denied") as caught:
        store.load(saved.id)
    assert str(plain_folder) in caught.value.hint
    saved.path.chmod(0o600)
    assert_same(store.load(saved.id)[0], make_state())


def test_unreadable_folder_is_reported(plain_folder: Path) -> None:
    store = SessionStore(plain_folder)
    plain_folder.chmod(0)
    for action in (lambda: save(store), store.list, lambda: store.load("ab")):
        with pytest.raises(CheckpointError, match="Permission denied") as caught:
            action()
        assert caught.value.hint


def test_read_only_folder_can_be_read_and_not_written(plain_folder: Path) -> None:
    store = SessionStore(plain_folder)
    saved = save(store)
    before = names(plain_folder)
    plain_folder.chmod(0o500)
    for action in (
        lambda: save(store, seed=1),
        lambda: store.save_system(make_state(), TEXT),
        lambda: store.delete(saved.id),
        lambda: store.open_lock(saved.id),
    ):
        with pytest.raises(CheckpointError, match="Permission denied") as caught:
            action()
        assert one_line(caught.value)
    assert [record.id for record in store.list()] == [saved.id]
    assert_same(store.load(saved.id)[0], make_state())
    assert names(plain_folder) == before


def test_broken_file_in_a_read_only_folder_stays_and_is_reported(plain_folder: Path) -> None:
    store = SessionStore(plain_folder)
    saved = save(store)
    data = bytearray(saved.path.read_bytes())
    data[-60] ^= 1
    saved.path.write_bytes(data)
    plain_folder.chmod(0o500)
    with pytest.raises(ChecksumError, match="checksum"):
        store.load(saved.id)
    assert saved.path.read_bytes() == data


def old_save_survives_a_full_disk(store: SessionStore, saved: SavedFile, message: str) -> None:
    before = names(store.folder)
    with pytest.raises(CheckpointError, match=message) as caught:
        save(store, seed=1, n_tokens=4000, n_layers=8, n_heads=2, head_dim=64)
    assert "Make room" in caught.value.hint
    with pytest.raises(CheckpointError, match=message):
        store.save_system(make_state(n_tokens=4000, n_heads=8, head_dim=64), TEXT)
    assert names(store.folder) == before
    assert_same(store.load(saved.id)[0], make_state())


def test_full_disk_keeps_the_old_save_and_no_fragment(small_disk: Path) -> None:
    store = SessionStore(small_disk / "kvcache")
    old_save_survives_a_full_disk(store, save(store), "No space left")


def test_file_size_limit_keeps_the_old_save_and_no_fragment(store: SessionStore) -> None:
    saved = save(store)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 10, 100_000):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
        try:
            old_save_survives_a_full_disk(store, saved, "File too large")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_load_that_fails_leaves_no_thread(store: SessionStore) -> None:
    saved = save(store, n_tokens=400, n_heads=4, head_dim=64)
    data = saved.path.read_bytes()
    for n in (0, 3000, 300_000):  # sound, and cut in the middle of the state
        saved.path.write_bytes(data[: len(data) - n])
        with contextlib.suppress(CheckpointError):
            store.load(saved.id)
        assert not [t for t in threading.enumerate() if t.name.startswith("ds4-")]
