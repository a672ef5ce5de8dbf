"""A conversation leaves one store and is the same in another."""

from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from sessions import export_file, transfer, upkeep
from sessions.errors import CheckpointError, TextOnly
from sessions.record import SessionMeta
from sessions.store import SessionStore
from tests.sessions.states import META, assert_same, make_state, save

V4 = Path(__file__).parents[1] / "fixtures" / "v4_tiny" / "tiny-v4-q.gguf"


@pytest.fixture
def other(tmp_path: Path) -> SessionStore:
    """The store of another machine."""
    return SessionStore(tmp_path / "other" / "kvcache")


def test_a_session_is_the_same_in_another_store(store, other, tmp_path) -> None:
    saved = save(store, n_tokens=40)
    upkeep.rename(store, saved.id, "Renamed")
    exported = transfer.export_session(store, saved.id[:6], tmp_path / "s", program="p 1")
    assert exported.path.stat().st_mode & 0o777 == 0o600
    record = transfer.import_session(other, exported.path)
    assert (record.id, record.title, record.label) == (saved.id, "Fix the build", "Renamed")
    assert (record.model, record.cwd) == (META.model, "")  # that folder does not exist here
    assert_same(other.load(saved.id)[0], make_state(n_tokens=40))
    assert other.restore(saved.id).text == store.restore(saved.id).text
    with pytest.raises(CheckpointError, match="is here already") as caught:
        transfer.import_session(other, exported.path)
    assert "--copy" in caught.value.hint
    copy = transfer.import_session(other, exported.path, as_copy=True, cwd=str(tmp_path))
    assert copy.id != saved.id and copy.title == record.title and copy.cwd == str(tmp_path)
    assert len(other.list()) == 2


def test_an_existing_folder_is_kept(store, other, tmp_path) -> None:
    saved = save(store, meta=SessionMeta(str(tmp_path), "m"))
    path = transfer.export_session(store, saved.id, tmp_path / "s").path
    assert transfer.import_session(other, path).cwd == str(tmp_path)


def test_the_default_name_is_in_the_current_folder(store, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved = save(store)
    assert transfer.export_session(store, saved.id).path == Path(f"{saved.id[:8]}.ds4session")
    assert (tmp_path / f"{saved.id[:8]}.ds4session").is_file()


def test_a_failed_export_leaves_the_old_file(store, tmp_path) -> None:
    saved, target = save(store), tmp_path / "s"
    target.write_bytes(b"old")

    def stop(done: int, total: int) -> None:
        raise CheckpointError("stopped")

    with pytest.raises(CheckpointError):
        transfer.export_session(store, saved.id, target, progress=stop)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir() if ".tmp." in path.name] == []


def test_a_stripped_session_has_nothing_to_move(store, tmp_path) -> None:
    saved = save(store)
    upkeep.strip(store, saved.id)
    with pytest.raises(TextOnly):
        transfer.export_session(store, saved.id, tmp_path / "s")


def test_a_damaged_file_leaves_no_session(store, other, tmp_path) -> None:
    path = transfer.export_session(store, save(store).id, tmp_path / "s").path
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(CheckpointError):
        transfer.import_session(other, path)
    assert other.list() == []
    with pytest.raises(CheckpointError, match="No such file"):
        transfer.import_session(other, tmp_path / "missing")


@pytest.mark.parametrize("n", [5, 301])
def test_a_state_of_deepseek_v4_is_packed_on_its_grids(n, store, tmp_path) -> None:
    with Engine.open(V4, "cpu", 512) as engine:
        session = engine.new_session()
        session.sync(np.random.default_rng(n).integers(0, 500, n).tolist())
        state = session.state()
    saved = store.save(state, b"text", title="t", created_at=1, meta=SessionMeta())
    exported = transfer.export_session(store, saved.id, tmp_path / "s")
    rows = sum(4 * a.size for a in state.arrays.values() if a.dtype == np.float16)
    frontier = sum(a.nbytes for a in state.arrays.values() if a.dtype == np.float32)
    # 64 of 256 values are float16; places without a token shrink to an eighth of their bytes
    assert exported.n_bytes < 0.4 * rows + 0.95 * frontier + 4 * 512 + 4096
    with exported.path.open("rb") as file:
        found, text, _ = export_file.read(file)
    assert text == b"text"
    assert_same(found, state)
