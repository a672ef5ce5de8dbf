"""Saving, loading, listing, deleting: the everyday life of a folder."""

import json
import os
import stat
from pathlib import Path

import pytest

from sessions import kvc, side_file
from sessions.errors import CheckpointError
from sessions.record import SavedFile, SessionMeta
from sessions.store import SessionStore
from tests.sessions.states import (
    CREATED_AT,
    FINGERPRINT,
    META,
    TEXT,
    assert_same,
    make_state,
    save,
)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_saved_session_loads_as_it_was(store: SessionStore) -> None:
    saved = save(store, title=" Fix  the\nbuild ")
    assert saved.id == "07d7132e06162fed4b1dc67d6ccbe31f0a5ca634"
    assert saved.path == store.folder / f"{saved.id}.kv"
    assert saved.n_bytes == saved.path.stat().st_size
    state, record = store.load(saved.id)
    assert_same(state, make_state())
    assert (record.id, record.title, record.path) == (saved.id, "Fix the build", saved.path)
    assert (record.cwd, record.model) == (META.cwd, META.model)
    assert (record.fingerprint, record.family) == (FINGERPRINT, "llama")
    assert (record.tokens, record.ctx, record.file_bytes) == (3, 4096, saved.n_bytes)
    assert record.created_at == CREATED_AT
    assert store.list() == [record]


def test_file_is_a_session_of_the_shared_format(store: SessionStore) -> None:
    saved = SessionStore(store.folder, clock=lambda: CREATED_AT + 60.9).save(
        make_state(), TEXT, title="t", created_at=CREATED_AT, meta=META
    )
    with saved.path.open("rb") as file:
        envelope = kvc.read_envelope(file)
        assert kvc.read_text(file, envelope) == TEXT
        assert kvc.read_title(file, envelope) == b"t"
    payload_bytes = saved.n_bytes - 52 - len(TEXT) - 4 - 1
    assert envelope.header == kvc.Header(
        quant_bits=4,
        reason=kvc.Reason.AGENT_SESSION,
        flags=8,
        model_id=0x40,
        tokens=3,
        hits=0,
        ctx=4096,
        created_at=CREATED_AT,
        last_used=CREATED_AT + 60,
        payload_bytes=payload_bytes,
    )


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o777])
def test_files_are_for_this_user_only_whatever_the_umask(store: SessionStore, umask: int) -> None:
    before = os.umask(umask)
    try:
        saved = save(store)
        store.save_system(make_state(), TEXT)
    finally:
        os.umask(before)
    assert mode_of(store.folder) == mode_of(store.folder.parent) == 0o700
    modes = {path.name: mode_of(path) for path in store.folder.iterdir()}
    assert len(modes) == 5  # lock, session, prompt, and what is known beside both
    assert set(modes.values()) == {0o600}
    assert saved.path.name in modes


def test_existing_folder_keeps_its_mode(store: SessionStore) -> None:
    store.folder.mkdir(parents=True)
    store.folder.chmod(0o750)
    save(store)
    assert mode_of(store.folder) == 0o750


def test_second_save_replaces_the_first(store: SessionStore) -> None:
    first = save(store, seed=1)
    second = save(store, seed=2, n_tokens=9)
    assert first.path == second.path
    state, record = store.load(first.id)
    assert_same(state, make_state(seed=2, n_tokens=9))
    assert record.tokens == 9
    assert {path.name for path in store.folder.iterdir()} == {
        ".lock",
        f"{first.id}.kv",
        f"{first.id}.kv.meta",
    }


def test_load_takes_a_unique_prefix_in_either_case(store: SessionStore) -> None:
    saved = save(store)
    for prefix in (saved.id[:1], saved.id[:7], saved.id.upper(), f" {saved.id[:4].upper()} "):
        assert store.load(prefix)[1].id == saved.id


@pytest.mark.parametrize("prefix", ["", "xyz", "0" * 41, "../0", "07d7*"])
def test_load_of_no_hex_digits_says_what_an_id_is(store: SessionStore, prefix: str) -> None:
    save(store)
    with pytest.raises(CheckpointError, match="expected 1 to 40 hex digits") as caught:
        store.load(prefix)
    assert caught.value.hint


