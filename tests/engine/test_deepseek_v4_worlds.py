"""Both array worlds agree: rounding bit by bit, choices among equals, states that change over."""

import json
from pathlib import Path

import numpy as np
import pytest

from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from mlx_kernels.cpu.deepseek_v4 import indexer, rounding
from mlx_kernels.cpu.operations import CpuOps
from mlx_kernels.devices import open_ops

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4_tiny"
CASES = json.loads((FIXTURES / "tokens.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def models():
    with GgufFile.open(FIXTURES / "tiny-v4-q.gguf") as gguf:
        plan = plan_for(gguf)
        yield {
            "cpu": plan.load(CpuOps(exact_products=True), None, None),
            "mlx-cpu": plan.load(open_ops("mlx-cpu"), None, None),
        }


def awkward_rows(width: int) -> np.ndarray:
    """Rows of all magnitudes: ties of both grids, their largest values, zeros of both signs."""
    rng = np.random.default_rng(8)
    ties = np.tile([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -5, 17, 19, 0, -0.0, 6, 448, 1, 3], 32)
    rows = [
        rng.standard_normal((200, width)) * 2.0 ** rng.integers(-40, 12, (200, 1)),
        ties[:width] * 2.0 ** np.arange(-20, 20)[:, None],
        np.zeros((1, width)),
    ]
    edges = np.nextafter(np.float32([448, 6] * 3), np.float32([0, 0, 448, 6, 900, 900]))
    rows += [np.full((1, width), edge) for edge in edges]
    return np.concatenate(rows).astype(np.float32)


@pytest.mark.parametrize("name, width", [("key_row", 512), ("index_row", 128)])
def test_rounding_is_equal_bit_by_bit(name, width):
    open_ops("mlx-cpu")
    import mlx.core as mx

    from mlx_kernels.gpu.deepseek_v4 import rounding as ours

    args = (64,) if name == "key_row" else ()
    rows = awkward_rows(width)
    if name == "key_row":
        rows = np.clip(rows, -60000, 60000)  # stored as float16
    expected = getattr(rounding, name)(rows, *args)
    found = np.array(getattr(ours, name)(mx.array(rows), *args))
    assert np.array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_top_k_takes_the_lowest_index_among_equals():
    open_ops("mlx-cpu")
    import mlx.core as mx

    from mlx_kernels.gpu.deepseek_v4.top_k import top_k

    rng = np.random.default_rng(9)
    for n, k in ((1, 1), (8, 3), (33, 32), (700, 32), (700, 512)):
        scores = rng.integers(0, 6, (20, n)).astype(np.float32)  # equals everywhere
        found = np.array(top_k(mx.array(scores), k))
        for row, chosen in zip(scores, found, strict=True):
            assert chosen.tolist() == sorted(np.argsort(-row, kind="stable")[:k].tolist())
            assert chosen.tolist() == indexer.best_rows(row, k).tolist()


def next_tokens(model, cache, token: int, n: int) -> list[int]:
    written = []
    for _ in range(n):
        ids = np.array([token], np.int32)
        hidden = model.layers(0, model.n_layers, model.embed(ids), cache, ids)
        token = int(model.head(hidden)[0].argmax())
        written.append(token)
    return written


@pytest.mark.parametrize("first, second", [("cpu", "mlx-cpu"), ("mlx-cpu", "cpu")])
def test_a_state_goes_on_in_the_other_world(first, second, models):
    tokens = np.array(CASES["long"]["tokens"][:200], np.int32)
    model, cache = models[first], models[first].new_cache(256)
    model.layers(0, model.n_layers, model.embed(tokens), cache, tokens)
    state = cache.arrays()
    moved = models[second].new_cache(256)
    moved.load(state, len(tokens))
    again = moved.arrays()
    assert all(np.array_equal(again[name], array) for name, array in state.items())
    there = next_tokens(models[second], moved, CASES["long"]["tokens"][200], 24)
    assert there == next_tokens(model, cache, CASES["long"]["tokens"][200], 24)
