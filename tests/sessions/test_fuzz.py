"""Damaged files of every kind: an error or the very state that was saved, and nothing else.

A child process reads them under a limit of memory and time, so that a crash, a hang and a lie
about sizes would all be seen. Each number of a mutation makes the same file again.
"""

import hashlib
import lzma
import multiprocessing
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.state import SessionState
from sessions import checkpoint, export_file, journal, marks, side_file, transfer, upkeep
from sessions.errors import CheckpointError
from sessions.fork import fork
from sessions.record import SessionMeta
from sessions.store import SessionStore
from tests.sessions.deltas import append, fold, keeper_of, whole
from tests.sessions.states import TEXT, make_state, save

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4_tiny"
C_FILE = FIXTURES / "ds4sim_short_d665f7cb023c22a6a96ffc19ffec28a7fd575b5c.kv.xz"
_FORK = multiprocessing.get_context("fork")
_ROOM_BYTES = 256 << 20  # besides what the process has already; the files have some 100 kB
_SECONDS_EACH = 2.0  # far more than any of them takes: a hang is minutes

Outcome = str | None  # digest of what was loaded, or None for an error


def digest_of(state: SessionState, text: bytes) -> str:
    digest = hashlib.sha256(repr((state.tokens, text, sorted(state.arrays))).encode())
    for array in (state.logits, *(state.arrays[name] for name in sorted(state.arrays))):
        digest.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1))
    return digest.hexdigest()


# --- what is damaged, and how it is read ------------------------------------------------------


def restored(store: SessionStore, identifier: str) -> str:
    found = store.restore(identifier)
    return digest_of(found.state, found.text)


class Subject:
    """A folder with one file that will be damaged."""

    def __init__(self, folder: Path) -> None:
        self.store = SessionStore(folder)
        self.good: set[str] = set()  # what a load may give
        self.path = folder
        self.identifier = ""
        self.is_proved = True  # a checksum reaches every byte that is loaded

    def load(self) -> str:
        self.store.list()
        return restored(self.store, self.identifier)


def llama(folder: Path) -> Subject:
    subject = Subject(folder)
    saved = save(subject.store, n_tokens=40, n_heads=2, head_dim=8)
    subject.path, subject.identifier = saved.path, saved.id
    subject.good = {restored(subject.store, saved.id)}
    return subject


def v4(folder: Path) -> Subject:
    """The state of the C program, saved by us: with a checksum beside it."""
    subject = Subject(folder)
    raw = folder / "c.raw"
    folder.mkdir(parents=True)
    raw.write_bytes(lzma.open(C_FILE).read())
    with checkpoint.opened(raw, of_may21=True) as opened:
        text = opened.text()
        state = opened.state(text)
    raw.unlink()
    saved = subject.store.save(state, text, title="t", created_at=1, meta=SessionMeta())
    subject.path, subject.identifier = saved.path, saved.id
    subject.good = {restored(subject.store, saved.id)}
    return subject


def v4_alone(folder: Path) -> Subject:
    """The same without our side file: every count and value is checked, and nothing proved."""
    subject = v4(folder)
    side_file.path_for(subject.path).unlink()
    subject.is_proved = False
    return subject


def journalled(folder: Path) -> Subject:
    subject = Subject(folder)
    keeper = keeper_of(subject.store)
    fold(keeper, whole(20))
    subject.good = {restored(subject.store, keeper.id)}
    for n in (30, 45, 60):
        append(keeper, whole(n))
        subject.good.add(restored(subject.store, keeper.id))
    keeper.close()
    subject.path, subject.identifier = journal.path_for(keeper.path), keeper.id
    return subject


def exported(folder: Path) -> Subject:
    store = SessionStore(folder / "from")
    state = make_state(n_tokens=60, n_heads=2, head_dim=64)
    saved = store.save(state, TEXT, title="t", created_at=1, meta=SessionMeta())
    subject = Subject(folder / "to")
    subject.path = transfer.export_session(store, saved.id, folder / "s").path
    subject.good = {digest_of(state, TEXT)}

    def load() -> str:
        with subject.path.open("rb") as file:
            found, text, _ = export_file.read(file)
        return digest_of(found, text)

    subject.load = load  # type: ignore[method-assign]
    return subject


def side(folder: Path) -> Subject:
    """What lies beside a checkpoint may be lost, and must not change what is loaded."""
    subject = v4(folder)
    subject.path = side_file.path_for(subject.path)
    return subject


SUBJECTS: dict[str, Callable[[Path], Subject]] = {
    f.__name__: f for f in (llama, v4, v4_alone, journalled, exported, side)
}


