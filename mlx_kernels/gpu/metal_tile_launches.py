"""Launches of the Metal tile product: many positions times packed weights, on simdgroup matrices.

Weights are unpacked to float32 on their way into the product, activations and sums are float32.
"""

from functools import lru_cache

import mlx.core as mx

from mlx_kernels.gpu.constants import on_device, pair, scalar
from mlx_kernels.gpu.grouping import Groups, grouped
from mlx_kernels.gpu.metal_kernels import MetalKernels
from mlx_kernels.gpu.planar_weight import PlanarWeight

TILE_POSITIONS, _TILE_ROWS = 32, 64  # of packed_tile.metal


def tile_product(
    kernels: MetalKernels, x: mx.array, weight: PlanarWeight, groups: Groups | None = None
) -> mx.array:
    """x [R, C] times weight transposed -> [R, N] float32.

    Args:
        weight: [N, C], or [E N, C] with groups.
        groups: Row r of x is multiplied by its expert and becomes row ``order[r]``.
    """
    n_rows, n_columns = x.shape
    n_out = weight.shape[0] // (1 if groups is None else groups.n_experts)
    none = pair(0, 0)
    n_tiles = -(-n_rows // TILE_POSITIONS) if groups is None else groups.tiles.shape[0]
    (out,) = kernels.launch(
        "tile_product",
        weight.type_id,
        [
            *(x, *weight.planes, weight.table, _sizes(n_out, n_columns, n_rows)),
            *((none, none) if groups is None else (groups.order, groups.tiles)),
        ],
        {"HAS_EXPERTS": groups is not None},
        (-(-n_out // _TILE_ROWS), n_tiles),
        [(n_rows, n_out)],
    )
    return out


def tile_gate_up(
    kernels: MetalKernels,
    x: mx.array,
    gate: PlanarWeight,
    up: PlanarWeight,
    groups: Groups,
    weights: mx.array,
    clamp: float | None,
) -> mx.array:
    """weights * swiglu of each choice -> [T K, F] in the order of ``groups``.

    Args:
        x: [T, C].
        gate, up: [E F, C] of one type.
        groups: The choices, expert by expert, in tiles of ``TILE_POSITIONS``.
        weights: [T, K], of each choice.
    """
    n_hidden, n_columns = gate.shape[0] // groups.n_experts, gate.shape[1]
    (out,) = kernels.launch(
        "tile_gate_up",
        gate.type_id,
        [
            *(x, *gate.planes, *up.planes, gate.table, pair(n_hidden, n_columns)),
            *(groups.order, groups.tiles, weights, scalar(clamp or 0.0)),
        ],
        {"K": weights.shape[1], "HAS_CLAMP": clamp is not None},
        (-(-n_hidden // (_TILE_ROWS // 2)), groups.tiles.shape[0]),
        [(groups.order.shape[0], n_hidden)],
    )
    return out


def experts_in_tiles(
    kernels: MetalKernels,
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
    groups = grouped(expert_ids, down.shape[0] // x.shape[1], TILE_POSITIONS)
    hidden = tile_gate_up(kernels, x, gate, up, groups, expert_weights, clamp)
    by_choice = tile_product(kernels, hidden, down, groups)
    return by_choice.reshape(n_positions, n_chosen, -1).sum(axis=1)


@lru_cache(maxsize=256)
def _sizes(*values: int) -> mx.array:
    return on_device(values, mx.int32)
