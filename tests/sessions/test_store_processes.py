"""Several processes and killed processes in one folder."""

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from sessions.errors import CheckpointError
from sessions.locks import folder_lock
from sessions.record import SessionMeta
from sessions.store import SessionStore
from tests.sessions.states import META, TEXT, assert_same, make_state, save

_FORK = multiprocessing.get_context("fork")
_DEADLINE_S = 20.0
ID = "ab" * 20


@contextlib.contextmanager
def running(target: Callable[..., None], *arguments: object) -> Iterator[BaseProcess]:
    process = _FORK.Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0)


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if ".tmp." in path.name]


def save_for_ever(folder: Path) -> None:
    """Each state is told by its number of tokens, which is its seed too."""
    states = [make_state(n_tokens=n, seed=n, n_heads=4, head_dim=64) for n in range(200, 204)]
    store = SessionStore(folder)
    while True:
        for state in states:
            store.save(state, TEXT, title="t", created_at=1, meta=META)


def test_killed_while_saving_always_leaves_a_whole_session(folder: Path) -> None:
    store = SessionStore(folder)
    state = make_state(n_tokens=200, seed=200, n_heads=4, head_dim=64)
    saved = store.save(state, TEXT, title="t", created_at=1, meta=META)
    n_caught = 0
    for turn in range(25):
        for path in leftovers(folder):
            path.unlink()
        before = saved.path.stat().st_ino
        with running(save_for_ever, folder) as child:
            wait_until(lambda before=before: saved.path.stat().st_ino != before)
            for _ in range(turn):  # another instant each time
                wait_until(lambda: bool(leftovers(folder)))
            os.kill(child.pid or 0, signal.SIGKILL)
            child.join()
        n_caught += bool(leftovers(folder))
        state, record = store.load(saved.id)
        n = len(state.tokens)
        assert_same(state, make_state(n_tokens=n, seed=n, n_heads=4, head_dim=64))
        assert (record.cwd, record.tokens) == (META.cwd, n)
        assert [entry.id for entry in store.list()] == [saved.id]
        assert store.damaged == ()
    assert n_caught  # some were killed in the middle, or this test shows nothing


def die_after_rename(folder: Path, n_renames: int) -> None:
    """Save another state and vanish right after the n-th rename, as in a power cut."""
    rename = os.replace
    left = iter(range(n_renames - 1, -1, -1))

    def rename_and_die(source: Path, target: Path) -> None:
        rename(source, target)
        if not next(left):
            os._exit(0)

    os.replace = rename_and_die
    save(SessionStore(folder), seed=2)


@pytest.mark.parametrize(("n_renames", "seed"), [(1, 1), (2, 2)])
def test_killed_between_the_two_renames_knows_its_folder(
    store: SessionStore, n_renames: int, seed: int
) -> None:
    saved = save(store, seed=1)
    child = _FORK.Process(target=die_after_rename, args=(store.folder, n_renames))
    child.start()
    child.join(_DEADLINE_S)
    assert child.exitcode == 0
    state, record = store.load(saved.id)
    assert_same(state, make_state(seed=seed))
    assert record.cwd == META.cwd
    save(store, seed=3)  # no lock is left behind
    assert store.list()[0].cwd == META.cwd


def save_many(folder: Path, name: str) -> None:
    store = SessionStore(folder)
    for n in range(40):
        shared = make_state(n_tokens=5, seed=n)
        store.save(shared, TEXT, title="shared", created_at=1, meta=SessionMeta(f"/{name}"))
        own = make_state(n_tokens=n + 1, seed=n)
        store.save(own, TEXT, title=f"{name} {n}", created_at=1, meta=SessionMeta(f"/{name}"))


def test_two_processes_save_to_one_folder(folder: Path) -> None:
    children = [_FORK.Process(target=save_many, args=(folder, name)) for name in "ab"]
    for child in children:
        child.start()
    store = SessionStore(folder)
    while any(child.is_alive() for child in children):
        records = store.list()  # a reader never meets half a file
        assert store.damaged == ()
        if records:
            store.load(records[-1].id)
    for child in children:
        child.join()
        assert child.exitcode == 0
    records = store.list()
    assert len(records) == 81
    assert store.damaged == ()
    assert leftovers(folder) == []
    for record in records:
        state, _ = store.load(record.id)
        name, _, n = record.title.partition(" ")
        if name == "shared":
            assert record.cwd in ("/a", "/b")
        else:
            assert record.cwd == f"/{name}"
            assert_same(state, make_state(n_tokens=int(n) + 1, seed=int(n)))