def test_load_of_an_unknown_prefix_says_so(store: SessionStore) -> None:
    with pytest.raises(CheckpointError, match="no saved session begins with abc"):
        store.load("abc")  # there is no folder yet
    save(store)
    with pytest.raises(CheckpointError, match="no saved session begins with ffff"):
        store.load("FFFF")


def several(store: SessionStore) -> dict[str, list[SavedFile]]:
    """Save until two ids begin alike; there are 16 first digits."""
    by_digit: dict[str, list[SavedFile]] = {}
    for n in range(17):
        saved = save(store, title=f"task {n}")
        by_digit.setdefault(saved.id[0], []).append(saved)
    return by_digit


def test_load_of_an_ambiguous_prefix_lists_the_candidates(store: SessionStore) -> None:
    digit, saved = max(several(store).items(), key=lambda item: len(item[1]))
    with pytest.raises(CheckpointError, match=f"{len(saved)} saved sessions begin") as caught:
        store.load(digit)
    for file in saved[:5]:
        assert file.id[:12] in str(caught.value)
    assert "task" in str(caught.value)
    assert caught.value.hint == "Type more digits of the id."


def test_prefix_of_one_sound_and_one_broken_file_means_the_sound_one(
    store: SessionStore,
) -> None:
    alike = max(several(store).values(), key=len)
    for broken in alike[1:]:
        broken.path.write_bytes(b"KVC")
    assert store.load(alike[0].id[0])[1].id == alike[0].id


def test_list_is_sorted_by_last_use(folder: Path) -> None:
    now = iter([30.0, 10.0, *[20.0] * 6])
    store = SessionStore(folder, clock=lambda: next(now))
    for n in range(8):
        saved = save(store, title=f"{n}")
        os.utime(saved.path, ns=(n, n))  # tells the saves of one second apart
    records = store.list()
    assert [record.title for record in records] == ["0", "7", "6", "5", "4", "3", "2", "1"]
    assert [record.last_used for record in records] == [30, *[20] * 6, 10]


def test_list_reads_no_states(store: SessionStore) -> None:
    saved = save(store, n_tokens=2000, n_layers=4, n_heads=2, head_dim=64)
    size = saved.path.stat().st_size
    with saved.path.open("r+b") as file:  # punch out everything but the ends
        file.seek(1000)
        file.write(bytes(size - 2000))
    assert [record.tokens for record in store.list()] == [2000]
    assert store.damaged == ()
    with pytest.raises(CheckpointError):
        store.load(saved.id)


def test_list_of_a_missing_folder_is_empty(store: SessionStore) -> None:
    assert store.list() == []
    assert store.latest("/") is None
    assert not store.folder.exists()


def test_list_passes_over_other_files(store: SessionStore) -> None:
    saved = save(store)
    store.save_system(make_state(), TEXT)
    for name in ("sysprompt.kv", "notes.txt", f"{'0' * 39}.kv", f"{'0' * 40}.kv.tmp.12"):
        (store.folder / name).write_bytes(b"something")
    assert [record.id for record in store.list()] == [saved.id]
    assert store.damaged == ()


def test_sessions_of_other_programs_are_passed_over_and_refused(store: SessionStore) -> None:
    saved = save(store)
    data = bytearray(saved.path.read_bytes())
    data[7] = 2  # the model id of another model of the C program
    saved.path.write_bytes(data)
    assert store.list() == []
    assert store.damaged == ()
    with pytest.raises(CheckpointError, match="model family 2") as caught:
        store.load(saved.id)
    assert caught.value.hint
    assert saved.path.read_bytes() == data


def test_latest_is_the_newest_of_its_folder(folder: Path) -> None:
    now = iter([1.0, 2.0, 3.0])
    store = SessionStore(folder, clock=lambda: next(now))
    save(store, title="a1", meta=SessionMeta("/a"))
    save(store, title="a2", meta=SessionMeta("/a"))
    save(store, title="b", meta=SessionMeta("/b"))
    for cwd, title in (("/a", "a2"), (Path("/b"), "b")):
        record = store.latest(cwd)
        assert record is not None
        assert record.title == title
    assert store.latest("/c") is None


