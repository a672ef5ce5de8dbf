"""The tile product's texts against float64 products of the gguf package's values.

Rows of x become halves of 11 bits with a power of two of their own, weights halves too, in two
steps (scale, value): 2^-11 at most in each, 4e-4 of a row in the middle. Errors of a scale are
common to its sub-block, and a few large sub-blocks make most of a sum: the same roundings done in
NumPy leave 9e-4 in the worst of 90 rows of Q4_K, so twice 2^-10 is the bound.
"""

from collections.abc import Sequence

import numpy as np
import pytest

from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.blocks.iq2_xxs import iq2_xxs_grid
from mlx_kernels.gpu.planar import PLANES, to_planar
from tests.cuda.launch import BODIES, EmulatedKernel, needs_compiler
from tests.mlx_kernels.packed_samples import dense, random_packed

pytestmark = needs_compiler

FORMATS = (8, 10, 12, 16, 39)
HALF_PRODUCT = 2 * 2**-10
NT, WARPS = 4, 2  # tiles of 32 rows of x; 64 rows of weights a block, 32 of gate and up
CLAMP = 10.0
WEIGHT_SCALE = 4.0  # brings weights of some 0.1 away from the smallest halves

_SHARED = """
extern __shared__ uint4 tile_shared[];
uint8_t* shared = reinterpret_cast<uint8_t*>(tile_shared);
"""
_PRODUCT = (
    _SHARED
    + """
const Planes planes{quants, high, scales, factors};
grouped_product<Format, NT, WARPS>(
    shared, x, x_scales, planes, scaling, HAS_EXPERTS ? order : nullptr,
    HAS_EXPERTS ? tiles : nullptr, out, sizes[0], sizes[1], sizes[2]);
"""
)
_GATE_UP = (
    _SHARED
    + """
const Planes gate{gate_quants, gate_high, gate_scales, gate_factors};
const Planes up{up_quants, up_high, up_scales, up_factors};
grouped_gate_up<Format, NT, WARPS>(
    shared, x, x_scales, gate, up, scaling, order, tiles, weights, out, sizes[1], sizes[2], K,
    clamp[0]);
"""
)
_FILES = ("matmul_unpack.cu", "matmul_ptx.cu", "matmul_tile.cu")
_TEMPLATE = (("NT", NT), ("WARPS", WARPS))
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


def run(
    type_id: int,
    body: str,
    arrays: dict[str, np.ndarray],
    template: Sequence[tuple[str, int | bool]],
    blocks: tuple[int, int],
    shape: tuple[int, int],
) -> np.ndarray:
    texts = [(BODIES / file).read_text(encoding="utf-8") for file in _FILES]
    header = "\n".join([*texts, f"using Format = {BLOCK[type_id].name};\n"])
    x_stage = 8 * (NT * 8 * 64 + 16)
    shared = 2048 + NT * 8 * 4 + 2 * x_stage  # as in the text: table, rows of x, two stages
    kernel = EmulatedKernel("tile", list(arrays), ["out"], body, header, shared_memory=shared)
    (out,) = kernel(
        inputs=list(arrays.values()),
        template=(*_TEMPLATE, *template),
        grid=(blocks[0] * 32 * WARPS, blocks[1], 1),
        threadgroup=(32 * WARPS, 1, 1),
        output_shapes=[shape],
        output_dtypes=[np.float32],
    )
    return out


def planes(packed: PackedMatrix, prefix: str = "") -> dict[str, np.ndarray]:
    planar = to_planar([packed])
    arrays = {name: getattr(planar, name) for name in PLANES}
    if packed.type_id == 16:
        arrays["high"] = iq2_xxs_grid().reshape(-1)
    return {prefix + name: a if a.size else np.zeros(16, np.uint8) for name, a in arrays.items()}


def halves(x: np.ndarray) -> dict[str, np.ndarray]:
    """Each row times the power of two that brings its largest value to 2^14 or above."""
    scales = 2.0 ** (14 - np.floor(np.log2(np.abs(x).max(axis=1))))
    return {
        "x": (x * scales[:, None]).astype(np.float16),
        "x_scales": (1 / scales).astype(np.float32),
    }


def scaling(n: int) -> np.ndarray:
    return np.array([WEIGHT_SCALE, 1 / WEIGHT_SCALE] * n, np.float32)


