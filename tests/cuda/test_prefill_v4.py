"""The kernels for many positions of DeepSeek V4 against the plain operations of the same steps."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engine.families.deepseek_v4.plan import DeepseekV4Plan
from engine.families.deepseek_v4.tensors import Part
from engine.gguf_file import GgufFile
from tests.cuda.launch import needs_compiler
from tests.cuda.world import emulated_kernels, needs_mlx

pytestmark = [needs_compiler, needs_mlx]

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4_tiny"
HALF = 2.0**-11  # of a rounding to float16


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng()


@pytest.fixture
def kernels() -> Any:
    import mlx.core as mx

    mx.set_default_device(mx.cpu)
    return emulated_kernels()


def normal(random: np.random.Generator, *shape: int) -> Any:
    import mlx.core as mx

    return mx.array(random.standard_normal(shape).astype(np.float32))


def relative_error(result: Any, expected: Any) -> float:
    result, expected = np.array(result, np.float64), np.array(expected, np.float64)
    assert result.shape == expected.shape
    return float(np.linalg.norm(result - expected) / np.linalg.norm(expected))


def turns_of(random: np.random.Generator, n: int, n_rotary: int) -> tuple[Any, Any]:
    import mlx.core as mx

    angles = random.uniform(-3, 3, (n, n_rotary // 2)).astype(np.float32)
    return mx.array(np.cos(angles)), mx.array(np.sin(angles))


def test_hyper_connections(kernels: Any, random: np.random.Generator) -> None:
    import mlx.core as mx

    from mlx_kernels.deepseek_v4_ops import HyperWeights
    from mlx_kernels.gpu.deepseek_v4 import hyper_connection as plain
    from mlx_kernels.gpu.deepseek_v4.prefill_launches import hyper_read, hyper_write

    width, n = 544, 3
    shape: Any = SimpleNamespace(n_streams=4, n_sinkhorn=20, eps=1e-6, hc_eps=1e-6)
    hyper = HyperWeights(
        fn=normal(random, 24, 4 * width) * 0.05,
        scale=normal(random, 3),
        base=normal(random, 24),
        norm=normal(random, width),
    )
    streams = normal(random, n, 4, width) * mx.array([1e-3, 1.0, 1e3]).reshape(3, 1, 1)
    products = streams.reshape(n, -1) @ hyper.fn.T
    x, mix = hyper_read(kernels, streams, products, hyper, shape)
    expected, plain_mix = plain.hc_pre(streams, hyper, shape)
    assert relative_error(x, expected) < 1e-5
    assert relative_error(mix[:, :4], plain_mix.post) < 1e-5
    assert relative_error(mix[:, 4:].reshape(n, 4, 4), plain_mix.comb) < 1e-5
    y, z = normal(random, n, width), normal(random, n, width)
    for second in (None, z):
        written = hyper_write(kernels, y, second, streams, mix)
        both = y if second is None else y + second
        assert relative_error(written, plain.hc_post(both, streams, plain_mix)) < 1e-5


@pytest.mark.parametrize("width", [256, 512])
def test_heads(width: int, kernels: Any, random: np.random.Generator) -> None:
    import mlx.core as mx

    from mlx_kernels.gpu.deepseek_v4.prefill_launches import heads
    from mlx_kernels.gpu.deepseek_v4.rotation import turn

    n, n_heads = 3, 5
    x = normal(random, n, n_heads * width) * 100
    cos, sin = turns_of(random, n, 64)
    found = heads(kernels, x, n_heads, cos, sin, 1e-6)
    assert found.dtype == mx.float16
    normed = mx.fast.rms_norm(x.reshape(n, n_heads, width), None, 1e-6)
    assert relative_error(found.astype(mx.float32), turn(normed, cos, sin)) < HALF


def test_index_heads_are_rounded_bit_by_bit(kernels: Any, random: np.random.Generator) -> None:
    """One rounding of the turn may differ from MLX's, and then a code of FP4: few do."""
    import mlx.core as mx

    from mlx_kernels.gpu.deepseek_v4.prefill_launches import index_heads
    from mlx_kernels.gpu.deepseek_v4.rotation import turn
    from mlx_kernels.gpu.deepseek_v4.rounding import index_row

    n, n_heads = 5, 7
    x = normal(random, n, n_heads, 128) * mx.array(10.0 ** np.arange(-3, 4)).reshape(1, 7, 1)
    x = x.astype(mx.float32)
    x[0, 0] = 0.0
    still = mx.ones((n, 32)), mx.zeros((n, 32))
    found = index_heads(kernels, x.reshape(n, -1), n_heads, *still).astype(mx.float32)
    assert np.array_equal(np.array(found), np.array(index_row(x)))
    cos, sin = turns_of(random, n, 64)
    found = np.array(index_heads(kernels, x.reshape(n, -1), n_heads, cos, sin).astype(mx.float32))
    expected = np.array(index_row(turn(x, cos, sin)))
    assert (found != expected).mean() < 1e-3