def mutated(data: bytes, number: int) -> bytes:
    """Return a damaged copy. Lengths and counts in the first bytes are hit most often."""
    random = np.random.default_rng(number)
    out = bytearray(data)
    for _ in range(int(random.integers(1, 4))):
        near = random.random() < 0.6
        at = int(random.integers(0, min(len(out), 256) if near else len(out)))
        match int(random.integers(0, 8)):
            case 0:
                out[at] ^= 1 << int(random.integers(0, 8))
            case 1:
                out[at] = int(random.integers(0, 256))
            case 2:
                extreme = (0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0)
                value = extreme[int(random.integers(0, len(extreme)))]
                at &= ~3
                out[at : at + 4] = value.to_bytes(4, "little")
            case 3:
                at &= ~7
                out[at : at + 8] = bytes(
                    [0xFF, 0x7F, 0x80, 0][int(random.integers(0, 4))] for _ in range(8)
                )
            case 4:
                del out[at:]
            case 5:
                del out[at : at + int(random.integers(1, 64))]
            case 6:
                out[at:at] = random.bytes(int(random.integers(1, 64)))
            case 7:
                start = int(random.integers(0, len(out)))
                out[at:at] = out[start : start + int(random.integers(1, 512))]
        if not out:
            break
    return bytes(out)


def read_all(kind: str, folder: Path, first: int, n: int, results) -> None:
    """In the child: load each damaged file and say what came of it."""
    subject = SUBJECTS[kind](folder)
    pristine = folder.with_name("pristine")
    shutil.copytree(folder, pristine)
    data = subject.path.read_bytes()
    limit = _memory_bytes() + _ROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    n_errors = n_loaded = 0
    for number in range(first, first + n):
        subject.path.write_bytes(mutated(data, number))
        try:
            outcome: Outcome = subject.load()
        except CheckpointError as error:
            assert str(error) and "\n" not in str(error), (number, error)
            outcome = None
        except BaseException as error:  # whatever else it is must be told with its number
            results.put((kind, number, repr(error)))
            raise
        if outcome is None:
            n_errors += 1
        else:
            n_loaded += 1
            if subject.is_proved and outcome not in subject.good:
                results.put((kind, number, "loaded another state"))
                return
        if not subject.path.exists() or number % 50 == 0:  # a broken file was put aside
            shutil.rmtree(folder)
            shutil.copytree(pristine, folder)
    results.put((kind, n_errors, n_loaded))


def _memory_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    return pages * os.sysconf("SC_PAGE_SIZE")


def fuzz(kind: str, folder: Path, n: int, first: int = 0) -> tuple[int, int]:
    results = _FORK.Queue()
    child = _FORK.Process(target=read_all, args=(kind, folder, first, n, results))
    child.start()
    child.join(30 + n * _SECONDS_EACH)
    if child.is_alive():
        child.kill()
        child.join()
        pytest.fail(f"{kind}: a file from {first} on keeps its reader busy for ever")
    found = results.get(timeout=10) if child.exitcode == 0 or not results.empty() else None
    assert child.exitcode == 0, f"{kind}: the reader died with {child.exitcode}, last told {found}"
    assert found is not None and found[0] == kind and isinstance(found[2], int), found
    return found[1], found[2]


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to limit memory")
@pytest.mark.parametrize("kind", SUBJECTS)
def test_damaged_files_give_an_error_or_the_saved_state(kind, tmp_path) -> None:
    n_errors, n_loaded = fuzz(kind, tmp_path / "kv", 50)
    assert n_errors + n_loaded == 50
    assert n_errors > 10 or kind in ("journalled", "side")  # these may be lost without an error


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc to limit memory")
@pytest.mark.parametrize("kind", SUBJECTS)
def test_20_000_damaged_files(kind, tmp_path) -> None:
    n = -(-20_000 // len(SUBJECTS))
    n_errors, n_loaded = fuzz(kind, tmp_path / "kv", n, first=1000)
    assert n_errors + n_loaded == n


@pytest.mark.slow
def test_a_passphrase_file_is_read_whole_or_not_at_all(tmp_path) -> None:
    path, random = tmp_path / "s", np.random.default_rng(0)
    with path.open("w+b") as file:
        export_file.write(file, make_state(), TEXT, export_file.Facts("t", 1), "p")
    data = path.read_bytes()
    for _ in range(40):  # each try costs a key
        broken = bytearray(data)
        broken[random.integers(13, len(data))] ^= 1 << int(random.integers(0, 8))
        path.write_bytes(broken)
        with path.open("rb") as file, pytest.raises(CheckpointError):
            export_file.read(file, "p")


def test_marks_and_forks_of_damaged_sessions_are_errors(tmp_path) -> None:
    store = SessionStore(tmp_path / "kv")
    saved = save(store, n_tokens=40)
    data = saved.path.read_bytes()
    for number in range(60):
        saved.path.write_bytes(mutated(data, number))
        for action in (
            lambda: fork(store, saved.id),
            lambda: upkeep.rename(store, saved.id, "n"),
            lambda: list(upkeep.verify(store)),
            lambda: list(upkeep.search(store, "x")),
        ):
            try:
                action()
            except CheckpointError:
                pass
        for path in store.folder.iterdir():
            if path.name.endswith(".kv") and path != saved.path:
                path.unlink()
    assert marks.path_for(saved.path).exists()
