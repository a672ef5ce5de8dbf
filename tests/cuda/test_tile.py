"""The tile product as it is launched, against float64 products of the gguf package's values.

Rows of x become halves of 11 bits with a power of two of their own, weights halves too, in two
steps (scale, value): 2^-11 at most in each, 4e-4 of a row in the middle. Errors of a scale are
common to its sub-block, and a few large sub-blocks make most of a sum: the same roundings done in
NumPy leave 9e-4 in the worst of 90 rows of Q4_K, so twice 2^-10 is the bound.
"""

from typing import Any

import numpy as np
import pytest

from mlx_kernels.blocks import BLOCK, PackedMatrix
from tests.cuda.launch import needs_compiler
from tests.cuda.world import emulated_kernels, needs_mlx
from tests.mlx_kernels.packed_samples import dense, random_packed

pytestmark = [needs_compiler, needs_mlx]

FORMATS = (8, 10, 12, 13, 14, 16, 39)
HALF_PRODUCT = 2 * 2**-10
CLAMP = 3.0
formats = pytest.mark.parametrize(
    "type_id",
    [
        pytest.param(i, id=BLOCK[i].name, marks=() if i in (8, 16) else pytest.mark.slow)
        for i in FORMATS
    ],
)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng()


@pytest.fixture
def kernels() -> Any:
    return emulated_kernels()


def held(packed: PackedMatrix) -> Any:
    from mlx_kernels.gpu.planar_weight import PlanarWeight
    from mlx_kernels.gpu.weight_scaling import with_scaling

    return with_scaling(PlanarWeight.of([packed]))