@pytest.mark.parametrize("ratio", [4, 128])
@pytest.mark.parametrize("is_first", [True, False])
def test_stored_rows(ratio: int, is_first: bool, kernels: Any, random: np.random.Generator) -> None:
    """Pooled, normalised, turned, rounded. Roundings of single steps differ: codes of FP8 may."""
    import mlx.core as mx

    from mlx_kernels.deepseek_v4_ops import CompressorWeights
    from mlx_kernels.deepseek_v4_state import CompressorState
    from mlx_kernels.gpu.deepseek_v4.compressor import compress, extend
    from mlx_kernels.gpu.deepseek_v4.prefill_launches import index_rows, pool, stored_rows
    from mlx_kernels.gpu.deepseek_v4.rounding import index_row, key_row

    omega, n_new = 0.5 ** np.arange(32.0), ratio * 2 + 3
    for width, round_row, ours in (
        (256, lambda x: key_row(x, 64), stored_rows),
        (128, index_row, index_rows),
    ):
        w = 2 * width if ratio == 4 else width
        weights = CompressorWeights(normal(random, ratio, w), normal(random, width))
        states = [CompressorState(mx, ratio, width, 1024, mx.float16) for _ in range(2)]
        if not is_first:
            before = normal(random, ratio + 1, 2 * w)
            for state in states:
                compress(before, weights, state, omega, 1e-6)
        products = normal(random, n_new, 2 * w)
        expected = np.array(round_row(compress(products, weights, states[0], omega, 1e-6)))
        history, at, first_row, n = extend(products, weights, states[1])
        pooled = pool(kernels, history, at, n, ratio, width)
        places = (first_row + np.arange(n)[:, None]) * ratio
        angles = places.astype(np.float32) * omega.astype(np.float32)
        turn = mx.array(np.cos(angles)), mx.array(np.sin(angles))
        found = ours(kernels, pooled, weights.norm, *turn, 1e-6)
        assert found.dtype == mx.float16
        off = np.abs(np.array(found, np.float32) - expected) > 1e-3 * np.abs(expected).mean()
        assert off.mean() < 0.01


@pytest.mark.parametrize("n_heads", [16, 64])
def test_index_scores(n_heads: int, kernels: Any, random: np.random.Generator) -> None:
    """Blocks of rows that no position, some and all may read; negative weights."""
    import mlx.core as mx

    from mlx_kernels.gpu.deepseek_v4.prefill_launches import index_scores
    from mlx_kernels.gpu.deepseek_v4.rounding import index_row

    n, n_rows, first, ratio = 35, 523, 1090, 4
    queries = index_row(normal(random, n, n_heads, 128)).astype(mx.float16)
    rows = index_row(normal(random, n_rows, 128)).astype(mx.float16)
    weights = normal(random, n, n_heads)
    found = np.array(index_scores(kernels, queries, weights, rows, first, ratio))
    products = np.einsum("thd,cd->thc", np.array(queries, np.float64), np.array(rows, np.float64))
    expected = np.einsum("th,thc->tc", np.array(weights, np.float64), np.maximum(products, 0))
    there = np.arange(n_rows) < (first + np.arange(n)[:, None] + 1) // ratio
    assert np.array_equal(np.isfinite(found), there)
    sizes = np.einsum("th,thc->tc", np.abs(np.array(weights)), np.maximum(products, 0))
    assert (np.abs(found - expected)[there] <= 1e-5 * sizes[there]).all()


