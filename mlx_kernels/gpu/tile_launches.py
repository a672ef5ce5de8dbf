"""Launches of the tile product: many positions times packed weights, on tensor cores.

Activations are halves, each row times a power of two of its own, and so are the weights on their
way into the product, by a power of two of the matrix: nothing is too small or too large for 5 bits
of exponent. Sums are float32.
"""

from functools import lru_cache

import mlx.core as mx

from mlx_kernels.gpu.constants import on_device, scalar
from mlx_kernels.gpu.grouping import Groups, grouped
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.planar_weight import PlanarWeight

_WARPS = 4  # of a block: 64 rows of gate and up, 128 rows of a single matrix
_TILE_ROWS = (64, 32, 16)  # rows of x of a tile, 8 * NT
# Blocks of a tile read the weights once for all of its rows: rows that an expert gets on average,
# from which the larger tile is faster on an NVIDIA H200 (README.md).
_FROM_ROWS = (20, 8, 0)
_TABLE_BYTES, _STEPS = 2048, 8
_HALVES_SHARED = 4 * 32


def tile_rows(n_rows: int, n_experts: int) -> int:
    """Rows of x that a tile should have when ``n_rows`` are spread over experts."""
    average = n_rows / n_experts
    return next(r for r, least in zip(_TILE_ROWS, _FROM_ROWS, strict=True) if average >= least)


def halves(kernels: CudaKernels, x: mx.array) -> tuple[mx.array, mx.array]:
    """x [R, C] float32 as float16, and the factor [R] that each row is to be multiplied by."""
    n_rows, n_columns = x.shape
    out, scales = kernels.launch_all(
        "halves",
        None,
        [x, _integers(n_rows, n_columns)],
        {},
        (n_rows, 1),
        [((n_rows, n_columns), mx.float16), ((n_rows,), mx.float32)],
        shared_bytes=_HALVES_SHARED,
    )
    return out, scales


def tile_gate_up(
    kernels: CudaKernels,
    x: tuple[mx.array, mx.array],
    gate: PlanarWeight,
    up: PlanarWeight,
    groups: Groups,
    weights: mx.array,
    clamp: float | None,
) -> mx.array:
    """weights * swiglu of each choice -> [T K, F] in the order of ``groups``.

    Args:
        x: ``halves`` of [T, C].
        gate, up: [E F, C] of one type; with scaling.
        groups: The choices, expert by expert.
        weights: [T, K], of each choice.
    """
    n_hidden, n_columns = gate.shape[0] // groups.n_experts, gate.shape[1]
    n_tile = groups.tile_rows // 8
    return kernels.launch(
        "tile_gate_up",
        gate.type_id,
        [
            *(*x, *gate.planes, *up.planes, gate.table, gate.scaling, up.scaling),
            *(_integers(n_hidden, n_columns), groups.order, groups.tiles, weights),
            scalar(float("inf") if clamp is None else clamp),
        ],
        {"K": weights.shape[1], "NT": n_tile, "WARPS": _WARPS},
        (-(-n_hidden // (16 * _WARPS)), groups.tiles.shape[0]),
        (groups.order.shape[0], n_hidden),
        shared_bytes=_shared_bytes(n_tile),
        n_threads=32 * _WARPS,
    )


def tile_product(
    kernels: CudaKernels,
    x: tuple[mx.array, mx.array],
    weight: PlanarWeight,
    groups: Groups | None = None,
    rows_a_tile: int = 64,
) -> mx.array:
    """x times weight transposed -> [R, N] float32.

    Args:
        x: ``halves`` of [R, C]; with groups in their order.
        weight: [N, C], or [E N, C] with groups; with scaling.
        groups: Row r of x is multiplied by its expert and becomes row ``order[r]``.
        rows_a_tile: Without groups, 16, 32 or 64.
    """
    n_rows, n_columns = x[0].shape
    n_out = weight.shape[0] // (1 if groups is None else groups.n_experts)
    rows_a_tile = rows_a_tile if groups is None else groups.tile_rows
    n_tile = rows_a_tile // 8
    none = _integers(0, 0, 0)
    return kernels.launch(
        "tile_product",
        weight.type_id,
        [
            *(*x, *weight.planes, weight.table, weight.scaling),
            _integers(n_out, n_columns, n_rows),
            *((none, none) if groups is None else (groups.order, groups.tiles)),
        ],
        {"NT": n_tile, "WARPS": _WARPS, "HAS_EXPERTS": groups is not None},
        (
            -(-n_out // (32 * _WARPS)),
            -(-n_rows // rows_a_tile) if groups is None else groups.tiles.shape[0],
        ),
        (n_rows, n_out),
        shared_bytes=_shared_bytes(n_tile),
        n_threads=32 * _WARPS,
    )


def experts_in_tiles(
    kernels: CudaKernels,
    x: mx.array,
    gate: PlanarWeight,
    up: PlanarWeight,
    down: PlanarWeight,
    expert_ids: mx.array,
    expert_weights: mx.array,
    clamp: float | None = None,
) -> mx.array:
    """Weighted sum of the chosen experts' outputs of many positions x [T, C] -> [T, C]."""
    n_positions, n_chosen = expert_ids.shape
    n_experts = down.shape[0] // x.shape[1]
    n_rows = tile_rows(n_positions * n_chosen, n_experts)
    groups = grouped(expert_ids, n_experts, n_rows)
    hidden = tile_gate_up(kernels, halves(kernels, x), gate, up, groups, expert_weights, clamp)
    by_choice = tile_product(kernels, halves(kernels, hidden), down, groups)
    return by_choice.reshape(n_positions, n_chosen, -1).sum(axis=1)


def _shared_bytes(n_tile: int) -> int:
    """As in ``matmul_tile.cu``: table, rows of x of the tile, two stages of 256 columns of x."""
    return _TABLE_BYTES + n_tile * 8 * 4 + 2 * _STEPS * (n_tile * 8 * 64 + 16)


@lru_cache(maxsize=1024)
def _integers(*values: int) -> mx.array:
    return on_device(values, mx.int32)
