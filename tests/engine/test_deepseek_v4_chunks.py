"""Prompts of 1 to 700 tokens in pieces, in the world of MLX arrays.

Its products sum in another order with another number of rows, so states are close, not equal (in
the cpu world they are equal: ``test_deepseek_v4_state.py``). A stored value next to a boundary of
FP8 may fall to the other side of it: one step of its grid, 1/8 of the value. Each piece begins with
the state of the run one by one, so that what such a step does to later layers does not add up.
"""

from collections import deque
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from engine.families.registry import plan_for  # noqa: E402
from engine.gguf_file import GgufFile  # noqa: E402
from mlx_kernels.gpu.operations import MlxOps  # noqa: E402

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4_tiny"
N_MOST, LONGEST_PIECE = 700, 160  # longer than a window, and than a group of 128
CLOSE = 1e-3  # of the largest value
FP8_STEP = 2.0**-3
TOKENS = np.random.default_rng(20261203).integers(0, 512, N_MOST).astype(np.int32)


@pytest.fixture(scope="module")
def model():
    with GgufFile.open(FIXTURES / "tiny-v4-q.gguf") as gguf:
        yield plan_for(gguf).load(MlxOps("mlx-cpu"), None, None)


def read(model, cache, first: int, last: int) -> np.ndarray:
    """Logits after tokens ``first`` to ``last`` at once."""
    ids = TOKENS[first:last]
    hidden = model.layers(0, model.n_layers, model.embed(ids), cache, ids)
    return model.head(hidden[-1:])[0]


def check(arrays, expected, logits, expected_logits, told) -> None:
    assert arrays.keys() == expected.keys()
    for name, array in expected.items():
        ours, theirs = (each.astype(np.float32) for each in (arrays[name], array))
        assert ours.shape == theirs.shape, (name, told)
        if not ours.size:
            continue
        scores = "score" in name  # places without a token hold -1e30
        largest = np.abs(theirs[theirs > -1e29] if scores else theirs).max(initial=1e-6)
        error = np.abs(ours - theirs)
        is_grid = array.dtype == np.float16
        allowed = np.maximum(CLOSE * largest, FP8_STEP * np.abs(theirs) if is_grid else 0)
        assert (error <= allowed).all(), (name, told, error.max(), largest)
        assert (error > CLOSE * largest).mean() < 0.02, (name, told)  # such steps are rare
    error = np.abs(logits - expected_logits).max()
    assert error <= 0.02 * np.abs(expected_logits).max(), (told, error)


def steps(model):
    """Yield (n, logits, state) of the run one by one; the last states that a piece begins with."""
    cache = model.new_cache(N_MOST)
    yield 0, None, cache.arrays()
    for n in range(1, N_MOST + 1):
        logits = read(model, cache, n - 1, n)
        yield n, logits, cache.arrays()


def run(model, lengths) -> None:
    random, before = np.random.default_rng(11), deque(maxlen=LONGEST_PIECE)
    for n, logits, arrays in steps(model):
        if n in lengths:
            length = int(len(before) ** random.random())  # as many of 2 to 4 as of 64 to 128
            first, state = before[-max(1, length)]
            cache = model.new_cache(N_MOST)
            cache.load(dict(state), first)
            found = read(model, cache, first, n)
            check(cache.arrays(), arrays, found, logits, f"{first} to {n}")
        before.append((n, arrays))
        if n >= max(lengths):
            return


def test_some_pieces_give_the_state_of_one_by_one(model):
    run(model, {2, 5, 8, 33, 38})


@pytest.mark.slow
def test_every_length_ends_with_a_piece_that_gives_the_state_of_one_by_one(model):
    run(model, set(range(1, N_MOST + 1)))