@pytest.mark.parametrize(("n_rows", "k"), [(8, 3), (33, 33), (700, 512), (1500, 32)])
def test_top_k(n_rows: int, k: int, kernels: Any, random: np.random.Generator) -> None:
    import mlx.core as mx

    from mlx_kernels.gpu.deepseek_v4.prefill_launches import top_k

    scores = np.stack(
        [
            random.integers(-3, 3, n_rows) * 1e-3,  # equals everywhere, both signs
            np.where(random.random(n_rows) < 0.5, 0.0, -0.0),
            random.standard_normal(n_rows),
            np.where(np.arange(n_rows) < k // 2, random.standard_normal(n_rows), -np.inf),
        ]
    ).astype(np.float32)
    found = np.array(top_k(kernels, mx.array(scores), k))
    for row, chosen in zip(scores, found, strict=True):
        assert chosen.tolist() == sorted(np.argsort(-row, kind="stable")[:k].tolist())


@pytest.mark.parametrize("width", [256, pytest.param(512, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["window", "all", "index"])
def test_attention(way: str, width: int, kernels: Any, random: np.random.Generator) -> None:
    """Positions with few and with all rows of the window, with none and some compressed rows."""
    import mlx.core as mx

    from mlx_kernels.gpu.deepseek_v4.prefill_launches import attend

    n, n_heads, n_window, ratio, n_rotary, k = 3, 5, 100, 4, 64, 80
    for first in (0, 6, 470):
        low = max(0, first - n_window + 1)
        last = first + n
        queries = normal(random, n, n_heads, width).astype(mx.float16)
        window = normal(random, last - low, width).astype(mx.float16)
        n_rows = last // ratio
        rows = normal(random, n_rows, width).astype(mx.float16) if way != "window" else None
        if rows is not None and not n_rows:
            continue
        index = None
        if way == "index":
            places = [
                np.sort(random.permutation(max(k, (first + t + 1) // ratio))[:k]) for t in range(n)
            ]
            index = mx.array(np.stack(places).astype(np.int32))
        sinks = normal(random, n_heads) * 3
        cos, sin = turns_of(random, n, n_rotary)
        found = attend(
            kernels,
            queries,
            window,
            rows,
            index,
            sinks,
            (cos, sin),
            (first, low, n_window, ratio),
        )
        expected = np.zeros((n, n_heads, width))
        for t in range(n):
            p = first + t
            seen = np.array(window, np.float64)[max(0, p - n_window + 1) - low : p + 1 - low]
            if rows is not None:
                count = (p + 1) // ratio
                chosen = np.arange(count)
                if index is not None:
                    chosen = np.array(index)[t]
                    chosen = chosen[: min(k, count)]
                seen = np.concatenate([seen, np.array(rows, np.float64)[chosen]])
            scores = np.array(queries, np.float64)[t] @ seen.T / width**0.5
            both = np.concatenate([scores, np.array(sinks, np.float64)[:, None]], axis=1)
            shares = np.exp(both - both.max(axis=1, keepdims=True))
            shares /= shares.sum(axis=1, keepdims=True)
            expected[t] = shares[:, :-1] @ seen
        c, s = (np.array(a, np.float64)[:, None] for a in (cos, sin))
        a, b = expected[..., -n_rotary::2].copy(), expected[..., -n_rotary + 1 :: 2].copy()
        expected[..., -n_rotary::2], expected[..., -n_rotary + 1 :: 2] = (
            a * c + b * s,
            b * c - a * s,
        )
        assert relative_error(found, expected.reshape(n, -1)) < HALF


@pytest.mark.slow
def test_layers_go_on_where_plain_operations_stopped(
    kernels: Any, random: np.random.Generator
) -> None:
    """A layer with an indexer and one at ratio 128, past the point where rows are selected.

    Products round to 11 bits, and a code of FP8 that flips is 6 % of a value: few may.
    """
    import mlx.core as mx

    from mlx_kernels.gpu.operations import MlxOps

    first, last, n_before, n_new = 2, 4, 132, 10
    tokens = random.integers(0, 500, n_before + n_new).astype(np.int32)
    streams = random.standard_normal((len(tokens), 4, 256)).astype(np.float32)
    with GgufFile.open(FIXTURES / "tiny-v4-q.gguf") as gguf:
        plan = DeepseekV4Plan.of(gguf, Part(first, last))
        plain = plan.load(MlxOps("mlx-cpu"), None, None)
        ours = plan.load(MlxOps("mlx-cpu", kernels), None, None)
    cache, own = plain.new_cache(256), ours.new_cache(256)
    old, new = slice(0, n_before), slice(n_before, None)
    plain.layers(first, last, mx.array(streams[old]), cache, tokens[old])
    own.load(cache.arrays(), n_before)
    expected = np.array(plain.layers(first, last, mx.array(streams[new]), cache, tokens[new]))
    found = np.array(ours.layers(first, last, mx.array(streams[new]), own, tokens[new]))
    errors = [relative_error(a, b) for a, b in zip(found, expected, strict=True)]
    assert np.median(errors) < 4 * HALF and max(errors) < 0.1
    there = own.arrays()
    for name, array in cache.arrays().items():
        wide = array.astype(np.float64)
        off = np.abs(there[name] - wide) > 0.01 * wide.std()
        assert off.mean() < 0.05, name
    used = {name for name, *_ in kernels._made}
    assert {"hyper_read", "index_scores", "top_k", "attend", "tile_gate_up"} <= used
