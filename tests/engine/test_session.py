import importlib.util
import threading
from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from engine.errors import ContextFull, RewindError
from engine.sampling_options import SamplingOptions
from engine.session import Session
from tests.fakes.scripted_model import scripted_engine
from tests.fakes.tiny_gguf import write_tiny_gguf

needs_mlx = pytest.mark.skipif(
    importlib.util.find_spec("mlx") is None, reason="needs mlx (pip install ds4-agent[cpu])"
)
GREEDY = SamplingOptions(temperature=0.0)
TEXT = list(b"The state is the truth, and the rest is a view of it.")
# Rounding keys and values to float16 can turn a last-bit difference into 2^-11; see test_llama.
ROUNDING = 5e-3


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Engine:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return Engine.open(write_tiny_gguf(path, "qwen2", ctx_train=128), "cpu")


@pytest.fixture
def session(engine: Engine) -> Session:
    return engine.new_session()


def small_chunks(engine: Engine, chunk_tokens: int) -> Session:
    return Session(engine._model, engine.tokenizer, {258}, 128, "f", chunk_tokens)


def assert_consistent(session: Session, engine: Engine, tokens: list[int]) -> None:
    """The promise of a session: tokens, cache and logits belong together."""
    assert list(session.tokens) == tokens
    assert session._cache.n_tokens == len(tokens)
    assert all(len(rows) == len(tokens) for rows in session._cache.arrays().values())
    if tokens:
        np.testing.assert_allclose(session.logits, engine.logits_of(tokens)[-1], atol=ROUNDING)
    else:
        assert session.logits.shape == (0,)


def test_new_session_is_empty(session: Session, engine: Engine) -> None:
    assert_consistent(session, engine, [])
    assert session.ctx == 128


def test_sync_reuses_the_common_prefix(session: Session, engine: Engine) -> None:
    report = session.sync(TEXT)
    assert (report.reused, report.prefilled, report.cancelled) == (0, len(TEXT), False)
    other = [*TEXT[:20], *b"something else"]
    report = session.sync(other)
    assert (report.reused, report.prefilled) == (20, 14)
    assert report.seconds > 0
    assert_consistent(session, engine, other)


def test_sync_to_the_same_tokens_computes_nothing(session: Session, engine: Engine) -> None:
    session.sync(TEXT)
    before = session.logits
    report = session.sync(TEXT)
    assert (report.reused, report.prefilled) == (len(TEXT), 0)
    assert session.logits is before


@pytest.mark.parametrize("n", [0, 1, 30])
def test_sync_to_a_prefix_has_the_logits_of_that_prefix(
    session: Session, engine: Engine, n: int
) -> None:
    session.sync(TEXT)
    assert session.sync(TEXT[:n]).prefilled == 0
    assert_consistent(session, engine, TEXT[:n])


def test_extend_appends(session: Session, engine: Engine) -> None:
    session.extend(TEXT[:10])
    assert session.extend(TEXT[10:]).reused == 10
    assert_consistent(session, engine, TEXT)


