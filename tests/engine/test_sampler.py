"""Sampling: what each filter keeps, determinism, and what is refused."""

import math
import time

import numpy as np
import pytest

from engine.errors import EngineError
from engine.sampler import Sampler, SamplingOptions

PROBABILITIES = np.array([0.05, 0.4, 0.15, 0.3, 0.1])
LOGITS = np.log(PROBABILITIES).astype(np.float32)
PLAIN = {"temperature": 1.0, "min_p": 0.0}


def drawn(logits: np.ndarray, n: int = 2000, **options: object) -> np.ndarray:
    """How often each token is drawn, [V] as a share of n."""
    sampler = Sampler(SamplingOptions(**({"seed": 5} | PLAIN | options)))
    ids = [sampler.sample(logits)[0] for _ in range(n)]
    return np.bincount(ids, minlength=logits.size) / n


def kept(**options: object) -> set[int]:
    return set(np.flatnonzero(drawn(LOGITS, **options)))


def test_greedy_takes_the_lowest_id_of_equal_ones() -> None:
    sampler = Sampler(SamplingOptions(temperature=0))
    assert sampler.sample(np.array([1, 3, 3, 0], np.float32))[0] == 1


def test_frequencies_follow_the_distribution() -> None:
    # 4 standard deviations of a share of 2000 draws are below 0.045.
    assert np.abs(drawn(LOGITS) - PROBABILITIES).max() < 0.045


def test_temperature_sharpens_and_flattens() -> None:
    squared = PROBABILITIES**2 / (PROBABILITIES**2).sum()
    assert np.abs(drawn(LOGITS, temperature=0.5) - squared).max() < 0.045
    assert drawn(LOGITS, temperature=50.0).min() > 0.15


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"top_k": 1}, {1}),
        ({"top_k": 3}, {1, 2, 3}),
        ({"top_k": 99}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.39}, {1}),
        ({"top_p": 0.69}, {1, 3}),
        ({"top_p": 0.84}, {1, 2, 3}),
        ({"top_p": 0.9999}, {0, 1, 2, 3, 4}),
        ({"min_p": 0.3}, {1, 2, 3}),  # 0.3 of 0.4 is 0.12
        ({"min_p": 1.0}, {1}),
        ({"min_p": 0.2, "top_p": 0.69}, {1, 3}),
        ({"top_k": 2, "top_p": 0.6}, {1, 3}),  # of the two left, the first has 0.57
        ({"top_k": 2, "top_p": 0.5}, {1}),
        ({"min_p": 0.3, "temperature": 50.0}, {1, 2, 3}),  # temperature comes last
    ],
)
def test_filters_keep_what_they_should(options: dict[str, object], expected: set[int]) -> None:
    assert kept(**options) == expected


@pytest.mark.parametrize("scale", [0.0, 0.01, 1.0, 5.0])
@pytest.mark.parametrize("top_p", [0.3, 0.95])
def test_top_p_of_a_large_vocabulary_equals_sorting(scale: float, top_p: float) -> None:
    logits = (np.random.default_rng(3).standard_normal(5000) * scale).astype(np.float32)
    order = np.argsort(-logits, kind="stable")
    weights = np.exp(logits - logits.max())
    cumulative = np.cumsum(weights[order], dtype=np.float64)
    n_kept = np.searchsorted(cumulative, top_p * weights.sum(dtype=np.float64)) + 1
    sampler = Sampler(SamplingOptions(top_p=top_p, seed=1, **PLAIN))
    ids, values = sampler._survivors(logits)
    assert ids.tolist() == sorted(order[:n_kept].tolist())
    assert np.array_equal(values, logits[ids])


def test_top_k_prefers_low_ids_among_equal_ones() -> None:
    assert set(np.flatnonzero(drawn(np.zeros(10, np.float32), top_k=3))) == {0, 1, 2}


def test_repeat_penalty_counts_only_the_window() -> None:
    logits = np.array([2.0, 1.9, -1.0, -1.1], np.float32)

    def best(recent: list[int], window: int) -> int:
        options = SamplingOptions(temperature=0, repeat_penalty=1.5, repeat_window=window)
        return Sampler(options).sample(logits, recent)[0]

    assert best([0, 2, 2], 64) == 1
    assert best([0, 2, 2], 2) == 0
    assert best([0], 0) == 0
    assert logits[0] == 2.0  # the caller's logits stay


def test_repeat_penalty_lowers_negative_logits_too() -> None:
    options = SamplingOptions(temperature=0, repeat_penalty=2.0)
    assert Sampler(options).sample(np.array([-1.0, -1.5], np.float32), [0])[0] == 1


def test_same_seed_gives_the_same_tokens() -> None:
    logits = np.random.default_rng(0).standard_normal(1000).astype(np.float32)

    def run(seed: int | None) -> list[int]:
        sampler = Sampler(SamplingOptions(temperature=1, seed=seed))
        return [sampler.sample(logits)[0] for _ in range(30)]

    assert run(1) == run(1)
    assert run(1) != run(2)
    assert run(None) != run(None)


def test_logprob_is_that_of_the_unmodified_distribution() -> None:
    sampler = Sampler(SamplingOptions(temperature=0.1, top_k=2, repeat_penalty=1.3))
    token_id, logprob = sampler.sample(LOGITS, [1])
    assert math.isclose(logprob, math.log(PROBABILITIES[token_id]), abs_tol=1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_refused(bad: float, temperature: float) -> None:
    logits = LOGITS.copy()
    logits[3] = bad
    with pytest.raises(EngineError, match="1 of 5 logits"):
        Sampler(SamplingOptions(temperature=temperature)).sample(logits)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": -1.0},
        {"temperature": math.nan},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.1},
        {"min_p": -0.1},
        {"repeat_penalty": 0.0},
        {"repeat_window": -1},
        {"seed": -1},
    ],
)
def test_options_out_of_range_are_refused(options: dict[str, float]) -> None:
    (name,) = options
    with pytest.raises(EngineError, match=name):
        SamplingOptions(**options)


def test_extreme_logits_do_not_overflow() -> None:
    logits = np.array([1e38, -1e38, 0], np.float32)
    assert Sampler(SamplingOptions(temperature=0.01, seed=1)).sample(logits)[0] == 0


def test_sampling_a_large_vocabulary_is_fast() -> None:
    logits = (np.random.default_rng(0).standard_normal(151_936) * 4).astype(np.float32)
    for options in ({}, {"top_p": 0.95, "min_p": 0.0}, {"top_k": 40}):
        sampler = Sampler(SamplingOptions(seed=1, **options))
        fastest = 1.0
        for _ in range(5):
            started = time.perf_counter()
            sampler.sample(logits, list(range(200)))
            fastest = min(fastest, time.perf_counter() - started)
        assert fastest < 0.012  # 1 to 3 ms measured; sorting everything takes more than 20 ms
