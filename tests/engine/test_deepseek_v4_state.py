"""The state of DeepSeek V4: any chunking, any position, going back, saving."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from engine.errors import RewindError
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from mlx_kernels.cpu.operations import CpuOps

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4_tiny"
TOKENS = np.random.default_rng(20261203).integers(0, 512, 701).astype(np.int32)


@pytest.fixture(scope="module")
def model():
    with GgufFile.open(FIXTURES / "tiny-v4-q.gguf") as gguf:
        yield plan_for(gguf).load(CpuOps(exact_products=True), None, None)


def feed(model, cache, ids):
    return model.layers(0, model.n_layers, model.embed(ids), cache, ids)


def feed_all(model, n: int, cuts=()):
    """A cache of the first n tokens, read in pieces."""
    cache = model.new_cache(800)
    for part in np.split(TOKENS[:n], cuts):
        if len(part):
            feed(model, cache, part)
    return cache


def digest(cache) -> str:
    state = hashlib.sha256()
    for name, array in sorted(cache.arrays().items()):
        state.update(name.encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


@pytest.mark.parametrize("n", [135, pytest.param(260, marks=pytest.mark.slow)])
def test_one_by_one_gives_every_position_the_logits_of_one_call(n, model):
    """Every remainder by 128, with all remainders by 4 and the first choice of rows."""
    whole = model.head(feed(model, model.new_cache(800), TOKENS[:n]))
    cache = model.new_cache(800)
    for p in range(n):
        row = model.head(feed(model, cache, TOKENS[p : p + 1]))[0]
        assert np.array_equal(row, whole[p]), p


@pytest.mark.parametrize("n", [2, 31, 144, 389, 700])
def test_random_chunks_give_the_state_of_one_call(n, model):
    cuts = np.sort(np.random.default_rng(n).integers(0, n + 1, 6))
    assert digest(feed_all(model, n, cuts)) == digest(feed_all(model, n)), (n, cuts)


@pytest.mark.slow
def test_every_length_in_random_chunks_gives_the_state_of_one_by_one(model):
    rng, steps = np.random.default_rng(7), model.new_cache(800)
    for n in range(1, 701):
        feed(model, steps, TOKENS[n - 1 : n])
        cuts = np.sort(rng.integers(0, n + 1, rng.integers(1, 8)))
        assert digest(feed_all(model, n, cuts)) == digest(steps), (n, cuts)


@pytest.mark.parametrize("n", [20, 131, 258])
@pytest.mark.parametrize("back", [1, 5, 16])
def test_going_back_a_few_tokens_leaves_the_state_of_that_position(n, back, model):
    start = max(1, n - 20)
    cache = feed_all(model, n, range(start, n))
    cache.truncate(n - back)
    assert cache.n_tokens == n - back
    assert digest(cache) == digest(feed_all(model, n - back, range(start, n - back)))
    # What comes next is what would have come.
    other = feed_all(model, n - back, range(start, n - back))
    row = TOKENS[n : n + 1]
    assert np.array_equal(feed(model, cache, row), feed(model, other, row))


def test_a_long_block_is_taken_back_as_a_whole(model):
    cache = feed_all(model, 140)
    before = digest(cache)
    feed(model, cache, TOKENS[140:300])
    cache.truncate(140)
    assert digest(cache) == before


def test_what_was_pooled_can_not_be_gone_back_to(model):
    cache = feed_all(model, 300, range(200, 300))
    before = digest(cache)
    with pytest.raises(RewindError) as caught:
        cache.truncate(150)
    assert str(caught.value) == (
        "cannot go back from position 300 to 150: the tokens in between were already pooled"
    )
    assert caught.value.hint == "Go back to 0, and read the conversation again."
    assert digest(cache) == before
    with pytest.raises(RewindError, match="cannot go back to position 301 of 300"):
        cache.truncate(301)
    cache.truncate(0)
    feed(model, cache, TOKENS[:40])
    assert digest(cache) == digest(feed_all(model, 40))
