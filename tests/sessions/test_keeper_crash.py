"""Killed at any instant, the power cut at any instant, a file cut at any byte: the rest opens."""

import contextlib
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sessions import folder as names
from sessions import journal
from sessions.errors import CheckpointError
from sessions.keeper import Keeper
from sessions.store import SessionStore
from tests.sessions.deltas import append, fold, keeper_of, text_of, whole
from tests.sessions.states import assert_same

SHAPE = {"n_heads": 2, "head_dim": 64}
PERIOD = 37
_DEADLINE_S = 20.0


def step(n: int) -> int:
    """Tokens of the conversation after its n-th step: it grows, and goes back now and then."""
    return 5 + 9 * (n % PERIOD)


def do_step(keeper: Keeper, n: int) -> None:
    """Bring the n-th step to the disk: what is new, and every fifth time all of it as well."""
    state, events = whole(step(n), **SHAPE), [{"step": n}]
    if keeper.can_append:
        append(keeper, state, min(keeper.tokens, step(n)), events=events)
    if n % 5 == 0:
        fold(keeper, state, events=[] if n else events)


def assert_holds(store: SessionStore, session_id: str, acknowledged: int) -> int:
    """The session opens, whole, and has every step that was acknowledged. Return its last one."""
    restored = store.restore(session_id)
    last = restored.events[-1]["step"]
    assert acknowledged <= last <= acknowledged + 1
    state = whole(step(last), **SHAPE)
    assert_same(restored.state, state)
    assert restored.text == text_of(state.tokens)
    assert len(restored.notes) <= 1
    (record,) = store.list()
    assert store.damaged == () and record.id == session_id
    return last


# --- killed -------------------------------------------------------------------------------------


def keep_going(folder: Path, pipe: int) -> None:
    """Take the session up where it is and do steps for ever, telling each that is done."""
    store = SessionStore(folder)
    restored = store.restore(store.list()[0].id)
    n = restored.events[-1]["step"]
    with store.open_lock(restored.record.id):
        keeper = keeper_of(store, restored)
        while True:
            n += 1
            do_step(keeper, n)
            os.write(pipe, b"%8d" % n)


