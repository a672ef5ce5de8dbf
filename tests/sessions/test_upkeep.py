"""Names, pins, stripping, verification and search."""

from pathlib import Path

import pytest

from sessions import checkpoint, marks, upkeep
from sessions.errors import CheckpointError, TextOnly
from sessions.folder import session_path
from sessions.store import SessionStore
from tests.sessions.states import META, TEXT, assert_same, make_state, save


def test_a_name_replaces_the_title_on_lists_and_survives_a_save(store: SessionStore) -> None:
    saved = save(store)
    record = upkeep.rename(store, saved.id[:6], "  The   build ")
    assert (record.label, record.title, record.id) == ("The build", "Fix the build", saved.id)
    assert save(store, seed=2).id == saved.id
    assert store.find(saved.id).label == "The build"
    assert upkeep.rename(store, saved.id, " ").label == "Fix the build"
    assert not marks.path_for(saved.path).exists()


def test_a_name_that_is_too_long_is_refused(store: SessionStore) -> None:
    saved = save(store)
    with pytest.raises(CheckpointError, match="expected 1024 at most"):
        upkeep.rename(store, saved.id, "x" * 1025)


def test_a_pin_and_a_name_do_not_disturb_each_other(store: SessionStore) -> None:
    saved = save(store)
    upkeep.set_pinned(store, saved.id, True)
    record = upkeep.rename(store, saved.id, "n")
    assert (record.is_pinned, record.name) == (True, "n")
    record = upkeep.set_pinned(store, saved.id, False)
    assert (record.is_pinned, record.name) == (False, "n")
    assert marks.path_for(saved.path).stat().st_mode & 0o777 == 0o600
    store.delete(saved.id)
    assert [path.name for path in store.folder.iterdir()] == [".lock"]


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b'{"version": 1, "name": 3}', b"\xff"])
def test_broken_marks_count_as_none(store: SessionStore, content: bytes) -> None:
    saved = save(store)
    marks.path_for(saved.path).write_bytes(content)
    record = store.find(saved.id)
    assert (record.name, record.is_pinned) == ("", False)


def test_a_stripped_session_keeps_text_title_and_facts(store: SessionStore) -> None:
    saved = save(store)
    before = store.find(saved.id)
    record, freed = upkeep.strip(store, saved.id)
    assert record.is_stripped and record.file_bytes == saved.n_bytes - freed
    assert (record.title, record.cwd, record.tokens) == (before.title, META.cwd, before.tokens)
    assert record.fingerprint == before.fingerprint and record.last_used == before.last_used
    with checkpoint.opened(saved.path) as opened:
        assert opened.text() == TEXT and opened.token_ids() == ()
    with pytest.raises(TextOnly, match="only its text was kept") as caught:
        store.load(saved.id)
    assert "3 tokens are read again" in caught.value.hint
    with pytest.raises(CheckpointError, match="has no state to drop"):
        upkeep.strip(store, saved.id)
    save(store, seed=3)  # a later save brings the state back
    assert_same(store.load(saved.id)[0], make_state(seed=3))


def test_the_stripped_file_of_the_c_program_is_listed(store: SessionStore) -> None:
    # session-file vector of the C program: 179 bytes, prompt "Fix  the\nbuild"
    text = (
        "<｜begin▁of▁sentence｜>S<｜User｜>Fix  the\nbuild<｜Assistant｜></think>ok"
        "<｜end▁of▁sentence｜>"
    ).encode()
    header = bytes.fromhex(
        "4b56430102060800090000000000000000100000020000 00c0f30e6a00000000fcf30e6a00000000"
        "0000000000000000".replace(" ", "")
    )
    data = header + b"\x6e\0\0\0" + text + b"\x0d\0\0\0Fix the build"
    assert len(data) == 179
    store.folder.mkdir(parents=True)
    session_path(store.folder, "07d7132e06162fed4b1dc67d6ccbe31f0a5ca634").write_bytes(data)
    (record,) = store.list()
    assert (record.title, record.tokens, record.is_stripped) == ("Fix the build", 9, True)


def test_an_open_session_is_not_stripped(store: SessionStore) -> None:
    saved = save(store)
    with store.open_lock(saved.id):
        assert store.find(saved.id).open_in.startswith("process ")
        with pytest.raises(CheckpointError, match="is open in process"):
            upkeep.strip(store, saved.id)
    assert store.find(saved.id).open_in == ""
    assert not store.find(saved.id).is_stripped


def test_verification_reads_every_byte_and_changes_nothing(store: SessionStore) -> None:
    good, bad = save(store), save(store, title="bad")
    data = bytearray(bad.path.read_bytes())
    data[-60] ^= 1
    bad.path.write_bytes(data)
    seen: list[Path] = []
    results = {v.id: v for v in upkeep.verify(store, progress=seen.append)}
    assert set(seen) == {good.path, bad.path}
    assert (results[good.id].problem, results[good.id].has_checksum) == ("", True)
    assert "checksum" in results[bad.id].problem
    assert bad.path.read_bytes() == data  # not quarantined: that is for loads
    (one,) = upkeep.verify(store, good.id[:8])
    assert one.problem == ""
    with pytest.raises(CheckpointError, match="no saved session"):
        list(upkeep.verify(store, "0000000"))


def test_a_search_looks_at_titles_folders_and_texts(store: SessionStore) -> None:
    by_title = save(store, title="Repair the printer")
    other = save(store, title="Other", created_at=7)
    named = upkeep.rename(store, other.id, "Plotter")
    assert [h.record.id for h in upkeep.search(store, "printer REPAIR")] == [by_title.id]
    assert [h.record.id for h in upkeep.search(store, "plotter")] == [named.id]
    hits = list(upkeep.search(store, "grüße"))
    assert len(hits) == 2 and all("Grüße" in hit.snippet for hit in hits)
    assert list(upkeep.search(store, "nowhere")) == []
    assert list(upkeep.search(store, "  ")) == []
