"""States of earlier moments, from checkpoint and journal."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from engine.errors import RewindError
from sessions import journal, past_state
from sessions.errors import CheckpointError
from sessions.store import SessionStore
from tests.fakes.tiny_gguf import write_tiny_gguf
from tests.sessions.deltas import append, fold, keeper_of, text_of, whole
from tests.sessions.states import assert_same

V4 = Path(__file__).parents[1] / "fixtures" / "v4_tiny" / "tiny-v4-q.gguf"


@pytest.fixture
def kept(store: SessionStore):
    """A checkpoint of 20 tokens, turns that end at 30, 45 and 60."""
    keeper = keeper_of(store)
    fold(keeper, whole(20))
    for n in (30, 45, 60):
        append(keeper, whole(n))
    yield keeper
    keeper.close()


@pytest.mark.parametrize(
    ("wanted", "found"), [(60, 60), (59, 45), (45, 45), (44, 30), (29, 20), (20, 20), (19, None)]
)
def test_the_latest_state_before_a_place_is_found_and_exact(store, kept, wanted, found) -> None:
    past = past_state.latest_before(store, kept.id, wanted)
    assert (past and past.tokens) == found
    if past is not None:
        state = past_state.load(past, whole(found).tokens)
        assert_same(state, whole(found))


def test_what_was_taken_back_is_no_part_of_the_conversation(store, kept) -> None:
    other = whole(70, seed=5)
    base = whole(33)
    mixed = dataclasses.replace(
        other,
        tokens=(*base.tokens, *other.tokens[33:]),
        arrays={k: np.concatenate([base.arrays[k], a[33:]]) for k, a in other.arrays.items()},
    )
    append(kept, mixed, 33)
    assert past_state.latest_before(store, kept.id, 69).tokens == 30
    assert past_state.latest_before(store, kept.id, 70).tokens == 70
    past = past_state.latest_before(store, kept.id, 32)
    assert_same(past_state.load(past, base.tokens[:30]), whole(30))


def test_a_state_of_another_conversation_is_refused(store, kept) -> None:
    past = past_state.latest_before(store, kept.id, 45)
    with pytest.raises(CheckpointError, match="another conversation"):
        past_state.load(past, whole(45, seed=3).tokens)
    fold(kept, whole(60))
    with pytest.raises(CheckpointError, match="meanwhile"):
        past_state.load(past, whole(45).tokens)
    assert past_state.latest_before(store, kept.id, 59) is None
    assert store.restore(kept.id).text == text_of(whole(60).tokens)


def test_a_damaged_record_is_never_loaded(store, kept) -> None:
    past = past_state.latest_before(store, kept.id, 45)
    path = kept.path.with_name(kept.path.name + ".journal")
    data = bytearray(path.read_bytes())
    data[past.journal.records[-1].body + 3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="changed or is damaged"):
        past_state.load(past, whole(45).tokens)


@pytest.mark.parametrize("family", ["llama", "deepseek_v4"])
def test_a_network_goes_back_to_the_end_of_a_turn_bit_by_bit(family, store, tmp_path) -> None:
    model = V4 if family == "deepseek_v4" else write_tiny_gguf(tmp_path / "m.gguf", quant="Q8_0")
    random = np.random.default_rng(1)
    with Engine.open(model, "cpu", 512) as engine:
        session, logits = engine.new_session(), {}
        session.sync(random.integers(0, 250, 60).tolist())
        keeper = keeper_of(store)
        keeper.fold(session.state(), engine.tokenizer.render(session.tokens))
        session.mark()
        for n in (70, 3, 40):  # turns; the window of 128 rows and both pools move on
            kept = len(session.tokens)
            session.extend(random.integers(0, 250, n).tolist())
            logits[len(session.tokens)] = session.logits.copy()
            delta = session.delta(kept)
            keeper.append(
                delta,
                engine.tokenizer.render(delta.tokens),
                keeper.text_bytes,
                kind="turn",
                tokens_sha256=journal.tokens_sha256(session.tokens),
            )
            session.mark()
        keeper.close()
        tokens = session.tokens
        if family == "deepseek_v4":  # or this shows nothing
            with pytest.raises(RewindError, match="pooled"):
                session.rewind(130)
        for wanted in (133, 130):
            past = past_state.latest_before(store, keeper.id, wanted)
            assert past is not None and past.tokens == wanted
            session.load(past_state.load(past, tokens[:wanted]), consume=True)
            assert session.tokens == tokens[:wanted]
            assert np.array_equal(session.logits, logits[wanted])
        session.extend(tokens[130:133])
        again = engine.new_session()
        again.load(past_state.load(past, tokens[:130]))
        again.extend(tokens[130:133])
        assert np.array_equal(session.logits, again.logits)
