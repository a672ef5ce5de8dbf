"""Reading and writing large states: never a second copy of one in memory."""

import dataclasses
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.state import SessionState
from sessions import journal
from sessions.dsv4_payload import FLASH, _Shape
from sessions.keeper import Keeper
from sessions.record import SessionMeta
from sessions.store import SessionStore
from tests.sessions.deltas import since
from tests.sessions.states import assert_same, make_state


def v4_state(n_tokens: int) -> SessionState:
    shape = _Shape(FLASH, 8192, n_tokens, 12, 512, 128, 1000)
    random = np.random.default_rng(3)
    arrays = {
        name: random.integers(-500, 500, dimensions).astype(dtype)
        for name, dimensions, dtype in shape.arrays()
    }
    tokens = tuple((np.arange(n_tokens) % 1000).tolist())
    logits = np.ones(1000, np.float32)
    return SessionState("deepseek_v4", "ab" * 32, 8192, tokens, logits, arrays, 2)


def llama_state(n_tokens: int) -> SessionState:
    shape = {"n_layers": 8, "n_heads": 8, "head_dim": 64}
    return make_state(n_tokens=n_tokens, ctx=8192, **shape)


def part_of(state: SessionState, n_tokens: int) -> SessionState:
    """The first tokens of a state of the llama family."""
    arrays = {name: rows[:n_tokens] for name, rows in state.arrays.items()}
    return dataclasses.replace(state, tokens=state.tokens[:n_tokens], arrays=arrays)


def n_bytes(state: SessionState) -> int:
    return sum(array.nbytes for array in state.arrays.values())


def peak_of(action: Callable[[], object]) -> tuple[int, object]:
    """Most bytes that were allocated at a time, and what came out."""
    tracemalloc.start()
    try:
        result = action()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.fixture
def store(tmp_path: Path) -> SessionStore:
    return SessionStore(tmp_path)


def keeper_of(store: SessionStore) -> Keeper:
    return Keeper(store, title="t", created_at=5, meta=SessionMeta())


def test_a_checkpoint_and_its_journal_are_read_into_one_copy(store) -> None:
    state = llama_state(2400)
    keeper, done = keeper_of(store), 1200
    keeper.fold(part_of(state, done), b"")
    for n_tokens in (1500, 1900, 2400):
        keeper.append(
            since(part_of(state, n_tokens), done),
            b"",
            0,
            kind="turn",
            tokens_sha256=journal.tokens_sha256(state.tokens[:n_tokens]),
        )
        done = n_tokens
    keeper.close()
    peak, restored = peak_of(lambda: store.restore(keeper.id))
    assert_same(restored.state, state)
    assert peak < 1.2 * n_bytes(state) + (4 << 20), peak / n_bytes(state)


def test_saving_makes_no_copy(store) -> None:
    state = llama_state(2400)
    peak, _ = peak_of(lambda: keeper_of(store).fold(state, b""))
    assert peak < 0.3 * n_bytes(state), peak / n_bytes(state)


def test_rows_of_v4_are_converted_piece_by_piece(store) -> None:
    """In the file they have twice the width."""
    state = v4_state(6000)
    keeper = keeper_of(store)
    peak, _ = peak_of(lambda: keeper.fold(state, b""))
    assert peak < 0.5 * n_bytes(state) + (16 << 20), peak / n_bytes(state)
    peak, restored = peak_of(lambda: store.restore(keeper.id))
    assert_same(restored.state, state)
    assert peak < n_bytes(state) + (24 << 20), peak / n_bytes(state)