def worst_row(result: Any, expected: np.ndarray) -> float:
    errors = np.linalg.norm(np.array(result) - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return float(errors.max())


def spread(random: np.random.Generator, n_rows: int, n_columns: int) -> np.ndarray:
    """Rows of very different sizes."""
    x = random.standard_normal((n_rows, n_columns)).astype(np.float32)
    return x * 10.0 ** random.uniform(-12, 12, (n_rows, 1)).astype(np.float32)


def test_halves(kernels: Any, random: np.random.Generator) -> None:
    """Eleven bits of the largest value, whatever its size."""
    import mlx.core as mx

    from mlx_kernels.gpu.tile_launches import halves

    x = spread(random, 9, 544)
    x[3], x[4] = 0.0, 0.0
    x[4, 7] = 3e-38
    out, scales = (np.array(a) for a in halves(kernels, mx.array(x)))
    largest = np.abs(out.astype(np.float32)).max(axis=1)
    live = np.arange(9) != 3
    assert not out[3].any() and np.isfinite(scales).all()
    assert (largest[live & (np.arange(9) != 4)] >= 2**14).all() and (largest <= 2**15).all()
    back = out.astype(np.float64) * scales[:, None]
    error = np.abs(back - x).max(axis=1)
    assert (error <= np.abs(x).max(axis=1) * 2.0**-11).all()
    x[0, 0] = np.nan
    assert np.isnan(np.array(halves(kernels, mx.array(x))[0])[0, 0])


@formats
def test_dense_product(type_id: int, kernels: Any, random: np.random.Generator) -> None:
    """Rows of x and of weights that no tile divides; for blocks of 32 also a part of a unit."""
    import mlx.core as mx

    from mlx_kernels.gpu.tile_launches import halves, tile_product

    n_out, n_rows = 77, 35
    n_columns = 512 if BLOCK[type_id].n_values == 256 else 288
    packed = random_packed(type_id, n_out, n_columns, random)
    x = spread(random, n_rows, n_columns)
    out = tile_product(kernels, halves(kernels, mx.array(x)), held(packed), rows_a_tile=16)
    assert worst_row(out, x.astype(np.float64) @ dense(packed).T) < HALF_PRODUCT


def test_grouping() -> None:
    """Every choice is in one tile, of its expert; nothing depends on how many each expert has."""
    import mlx.core as mx

    from mlx_kernels.gpu.grouping import grouped

    random = np.random.default_rng(4)
    for n_positions, n_chosen, n_experts, rows in ((1, 1, 1, 16), (45, 2, 4, 16), (9, 6, 256, 32)):
        for spread_of_ids in (1, n_experts):
            ids = random.integers(0, spread_of_ids, (n_positions, n_chosen)).astype(np.int32)
            groups = grouped(mx.array(ids), n_experts, rows)
            flat, order, tiles = ids.reshape(-1), np.array(groups.order), np.array(groups.tiles)
            assert order.tolist() == np.argsort(flat, kind="stable").tolist()
            places = []
            for expert, first, n in tiles.tolist():
                assert n <= rows and (flat[order[first : first + n]] == expert).all()
                places += range(first, first + n)
            assert sorted(places) == list(range(len(flat)))


@formats
def test_experts(type_id: int, kernels: Any, random: np.random.Generator) -> None:
    """Four experts of which one has no position, one a few and one more than a tile."""
    import mlx.core as mx

    from mlx_kernels.gpu.grouping import grouped
    from mlx_kernels.gpu.tile_launches import halves, tile_gate_up, tile_product

    n_experts, n_hidden, width, n_positions, n_chosen = 4, 40, 256, 45, 2
    gate, up = (random_packed(type_id, n_experts * n_hidden, width, random) for _ in range(2))
    ids = np.stack([np.full(n_positions, 3), np.zeros(n_positions)], axis=1).astype(np.int32)
    ids[:5, 1] = 2  # expert 1 is never chosen
    gates, ups = (dense(part).reshape(n_experts, n_hidden, width) for part in (gate, up))
    # Gates of some 2: the exponential of a large one would multiply its error.
    x = random.standard_normal((n_positions, width)) * 2 / (gates.std() * width**0.5)
    x = x.astype(np.float32)
    weights = random.uniform(0.1, 1, ids.shape).astype(np.float32)
    groups = grouped(mx.array(ids), n_experts, 32)
    order = np.array(groups.order)
    gate_held, up_held = held(gate), held(up)
    hidden = tile_gate_up(
        *(kernels, halves(kernels, mx.array(x)), gate_held, up_held),
        *(groups, mx.array(weights), CLAMP),
    )
    rows, experts = x.astype(np.float64)[order // n_chosen], ids.reshape(-1)[order]
    gated = np.minimum(np.einsum("rfc,rc->rf", gates[experts], rows), CLAMP)
    lifted = np.clip(np.einsum("rfc,rc->rf", ups[experts], rows), -CLAMP, CLAMP)
    weighted = weights.reshape(-1)[order][:, None]
    expected = weighted * gated / (1 + np.exp(-gated)) * lifted
    # The errors of gate and up add up, and a few of the 40 values make most of a row.
    assert worst_row(hidden, expected) < 2 * HALF_PRODUCT

    rows = spread(random, ids.size, width)
    out = tile_product(kernels, halves(kernels, mx.array(rows)), gate_held, groups)
    products = np.einsum("rfc,rc->rf", gates[experts], rows.astype(np.float64))
    assert worst_row(np.array(out)[order], products) < HALF_PRODUCT


@pytest.mark.parametrize("power", [-60, 60])
def test_weights_of_any_size(power: int, kernels: Any, random: np.random.Generator) -> None:
    """MXFP4 has an exponent of 8 bits, float16 one of 5."""
    import mlx.core as mx

    from mlx_kernels.gpu.tile_launches import halves, tile_product

    packed = random_packed(39, 16, 64, random)
    raw = packed.raw.reshape(-1, 17).copy()
    raw[:, 0] = 127 + power - np.arange(len(raw)) % 8
    packed = PackedMatrix(39, raw.reshape(-1), packed.shape)
    x = random.standard_normal((10, 64)).astype(np.float32)
    out = tile_product(kernels, halves(kernels, mx.array(x)), held(packed))
    assert worst_row(out, x.astype(np.float64) @ dense(packed).T) < HALF_PRODUCT
