"""What a state has beyond an earlier one: both together are the later one, bit by bit."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from engine.sampling_options import SamplingOptions
from engine.state import SessionState, StateDelta
from tests.fakes.tiny_gguf import write_tiny_gguf

V4 = Path(__file__).parents[1] / "fixtures" / "v4_tiny" / "tiny-v4-q.gguf"
RNG = np.random.default_rng(11)


@pytest.fixture(scope="module", params=["llama-cpu", "llama-mlx-cpu", "v4-cpu"])
def engine(request, tmp_path_factory):
    family, _, device = request.param.partition("-")
    if device == "mlx-cpu":
        pytest.importorskip("mlx", reason="needs mlx (pip install ds4-agent[cpu])")
    path = V4
    if family == "llama":
        path = write_tiny_gguf(tmp_path_factory.mktemp("m") / "tiny.gguf", ctx_train=1024)
    with Engine.open(path, device, 1024) as engine:
        yield engine


def ids(engine: Engine, n: int) -> list[int]:
    return RNG.integers(0, engine.tokenizer.n_vocab, n).tolist()


def applied(state: SessionState, delta: StateDelta) -> SessionState:
    """The obvious way: cut off, put together."""
    arrays = {
        name: np.concatenate([state.arrays[name][: delta.first_rows[name]], rows])
        for name, rows in delta.arrays.items()
    }
    tokens = state.tokens[: delta.kept] + delta.tokens
    return dataclasses.replace(state, tokens=tokens, logits=delta.logits, arrays=arrays)


def assert_same(left: SessionState, right: SessionState) -> None:
    assert left.tokens == right.tokens
    assert np.array_equal(left.logits, right.logits)
    assert left.arrays.keys() == right.arrays.keys()
    for name, array in left.arrays.items():
        assert array.dtype == right.arrays[name].dtype
        assert np.array_equal(array, right.arrays[name]), name


@pytest.mark.parametrize(("n_before", "n_new"), [(1, 1), (3, 140), (150, 2), (256, 0), (127, 5)])
def test_a_delta_makes_the_later_state_of_the_earlier_one(engine, n_before, n_new) -> None:
    session = engine.new_session()
    session.sync(ids(engine, n_before))
    before = session.state()
    session.mark()
    session.extend(ids(engine, n_new))
    assert session.n_kept == n_before
    delta = session.delta(n_before)
    assert (delta.kept, delta.n_tokens) == (n_before, n_before + n_new)
    assert_same(applied(before, delta), session.state())


def test_going_back_lowers_what_is_kept(engine) -> None:
    session = engine.new_session()
    session.sync(ids(engine, 140))
    before = session.state()
    session.mark()
    session.extend(ids(engine, 3))
    session.rewind(141)
    assert session.n_kept == 140
    session.rewind(138)  # below what was copied
    assert session.n_kept == 138
    _ = session.logits  # computes the last token again
    assert session.n_kept == 137
    session.extend(ids(engine, 9))
    assert session.n_kept == 137
    assert_same(applied(before, session.delta(session.n_kept)), session.state())


def test_the_logits_that_a_delta_needs_after_going_back_are_no_kept_token(engine) -> None:
    session = engine.new_session()
    session.sync(ids(engine, 140))
    before = session.state()
    session.mark()
    session.extend(ids(engine, 3))
    session.rewind(140)
    delta = session.delta()
    assert delta.kept == session.n_kept == 139
    assert_same(applied(before, delta), session.state())


def test_a_conversation_read_again_from_its_beginning_keeps_nothing(engine) -> None:
    session = engine.new_session()
    session.sync(ids(engine, 200))
    session.mark()
    before = session.state()
    session.sync([5, *ids(engine, 180)])
    assert session.n_kept == 0
    assert_same(applied(before, session.delta(0)), session.state())


def test_a_sampled_token_is_in_the_delta(engine) -> None:
    session = engine.new_session()
    session.sync(ids(engine, 10))
    session.mark()
    tokens = session.generate(SamplingOptions(temperature=0.0), 1)
    token = next(tokens)
    assert session.delta(10).tokens == (token.id,)


def test_more_than_there_is_can_not_be_kept(engine) -> None:
    session = engine.new_session()
    session.sync(ids(engine, 4))
    with pytest.raises(ValueError, match="5 tokens are to be kept, the state has 4"):
        session.delta(5)


def test_a_consumed_state_is_loaded_and_gone(engine) -> None:
    session = engine.new_session()
    session.sync(ids(engine, 20))
    state = session.state()
    assert_same(engine.restore(state).state(), state)
    arrays = dict(state.arrays)
    again = engine.restore(state, consume=True)
    assert not state.arrays
    assert_same(again.state(), dataclasses.replace(state, arrays=arrays))
    assert again.n_kept == 0  # whoever knows where it came from marks it


def test_an_earlier_state_that_was_kept_counts_as_kept(engine) -> None:
    session = engine.new_session()
    session.sync(ids(engine, 60))
    earlier = session.state()
    session.extend(ids(engine, 80))
    session.mark()
    whole = session.state()
    session.load(earlier, consume=True, n_kept=60)
    session.extend(ids(engine, 5))
    assert session.n_kept == 60
    assert_same(applied(whole, session.delta(60)), session.state())
