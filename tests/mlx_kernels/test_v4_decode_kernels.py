"""Kernels of a decoded position of DeepSeek V4 against the plain functions of the cpu world."""

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

import mlx.core as mx  # noqa: E402

from mlx_kernels.cpu.deepseek_v4 import hyper_connection, indexer, rounding, router  # noqa: E402
from mlx_kernels.deepseek_v4_ops import HyperWeights  # noqa: E402
from mlx_kernels.gpu.deepseek_v4.decode_constants import integers, nothing, numbers  # noqa: E402
from mlx_kernels.gpu.deepseek_v4.decode_rows import Way, rows_of  # noqa: E402
from mlx_kernels.gpu.planar_weight import PlanarWeight  # noqa: E402
from tests.mlx_kernels.decode_worlds import NEEDS_COMPILER, WORLDS, decode_kernels  # noqa: E402
from tests.mlx_kernels.packed_samples import dense, random_packed  # noqa: E402

pytestmark = NEEDS_COMPILER
PRECISE = 3e-6  # sums of float32 in another order
_Q8_0 = 8
_ONE, _TWO = Way(8, 1, 8), Way(8, 2, 4)


@pytest.fixture(params=WORLDS)
def language(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng()


def floats(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


def close(found: mx.array, expected: np.ndarray) -> None:
    found = np.array(found).reshape(expected.shape)
    assert np.abs(found - expected).max() <= PRECISE * np.abs(expected).max()


@pytest.mark.parametrize(
    ("n_columns", "n8", "n16", "way"),
    [
        (512, 40, 24, Way(8, 1, 8)),
        (96, 33, 7, Way(8, 2, 4)),
        (1056, 70, 0, Way(8, 4, 2)),
        (64, 0, 9, Way(4, 2, 2)),
        (4096, 20, 9, Way(16, 1, 8)),
        (2080, 0, 37, Way(16, 1, 4)),
    ],
)
def test_rows_of_two_types(language, random, n_columns, n8, n16, way):
    """Rows that do not fill a group, columns that do not fill a simdgroup, one type or both."""
    packed = random_packed(_Q8_0, n8, n_columns, random) if n8 else None
    halves = floats(random, n16, n_columns).astype(np.float16) if n16 else None
    x = floats(random, n_columns)
    rows = rows_of(
        PlanarWeight.of([packed]) if n8 else None,
        mx.array(halves) if n16 else None,
        way,
        max_groups=3,
    )
    launch = decode_kernels(language).launch(
        "v4_rows",
        way.template(n_columns),
        (rows.n_groups, 1),
        [(n8 + n16,)],
        threads=32 * way.simdgroups,
    )
    parts = ([dense(packed)] if n8 else []) + ([halves.astype(np.float32)] if n16 else [])
    close(launch(mx.array(x), *rows.inputs)[0], np.concatenate(parts).astype(np.float64) @ x)


def test_rows_that_read_a_part_of_the_input(language, random):
    packed = random_packed(_Q8_0, 96, 64, random)
    x = floats(random, 3, 64)
    rows = rows_of(PlanarWeight.of([packed]), None, _TWO, part_rows=32, max_groups=2)
    assert rows.n_groups == 3  # two would have to share one
    template = _TWO.template(64)
    launch = decode_kernels(language).launch("v4_rows", template, (rows.n_groups, 1), [(96,)])
    expected = np.einsum("grc,gc->gr", dense(packed).reshape(3, 32, 64).astype(np.float64), x)
    close(launch(mx.array(x), *rows.inputs)[0], expected.reshape(-1))


@pytest.mark.parametrize(("n_rows", "n_columns", "max_groups"), [(64, 192, 3), (16, 1088, 64)])
def test_rows_in_two_parts_of_their_columns(language, random, n_rows, n_columns, max_groups):
    """The sum of both results is the product."""
    packed = random_packed(_Q8_0, n_rows, n_columns, random)
    x = floats(random, n_columns)
    rows = rows_of(PlanarWeight.of([packed]), None, _TWO, n_parts=2, max_groups=max_groups)
    launch = decode_kernels(language).launch(
        "v4_rows", _TWO.template(n_columns, 2), (rows.n_groups, 1), [(2, n_rows)]
    )
    (out,) = launch(mx.array(x), *rows.inputs)
    halves = dense(packed).reshape(n_rows, 2, -1).astype(np.float64)
    close(out, np.einsum("rpc,pc->pr", halves, x.reshape(2, -1)))


@pytest.mark.parametrize("has_second", [False, True])
def test_hyper_connection(language, random, has_second):
    """A result is written to the streams, and the next input is mixed from them."""
    n, kernels = 192, decode_kernels(language)
    streams, y, z = floats(random, 1, 4, n), floats(random, 1, n), floats(random, 1, n)
    post, comb = floats(random, 1, 4), floats(random, 1, 4, 4)
    fn = (floats(random, 24, 4 * n) / 16).astype(np.float16)
    hyper = HyperWeights(
        fn.astype(np.float32), floats(random, 3), floats(random, 24), 1 + floats(random, n) / 4
    )
    shape = SimpleNamespace(n_streams=4, n_sinkhorn=20, eps=1e-6, hc_eps=1e-6)
    packed = random_packed(_Q8_0, 24, n, random)
    rows = rows_of(PlanarWeight.of([packed]), None, _ONE, n_partials=n // 64, max_groups=2)
    old = mx.array(np.concatenate([post.reshape(-1), comb.reshape(-1)]))
    written, partials = kernels.launch(
        "v4_post_partials",
        {"HAS_SECOND": has_second, "N_ROWS": 24},
        (n // 64, 1),
        [(1, 4, n), (25, n // 64)],
    )(mx.array(streams), mx.array(y), mx.array(z), old, mx.array(fn), integers(n))
    given = y + z if has_second else y
    expected = hyper_connection.hc_post(given, streams, hyper_connection.CpuMix(post, comb))
    close(written, expected)
    products, normed, mix = kernels.launch(
        "v4_hyper_rows",
        _ONE.template(n),
        (1 + rows.n_groups, 1),
        [(24,), (1, n), (20,)],
    )(
        *(written, mx.array(hyper.norm), partials, mx.array(hyper.scale), mx.array(hyper.base)),
        *(numbers(shape.eps, shape.hc_eps, 20.0), *rows.inputs),
    )
    x, expected_mix = hyper_connection.hc_pre(expected, hyper, shape)
    close(normed, x)
    close(products, (dense(packed).astype(np.float64) @ x[0]))
    close(mix[:4], expected_mix.post[0])
    close(mix[4:], expected_mix.comb.reshape(-1))
    (again,) = kernels.launch("v4_partials", {"N_ROWS": 24}, (n // 64, 1), [(25, n // 64)])(
        written, mx.array(fn), integers(n)
    )
    assert mx.array_equal(again, partials)


@pytest.mark.parametrize(("n", "k"), [(33, 32), (700, 512), (1025, 3), (20_000, 512)])
def test_top_k_takes_the_lowest_index_among_equals(language, random, n, k):
    """Many equals, zeros of both signs, the largest and the smallest floats."""
    scores = random.integers(-3, 4, n).astype(np.float32)
    scores[random.integers(0, n, n // 4)] = -0.0
    scores[random.integers(0, n, 4)] = [-np.inf, np.inf, 3e38, -3e38]
    launch = decode_kernels(language).launch(
        "v4_top_k", {"K": k}, (1, 1), [(k,)], [mx.int32], threads=1024
    )
    # Scores behind the last one are not looked at.
    padded = np.concatenate([scores, np.full(50, np.inf, np.float32)])
    (index,) = launch(mx.array(padded), integers(0, 0, 0, 0, n))
    assert np.array(index).tolist() == indexer.best_rows(scores, k).tolist()


@pytest.mark.parametrize(("n_heads", "n_rows"), [(64, 100), (16, 33), (8, 1)])
def test_index_scores(language, random, n_heads, n_rows):
    heads, weights = floats(random, n_heads, 128), floats(random, n_heads)
    rows = rounding.index_row(floats(random, n_rows, 128)).astype(np.float16)
    angles = random.uniform(-3, 3, 32).astype(np.float32)
    turn = np.concatenate([np.cos(angles), np.sin(angles)])
    launch = decode_kernels(language).launch(
        "v4_index_scores",
        {"HEADS": n_heads, "AT": 8, "WEIGHTS_AT": 12},
        (2, 1),
        [(n_rows + 5,)],
    )
    before = np.zeros(12, np.float32)
    (found,) = launch(
        mx.array(np.concatenate([before[:8], heads.reshape(-1)])),
        *(mx.array(turn), mx.array(np.concatenate([before, weights]))),
        *(mx.array(rows), numbers(1e-6, 0.25), integers(0, 0, 0, 0, n_rows)),
    )
    turned = heads.copy()
    a, b = heads[:, 64::2], heads[:, 65::2]
    turned[:, 64::2] = a * turn[:32] - b * turn[32:]
    turned[:, 65::2] = a * turn[32:] + b * turn[:32]
    # A last bit of a turned value may decide which code is nearest: the turn is not compared here.
    queries = rounding.index_row(turned)
    expected = indexer.scores(queries, weights * np.float32(0.25), rows.astype(np.float32))
    error = np.abs(np.array(found)[:n_rows] - expected).max()
    assert error <= 1e-2 * np.abs(expected).max()
    assert np.median(np.abs(np.array(found)[:n_rows] - expected)) <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("has_table", [False, True])
@pytest.mark.parametrize(("n_experts", "n_used"), [(8, 3), (256, 6), (384, 6)])
def test_route(language, random, has_table, n_experts, n_used):
    """Equal scores, a bias that changes the choice but not the weights, a table by token."""
    products = random.integers(-3, 30, n_experts).astype(np.float32)
    bias = random.integers(0, 2, n_experts).astype(np.float32)
    table = random.permuted(np.tile(np.arange(n_experts, dtype=np.int32), (5, 1)), axis=1)[
        :, :n_used
    ]
    table = np.ascontiguousarray(table)
    packed, n_hidden, token = random_packed(_Q8_0, 20, 64, random), 64, 3
    gate_up = floats(random, 2 * n_hidden)
    rows = rows_of(PlanarWeight.of([packed]), None, _TWO, max_groups=1)
    launch = decode_kernels(language).launch(
        "v4_route_swiglu_rows",
        {
            **{"AT": 2 * n_hidden, "E": n_experts, "K": n_used, "HAS_TABLE": has_table},
            **_TWO.template(n_hidden),
        },
        (1 + rows.n_groups, 1),
        [(20,), (1, n_used), (1, n_used)],
        [mx.float32, mx.int32, mx.float32],
    )
    y, ids, weights = launch(
        mx.array(np.concatenate([gate_up, products])),
        nothing(mx.float32) if has_table else mx.array(bias),
        mx.array(table.reshape(-1)) if has_table else nothing(mx.int32),
        *(integers(token), numbers(0.5, 1.5), *rows.inputs),
    )
    ffn = SimpleNamespace(
        router=np.eye(n_experts, dtype=np.float32), bias=bias, table=table if has_table else None
    )
    layer = SimpleNamespace(
        feed_forward=ffn, shape=SimpleNamespace(n_used=n_used, expert_scale=1.5)
    )
    expected_ids, expected = router.route(products[None], layer, np.array([token]))
    order = np.argsort(expected_ids[0]) if not has_table else slice(None)
    assert np.array(ids)[0].tolist() == expected_ids[0][order].tolist()
    close(weights, expected[0][order])
    gate, up = np.minimum(gate_up[:64], 0.5), np.clip(gate_up[64:], -0.5, 0.5)
    close(y, dense(packed).astype(np.float64) @ (gate / (1 + np.exp(-gate)) * up))


def test_nan_is_not_hidden(language, random):
    """A damaged weight gives NaN in the result, and expert ids that exist."""
    n, kernels = 64, decode_kernels(language)
    x = floats(random, 2 * n + 8)
    x[3] = np.nan
    x[2 * n : 2 * n + 8] = np.nan
    rows = rows_of(PlanarWeight.of([random_packed(_Q8_0, 16, n, random)]), None, _TWO, max_groups=1)
    y, ids, _ = kernels.launch(
        "v4_route_swiglu_rows",
        {"AT": 2 * n, "E": 8, "K": 3, "HAS_TABLE": False, **_TWO.template(n)},
        (1 + rows.n_groups, 1),
        [(16,), (1, 3), (1, 3)],
        [mx.float32, mx.int32, mx.float32],
    )(
        *(mx.array(x), mx.zeros(8), nothing(mx.int32), integers(0), numbers(10.0, 1.0)),
        *rows.inputs,
    )
    assert np.isnan(np.array(y)).all()
    assert (np.array(ids) >= 0).all() and (np.array(ids) < 8).all()
