"""Checkpoints of the system prompt."""

import logging
import os
from pathlib import Path

import pytest

from sessions.store import SessionStore
from sessions.system_slots import MAX_SLOTS
from tests.sessions.states import FINGERPRINT, TEXT, assert_same, make_state


def slots(folder: Path) -> list[Path]:
    return sorted(folder.glob("sysprompt-*.kv"))


def test_saved_prompt_loads_as_it_was(store: SessionStore) -> None:
    state = make_state()
    saved = store.save_system(state, TEXT)
    assert slots(store.folder) == [saved.path]
    assert saved.path.stat().st_size == saved.n_bytes
    loaded = store.load_system(FINGERPRINT, TEXT, list(state.tokens))
    assert loaded is not None
    assert_same(loaded, state)
    header = saved.path.read_bytes()[:48]
    assert (header[5], header[6], header[7]) == (5, 0, 0x40)


def test_other_weights_text_or_tokens_have_no_slot(store: SessionStore) -> None:
    state = make_state()
    assert store.load_system(FINGERPRINT, TEXT, state.tokens) is None
    store.save_system(state, TEXT)
    assert store.load_system("00" * 32, TEXT, state.tokens) is None
    assert store.load_system(FINGERPRINT, TEXT + b".", state.tokens) is None
    assert store.load_system(FINGERPRINT, TEXT, state.tokens[:-1]) is None
    assert store.load_system(FINGERPRINT, TEXT, (*state.tokens[:-1], 99)) is None


def test_slots_of_two_models_live_side_by_side(store: SessionStore) -> None:
    states = [make_state(seed=n, fingerprint=f"{n}" * 64) for n in range(2)]
    for state in states:
        store.save_system(state, TEXT)
    for state in states:
        loaded = store.load_system(state.fingerprint, TEXT, state.tokens)
        assert loaded is not None
        assert_same(loaded, state)


def test_slot_of_one_prompt_under_the_name_of_another_is_not_used(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    state = make_state()
    mine = store.save_system(state, TEXT)
    other = store.save_system(state, b"other")
    os.replace(other.path, mine.path)
    assert store.load_system(FINGERPRINT, TEXT, state.tokens) is None
    assert caplog.text == ""  # it is another prompt's, not broken


def test_broken_slot_is_told_in_the_log_and_replaced(
    store: SessionStore, caplog: pytest.LogCaptureFixture
) -> None:
    state = make_state()
    saved = store.save_system(state, TEXT)
    data = bytearray(saved.path.read_bytes())
    for broken in (data[:-1], data[:-1] + b"?", b"", b"KVC"):
        saved.path.write_bytes(broken)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            assert store.load_system(FINGERPRINT, TEXT, state.tokens) is None
        assert "computed anew" in caplog.text
        store.save_system(state, TEXT)
        assert store.load_system(FINGERPRINT, TEXT, state.tokens) is not None


def test_missing_slot_is_no_warning(store: SessionStore, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert store.load_system(FINGERPRINT, TEXT, (1,)) is None
    assert caplog.text == ""


def test_slots_that_were_not_used_for_longest_make_room(store: SessionStore) -> None:
    state = make_state()
    for n in range(MAX_SLOTS):
        path = store.save_system(state, b"%d" % n).path
        os.utime(path, (n, n))
    assert store.load_system(FINGERPRINT, b"0", state.tokens) is not None  # used just now
    store.save_system(state, b"one more")
    assert len(slots(store.folder)) == MAX_SLOTS
    assert store.load_system(FINGERPRINT, b"0", state.tokens) is not None
    assert store.load_system(FINGERPRINT, b"1", state.tokens) is None
    assert store.load_system(FINGERPRINT, b"2", state.tokens) is not None