@pytest.mark.parametrize("chunk_tokens", [1, 7, 53, 100])
def test_sync_in_chunks_reports_progress_and_gives_the_same_logits(
    engine: Engine, chunk_tokens: int
) -> None:
    session = small_chunks(engine, chunk_tokens)
    session.sync(TEXT[:3])
    seen: list[tuple[int, int]] = []
    session.sync(TEXT, progress=lambda done, total: seen.append((done, total)))
    to_do = len(TEXT) - 3
    assert seen[-1] == (to_do, to_do) and len(seen) == -(-to_do // chunk_tokens)
    assert_consistent(session, engine, TEXT)


def test_cancel_between_chunks_keeps_what_was_done(engine: Engine) -> None:
    session, cancel = small_chunks(engine, 10), threading.Event()

    def progress(done: int, total: int) -> None:
        if done == 20:
            cancel.set()

    report = session.sync(TEXT, progress=progress, cancel=cancel)
    assert (report.prefilled, report.cancelled) == (20, True)
    assert_consistent(session, engine, TEXT[:20])
    cancel.clear()
    assert session.sync(TEXT, cancel=cancel).reused == 20
    assert_consistent(session, engine, TEXT)


def test_cancel_before_the_first_chunk_changes_nothing(session: Session, engine: Engine) -> None:
    session.sync(TEXT)
    cancel = threading.Event()
    cancel.set()
    report = session.sync([*TEXT[:5], 1, 2], cancel=cancel)
    assert (report.reused, report.prefilled, report.cancelled) == (5, 0, True)
    assert_consistent(session, engine, TEXT)


def test_too_many_tokens_change_nothing(session: Session, engine: Engine) -> None:
    session.sync(TEXT)
    with pytest.raises(ContextFull, match="129 tokens.*128") as caught:
        session.sync([1] * 129)
    assert caught.value.hint
    assert_consistent(session, engine, TEXT)
    session.sync([1] * 128)
    assert len(session.tokens) == 128


@pytest.mark.parametrize("n", [0, 1, 17, len(TEXT)])
def test_rewind_then_another_text(session: Session, engine: Engine, n: int) -> None:
    session.sync(TEXT)
    session.rewind(n)
    assert_consistent(session, engine, TEXT[:n])
    session.extend([5, 6, 7])
    assert_consistent(session, engine, [*TEXT[:n], 5, 6, 7])


@pytest.mark.parametrize("n", [-1, len(TEXT) + 1])
def test_rewind_to_a_position_that_does_not_exist_raises(
    session: Session, engine: Engine, n: int
) -> None:
    session.sync(TEXT)
    with pytest.raises(RewindError):
        session.rewind(n)
    assert_consistent(session, engine, TEXT)


def test_common_prefix_counts_equal_tokens(session: Session) -> None:
    session.sync([1, 2, 3])
    assert session.common_prefix([1, 2, 4, 3]) == 2
    assert session.common_prefix([1, 2]) == 2
    assert session.common_prefix([1, 2, 3, 4]) == 3
    assert session.common_prefix([]) == 0


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("step", ["layer", "head"])
def test_failure_inside_a_forward_pass_is_taken_back(
    session: Session,
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    error: type[BaseException],
    step: str,
) -> None:
    session.sync(TEXT[:30])

    def fail(*_: object) -> None:
        raise error

    name = "_feed_forward" if step == "layer" else "head"  # a layer's KV rows are written before
    with monkeypatch.context() as patch:
        patch.setattr(engine._model, name, fail)
        with pytest.raises(error):
            session.sync(TEXT)
    assert_consistent(session, engine, TEXT[:30])
    session.sync(TEXT)
    assert_consistent(session, engine, TEXT)


def test_failure_while_a_sampled_token_is_consumed_does_not_lose_it(
    session: Session, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.sync(TEXT[:9])
    token = next(session.generate(GREEDY, 5))

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(engine._model, "head", fail)
        with pytest.raises(KeyboardInterrupt):
            _ = session.tokens
    assert_consistent(session, engine, [*TEXT[:9], token.id])


@pytest.mark.parametrize("token", [-1, 288])
def test_token_that_is_not_in_the_vocabulary_raises(
    session: Session, engine: Engine, token: int
) -> None:
    session.sync(TEXT)
    with pytest.raises(ValueError, match="outside of 0 to 287"):
        session.extend([token])
    assert_consistent(session, engine, TEXT)


# --- generation ---------------------------------------------------------------------------------


def test_generated_tokens_are_those_of_the_logits(session: Session, engine: Engine) -> None:
    session.sync(TEXT[:10])
    tokens = [token.id for token in session.generate(GREEDY, 12)]
    logits = engine.logits_of([*TEXT[:10], *tokens])
    assert tokens == [int(row.argmax()) for row in logits[9:-1]]
    assert_consistent(session, engine, [*TEXT[:10], *tokens])


def test_logprob_is_that_of_the_unmodified_distribution(session: Session) -> None:
    session.sync(TEXT[:10])
    logits = session.logits.astype(np.float64)
    token = next(session.generate(SamplingOptions(temperature=0.0), 1))
    expected = logits[token.id] - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
    assert token.logprob == pytest.approx(expected, abs=1e-4)


def test_generation_ends_at_max_tokens(session: Session) -> None:
    session.sync(TEXT[:10])
    generation = session.generate(GREEDY, 3)
    assert len(list(generation)) == 3
    assert generation.finish_reason == "length"
    assert len(session.tokens) == 13
    assert list(generation) == []


def test_generation_ends_when_the_context_is_full(session: Session, engine: Engine) -> None:
    tokens = [1] * 125
    session.sync(tokens)
    generation = session.generate(GREEDY, 50)
    tokens += [token.id for token in generation]
    assert generation.finish_reason == "context"
    assert len(tokens) == 128
    assert_consistent(session, engine, tokens)


def test_generation_ends_with_a_stop_token_that_is_consumed() -> None:
    engine = scripted_engine(["hi"])
    session = engine.new_session()
    session.sync([257, *engine.tokenizer.encode("assistant\n")])
    generation = session.generate(GREEDY, 50)
    tokens = list(generation)
    assert b"".join(token.data for token in tokens) == b"hi"
    assert [token.is_stop for token in tokens] == [False, False, True]
    assert tokens[-1].data == b""
    assert generation.finish_reason == "stop"
    assert session.tokens[-3:] == tuple(token.id for token in tokens)


def test_cancelled_generation_keeps_every_yielded_token(session: Session) -> None:
    session.sync(TEXT[:10])
    cancel = threading.Event()
    generation = session.generate(GREEDY, 50, cancel)
    yielded = []
    for token in generation:
        yielded.append(token.id)
        if len(yielded) == 4:
            cancel.set()
    assert generation.finish_reason == "cancelled"
    assert list(session.tokens[10:]) == yielded and len(yielded) == 4


def test_closed_generation_consumes_its_last_token(session: Session, engine: Engine) -> None:
    session.sync(TEXT[:10])
    generation = session.generate(GREEDY, 50)
    yielded = [next(generation).id, next(generation).id]
    generation.close()
    assert generation.finish_reason == "closed"
    assert session._cache.n_tokens == 12
    assert_consistent(session, engine, [*TEXT[:10], *yielded])
    assert list(generation) == []


def test_abandoned_generation_loses_no_token(session: Session, engine: Engine) -> None:
    session.sync(TEXT[:10])
    token = next(session.generate(GREEDY, 50))
    assert_consistent(session, engine, [*TEXT[:10], token.id])
    state = session.state()
    assert len(state.tokens) == 11 and len(state.arrays["layers.0.k"]) == 11


def test_generation_of_zero_tokens_ends_at_once(session: Session) -> None:
    session.sync(TEXT[:10])
    generation = session.generate(GREEDY, 0)
    assert list(generation) == [] and generation.finish_reason == "length"


def test_generation_from_nothing_raises(session: Session) -> None:
    with pytest.raises(ValueError, match="at least one token"):
        session.generate(GREEDY, 1)


def test_same_seed_gives_the_same_tokens(engine: Engine) -> None:
    def sample(seed: int) -> list[int]:
        session = engine.new_session()
        session.sync(TEXT[:10])
        options = SamplingOptions(temperature=1.5, min_p=0.0, seed=seed)
        return [token.id for token in session.generate(options, 20)]

    assert sample(1) == sample(1)
    assert sample(1) != sample(2)


@pytest.mark.parametrize("device", ["cpu", pytest.param("mlx-cpu", marks=needs_mlx)])
def test_session_may_move_to_another_thread(tmp_path: Path, device: str) -> None:
    engine = Engine.open(write_tiny_gguf(tmp_path / "tiny.gguf"), device)
    session, found = engine.new_session(), []
    session.sync(TEXT[:20])

    def work() -> None:
        session.sync(TEXT)
        found.extend(token.id for token in session.generate(GREEDY, 4))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=30)
    assert len(found) == 4
    assert list(session.state().tokens) == [*TEXT, *found]


def test_first_token_when_forbidden_is_another_one(session: Session, engine: Engine) -> None:
    session.sync(TEXT)
    best = int(np.argmax(session.logits[: engine.tokenizer.n_vocab]))
    first, second = session.generate(GREEDY, max_tokens=2, not_first=[best])
    assert first.id != best
    session.rewind(len(TEXT))
    assert next(session.generate(GREEDY, max_tokens=1)).id == best