def test_delete_removes_a_session_and_its_side_file(store: SessionStore) -> None:
    saved = save(store)
    other = save(store, title="other")
    assert store.delete(saved.id[:6].upper()) == saved.id
    assert [record.id for record in store.list()] == [other.id]
    assert not side_file.path_for(saved.path).exists()
    with pytest.raises(CheckpointError, match="no saved session"):
        store.delete(saved.id)


def test_find_names_one_sound_session_or_says_why_not(store: SessionStore) -> None:
    saved = save(store)
    assert store.find(saved.id[:5]).id == store.whole_id(saved.id[:5].upper()) == saved.id
    saved.path.write_bytes(b"KVC")
    with pytest.raises(CheckpointError, match=f"{saved.id[:8]} cannot be read"):
        store.find(saved.id)
    assert store.whole_id(saved.id[:5]) == saved.id
    with pytest.raises(CheckpointError, match="not a session id"):
        store.find("xyz")


def test_delete_removes_a_damaged_session_too(store: SessionStore) -> None:
    saved = save(store)
    saved.path.write_bytes(b"KVC")
    assert store.delete(saved.id) == saved.id
    assert not saved.path.exists()


@pytest.mark.parametrize(
    "content",
    [
        None,
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"[" * 100_000,
        b'{"version": 1, "cwd": 5, "model": "m", "describes": []}',
        b'{"version": 1, "cwd": "/x", "model": "m", "describes": 5}',
        b'{"version": 1, "cwd": "/x", "model": "m", "describes": ["12-ab"]}',
    ],
)
def test_without_a_sound_side_file_the_cwd_is_unknown(
    store: SessionStore, content: bytes | None
) -> None:
    saved = save(store)
    path = side_file.path_for(saved.path)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    (record,) = store.list()
    assert (record.id, record.cwd, record.model) == (saved.id, "", "")
    assert_same(store.load(saved.id)[0], make_state())


def test_side_file_of_a_newer_version_is_not_believed(store: SessionStore) -> None:
    saved = save(store)
    path = side_file.path_for(saved.path)
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["fingerprint"] == FINGERPRINT
    path.write_text(json.dumps({**content, "version": 2}), encoding="utf-8")
    assert store.list()[0].cwd == ""


def test_side_file_of_another_state_is_not_believed(store: SessionStore) -> None:
    saved = save(store)
    older = side_file.path_for(saved.path).read_bytes()
    save(store, seed=1)
    save(store, seed=2)
    side_file.path_for(saved.path).write_bytes(older)
    assert store.list()[0].cwd == ""


def test_side_file_describes_the_replaced_checkpoint_too(store: SessionStore) -> None:
    # A crash between the two renames leaves the new side file beside the old checkpoint.
    saved = save(store, seed=1)
    older = saved.path.read_bytes()
    save(store, seed=2)
    saved.path.write_bytes(older)
    assert store.list()[0].cwd == META.cwd


def test_cwd_of_any_bytes_survives(store: SessionStore) -> None:
    cwd = os.fsdecode(b"/data/caf\xe9 \xf0\x9f\x8e\xb8")
    save(store, meta=SessionMeta(cwd, "mödel"))
    record = store.latest(cwd)
    assert record is not None
    assert (record.cwd, record.model) == (cwd, "mödel")


def test_title_of_any_length_and_language_survives(store: SessionStore) -> None:
    title = "Größe prüfen 日本 " * 1000
    saved = save(store, title=title)
    assert store.load(saved.id)[1].title == title.strip()


def test_absurd_times_are_shown_as_the_last_day(store: SessionStore) -> None:
    saved = save(store)
    data = bytearray(saved.path.read_bytes())
    data[32:40] = b"\xff" * 8
    saved.path.write_bytes(data)
    assert store.list()[0].last_used == 253_402_300_799


@pytest.mark.parametrize("created_at", [-1, 2**63])
def test_creation_time_out_of_range_is_a_programming_error(
    store: SessionStore, created_at: int
) -> None:
    with pytest.raises((ValueError, OverflowError)):
        save(store, created_at=created_at)


def test_state_that_cannot_be_saved_leaves_nothing_behind(store: SessionStore) -> None:
    with pytest.raises(CheckpointError, match="can't be saved"):
        save(store, n_tokens=9, ctx=8)
    assert list(store.folder.iterdir()) == []