def killed_after(folder: Path, seconds: float) -> int:
    """Run ``keep_going`` in a process of its own, kill it, and return what it told last."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException):
            keep_going(folder, theirs)
        os._exit(1)
    os.close(theirs)
    told = os.read(ours, 8)  # its first step is done
    assert len(told) == 8, "the child ended by itself"
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the child ended by itself"
    rest = b""
    while data := os.read(ours, 1 << 16):
        rest += data
    os.close(ours)
    return int((told + rest)[-8:])


@pytest.mark.parametrize("n_kills", [10, pytest.param(220, marks=pytest.mark.slow)])
def test_killed_at_a_random_instant_loses_at_most_the_step_it_was_in(folder, n_kills) -> None:
    store = SessionStore(folder)
    keeper = keeper_of(store)
    do_step(keeper, 0)
    keeper.close()
    chance, torn = random.Random(n_kills), 0
    for _ in range(n_kills):
        acknowledged = killed_after(folder, chance.uniform(0.0, 0.02))
        torn += bool(store.restore(keeper.id).notes)
        assert_holds(store, keeper.id, acknowledged)
        for path in folder.iterdir():
            if ".tmp." in path.name:
                torn += 1
                path.unlink()  # a day later the program does that itself
    assert torn or n_kills < 100  # some were killed in the middle, or this test shows nothing


# --- the power is cut ---------------------------------------------------------------------------


class Disk:
    """What of a folder has reached the disk: the worst that a power cut may leave.

    A file has the bytes that it had when it was synced last. A name stands for the file that it
    stood for when the folder was synced last, or for the one it stands for now: a rename may
    reach the disk early. ``check`` is called with a copy of either after every step of the way.
    """

    def __init__(self, folder: Path, copy: Path, check: Callable[[SessionStore], None]) -> None:
        self._folder, self._copy, self._check = folder, copy, check
        self._bytes: dict[int, bytes] = {}
        self._names: dict[str, int] = {}
        self.n_cuts = 0
        self._is_busy = False

    @contextlib.contextmanager
    def watched(self, patch: pytest.MonkeyPatch) -> Iterator[None]:
        with patch.context() as patched:
            for name in ("fsync", "fdatasync", "replace", "unlink", "ftruncate", "pwrite"):
                patched.setattr(os, name, self._around(name, getattr(os, name)))
            yield
        self.cut()

    def _around(self, name: str, real: Callable) -> Callable:
        def call(*arguments, **options):
            result = real(*arguments, **options)
            if self._is_busy:
                return result
            if name in ("fsync", "fdatasync"):
                self._synced(arguments[0])
            self.cut()
            return result

        return call

    def _synced(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if path == self._folder:
            self._names = self._names_now()
        elif path.parent == self._folder:
            self._bytes[os.fstat(descriptor).st_ino] = path.read_bytes()

    def _names_now(self) -> dict[str, int]:
        return {entry.name: entry.inode() for entry in os.scandir(self._folder)}

    def cut(self) -> None:
        """Check what would be left if the power were cut now."""
        self._is_busy = True
        for found in (self._names, self._names_now()):
            shutil.rmtree(self._copy, ignore_errors=True)
            self._copy.mkdir()
            for name, inode in found.items():
                if not name.endswith(names.LOCK_SUFFIX):
                    (self._copy / name).write_bytes(self._bytes.get(inode, b""))
            self._check(SessionStore(self._copy))
            self.n_cuts += 1
        self._is_busy = False


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc, to name open files")
def test_the_power_cut_at_any_instant_loses_at_most_the_step_it_was_in(
    folder, tmp_path, monkeypatch
) -> None:
    acknowledged = -1
    session_id = ""

    def check(store: SessionStore) -> None:
        if acknowledged >= 0:
            assert_holds(store, session_id, acknowledged)

    disk = Disk(folder, tmp_path / "after", check)
    keeper = keeper_of(SessionStore(folder))
    session_id = keeper.id
    folder.mkdir(parents=True)
    with disk.watched(monkeypatch):
        for n in range(12):
            do_step(keeper, n)
            acknowledged = n
    keeper.close()
    assert disk.n_cuts > 100


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc, to name open files")
def test_the_power_cut_model_notices_a_missing_fsync(folder, tmp_path, monkeypatch) -> None:
    """Without the sync of an append, the model must lose an acknowledged step."""
    lost: list[str] = []

    def check(store: SessionStore) -> None:
        if acknowledged >= 0:
            try:
                assert_holds(store, keeper.id, acknowledged)
            except (AssertionError, CheckpointError) as error:
                lost.append(str(error))

    acknowledged = -1
    disk = Disk(folder, tmp_path / "after", check)
    keeper = keeper_of(SessionStore(folder))
    folder.mkdir(parents=True)
    monkeypatch.setattr("sessions.journal_writer.data_to_disk", lambda descriptor: None)
    with disk.watched(monkeypatch):
        for n in range(3):
            do_step(keeper, n)
            acknowledged = n
    keeper.close()
    assert lost


# --- cut at every byte --------------------------------------------------------------------------


@pytest.fixture
def kept(store: SessionStore) -> Keeper:
    keeper = keeper_of(store)
    fold(keeper, whole(3), events=[{"step": 0}])
    for n_tokens in (6, 9):
        append(keeper, whole(n_tokens), events=[{"step": n_tokens}])
    keeper.close()
    return keeper


def test_a_journal_cut_at_every_byte_of_its_last_records(store, kept) -> None:
    path = journal.path_for(kept.path)
    data = path.read_bytes()
    with path.open("rb") as file:
        first, second = journal.scan(file).records
    for n_bytes in range(len(data) - 1, 100, -1):
        with path.open("r+b") as file:
            file.truncate(n_bytes)
        restored = store.restore(kept.id)
        if not restored.journal:  # cut inside of what it builds on
            assert_same(restored.state, whole(3))
            assert "its journal was left out" in restored.notes[0]
            continue
        n_tokens = 6 if n_bytes >= first.end else 3
        assert_same(restored.state, whole(n_tokens))
        is_torn = n_bytes != restored.journal.end
        assert len(restored.notes) == is_torn
        if n_bytes % 16 == 0:  # and it goes on from there; each costs an fsync
            again = keeper_of(store, restored)
            again.close()
            assert path.stat().st_size == restored.journal.end
            path.write_bytes(data)
    assert second.end == len(data)


def test_a_checkpoint_cut_at_every_byte_is_told_and_nothing_else_is_touched(store, kept) -> None:
    other = Keeper(store, title="Another one", created_at=5, meta=keeper_of(store)._meta)
    fold(other, whole(4))
    other.close()
    data = kept.path.read_bytes()
    ours = journal.path_for(kept.path).read_bytes()
    for n_bytes in range(len(data) - 1, -1, -1):
        kept.path.write_bytes(data[:n_bytes])
        with pytest.raises(CheckpointError) as caught:
            store.restore(kept.id)
        assert caught.value.hint and "\n" not in str(caught.value)
        assert [record.id for record in store.list()] == [other.id]
        assert kept.path.stat().st_size == n_bytes
        assert journal.path_for(kept.path).read_bytes() == ours
    kept.path.write_bytes(data)
    assert_same(store.restore(kept.id).state, whole(9))