def hold_session(folder: Path, is_held: "multiprocessing.synchronize.Event") -> None:
    with SessionStore(folder).open_lock(ID):
        is_held.set()
        signal.pause()


def test_session_open_elsewhere_names_the_process(store: SessionStore) -> None:
    is_held = _FORK.Event()
    with running(hold_session, store.folder, is_held) as child:
        assert is_held.wait(_DEADLINE_S)
        with pytest.raises(CheckpointError, match=f"is open in process {child.pid}") as caught:
            store.open_lock(ID)
        assert caught.value.hint
        with store.open_lock("cd" * 20):  # another session is free
            pass
    with store.open_lock(ID):  # killed: free again, its lock file left behind
        pass


def test_lock_is_given_back_once(store: SessionStore) -> None:
    lock = store.open_lock(ID)
    with pytest.raises(CheckpointError, match=f"is open in process {os.getpid()}"):
        store.open_lock(ID)
    lock.release()
    with store.open_lock(ID):
        lock.release()  # a second time: must not take the new one away
        with pytest.raises(CheckpointError, match="is open"):
            store.open_lock(ID)
    assert list(store.folder.iterdir()) == []


def count_up(folder: Path, counter: Path) -> None:
    store = SessionStore(folder)
    for _ in range(300):
        while True:
            try:
                lock = store.open_lock(ID)
                break
            except CheckpointError:
                time.sleep(0)
        counter.write_text(str(int(counter.read_text(encoding="ascii")) + 1), encoding="ascii")
        lock.release()


def test_only_one_process_has_the_lock(folder: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0", encoding="ascii")
    children = [_FORK.Process(target=count_up, args=(folder, counter)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(_DEADLINE_S)
        assert child.exitcode == 0
    assert counter.read_text(encoding="ascii") == "900"


@pytest.mark.parametrize("session_id", ["ab", "AB" * 20, "../" + "a" * 37])
def test_lock_of_a_part_of_an_id_is_a_programming_error(
    store: SessionStore, session_id: str
) -> None:
    with pytest.raises(ValueError, match="40 hex digits"):
        store.open_lock(session_id)


def test_folder_held_by_a_stopped_process_is_reported(tmp_path: Path) -> None:
    with (
        folder_lock(tmp_path),
        pytest.raises(CheckpointError, match="keeps .* locked") as caught,
        folder_lock(tmp_path, timeout_s=0.02),
    ):
        pass
    assert caught.value.hint
    with folder_lock(tmp_path, timeout_s=0.0):
        pass


def dead_pid() -> int:
    process = _FORK.Process(target=int)
    process.start()
    process.join()
    return process.pid or 0


def test_only_old_leftovers_of_dead_processes_are_removed(store: SessionStore) -> None:
    store.folder.mkdir(parents=True)
    gone, here = dead_pid(), os.getpid()
    removed = {
        f"{ID}.kv.tmp.{gone}.0123abcd",
        f"{ID}.kv.meta.tmp.{gone}.0123abcd",
        f"{ID}.kv.tmp.{gone}",
        f"sysprompt-{ID}.kv.tmp.{gone}.0123abcd",
    }
    kept = {
        f"{ID}.kv.tmp.{here}.0123abcd": 2,
        f"{ID}.kv.tmp.{gone}.89ab0123": 0,
        f"{ID}.kv.tmp.Xy12z9": 2,
        f"notes.tmp.{gone}": 2,
        f"{ID}.kv.corrupt": 2,
    }
    for name, days in {**dict.fromkeys(removed, 2), **kept}.items():
        path = store.folder / name
        path.write_bytes(b"rest")
        then = time.time() - days * 24 * 3600
        os.utime(path, (then, then))
    save(store)
    assert {path.name for path in store.folder.iterdir()} & {*removed, *kept} == set(kept)