def worst_row(result: np.ndarray, expected: np.ndarray) -> float:
    errors = np.linalg.norm(result - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return float(errors.max())


def spread(random: np.random.Generator, n_rows: int, n_columns: int) -> np.ndarray:
    """Rows of very different sizes."""
    x = random.standard_normal((n_rows, n_columns)).astype(np.float32)
    return x * 10.0 ** random.uniform(-4, 6, (n_rows, 1)).astype(np.float32)


def grouped(ids: np.ndarray, n_experts: int) -> dict[str, np.ndarray]:
    """Choices [T, K] in the order of experts, in tiles (expert, first row, rows), one empty."""
    order = np.argsort(ids.reshape(-1), kind="stable").astype(np.int32)
    stops = np.cumsum(np.bincount(ids.reshape(-1), minlength=n_experts))
    starts = np.concatenate([[0], stops])
    tiles = [
        (e, row, min(8 * NT, starts[e + 1] - row))
        for e in range(n_experts)
        for row in range(starts[e], starts[e + 1], 8 * NT)
    ]
    return {"order": order, "tiles": np.array([*tiles, (0, 0, 0)], np.int32)}


@formats
def test_dense_product(type_id: int, random: np.random.Generator) -> None:
    """Rows of x and of weights that no tile divides; for blocks of 32 also a part of a unit."""
    n_out, n_rows = 77, 35
    n_columns = 512 if BLOCK[type_id].n_values == 256 else 288
    packed = random_packed(type_id, n_out, n_columns, random)
    x = spread(random, n_rows, n_columns)
    none = np.zeros(8, np.int32)
    arrays = {
        **halves(x),
        **planes(packed),
        "scaling": scaling(1),
        "order": none,
        "tiles": none,
        "sizes": np.array([n_rows, n_columns, n_out], np.int32),
    }
    shape = (n_rows, n_out)
    out = run(type_id, _PRODUCT, arrays, [("HAS_EXPERTS", False)], (2, 2), shape)
    assert worst_row(out, x.astype(np.float64) @ dense(packed).T) < HALF_PRODUCT


@formats
def test_experts(type_id: int, random: np.random.Generator) -> None:
    """Four experts of which one has no position, one a few and one more than a tile."""
    n_experts, n_hidden, width, n_positions, n_chosen = 4, 40, 256, 45, 2
    gate, up = (random_packed(type_id, n_experts * n_hidden, width, random) for _ in range(2))
    ids = np.stack([np.full(n_positions, 3), np.zeros(n_positions)], axis=1).astype(np.int32)
    ids[:5, 1] = 2  # expert 1 is never chosen
    x = random.standard_normal((n_positions, width)).astype(np.float32)
    weights = random.uniform(0.1, 1, ids.size).astype(np.float32)
    groups = grouped(ids, n_experts)
    order, n_tiles = groups["order"], len(groups["tiles"])
    arrays = {
        **halves(x),
        **planes(gate, "gate_"),
        **planes(up, "up_"),
        "scaling": scaling(2),
        **groups,
        "weights": weights,
        "clamp": np.array([CLAMP], np.float32),
        "sizes": np.array([0, width, n_hidden], np.int32),
    }
    shape = (ids.size, n_hidden)
    hidden = run(type_id, _GATE_UP, arrays, [("K", n_chosen)], (2, n_tiles), shape)
    gates, ups = (dense(part).reshape(n_experts, n_hidden, width) for part in (gate, up))
    rows, experts = x.astype(np.float64)[order // n_chosen], ids.reshape(-1)[order]
    gated = np.minimum(np.einsum("rfc,rc->rf", gates[experts], rows), CLAMP)
    lifted = np.clip(np.einsum("rfc,rc->rf", ups[experts], rows), -CLAMP, CLAMP)
    expected = weights[order][:, None] * gated / (1 + np.exp(-gated)) * lifted
    # The errors of gate and up add up, and a few of the 40 values make most of a row.
    assert worst_row(hidden, expected) < 2 * HALF_PRODUCT

    rows = spread(random, ids.size, width)
    arrays = {
        **halves(rows),
        **planes(gate),
        "scaling": scaling(1),
        **groups,
        "sizes": np.array([ids.size, width, n_hidden], np.int32),
    }
    out = run(type_id, _PRODUCT, arrays, [("HAS_EXPERTS", True)], (1, n_tiles), shape)
    products = np.einsum("rfc,rc->rf", gates[experts], rows.astype(np.float64))
    assert worst_row(out[order], products) < HALF_PRODUCT
