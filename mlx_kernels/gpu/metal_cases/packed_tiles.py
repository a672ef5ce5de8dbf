"""Cases of the tile product of packed weights: dense, and grouped by expert."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import BLOCK
from mlx_kernels.gpu.grouping import grouped
from mlx_kernels.gpu.metal_cases.case import Case, Comparison, Run
from mlx_kernels.gpu.metal_cases.packed_products import FLOAT32_SUM, held, normal, swiglu_and_bound
from mlx_kernels.gpu.metal_kernels import MetalKernels
from mlx_kernels.gpu.metal_tile_launches import TILE_POSITIONS, tile_gate_up, tile_product


def product_case(type_id: int, n_rows: int, n_columns: int, n_positions: int) -> Case:
    """Many positions times one matrix."""

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        weight, values = held(type_id, n_rows, n_columns, random)
        x = normal(random, n_positions, n_columns)
        y = tile_product(MetalKernels(make), mx.array(x), weight)
        wide = x.astype(np.float64)
        bound = 2 * FLOAT32_SUM * (np.abs(wide) @ np.abs(values).T)
        return Run([Comparison(y, wide @ values.T, bound)])

    name = BLOCK[type_id].name
    return Case(f"tile_product {name}: {n_rows} x {n_columns}, {n_positions} positions", run)


def experts_case(
    type_id: int, n_hidden: int, width: int, clamp: float | None, down_type: int
) -> Case:
    """40 positions with two of four experts, which get none, one, 39 and 40 of them."""
    n_experts, n_positions, n_chosen = 4, 40, 2

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        gate, gates = held(type_id, n_experts * n_hidden, width, random)
        up, ups = held(type_id, n_experts * n_hidden, width, random)
        last, downs = held(down_type, n_experts * width, n_hidden, random)
        gates, ups = (m.reshape(n_experts, n_hidden, width) for m in (gates, ups))
        downs = downs.reshape(n_experts, width, n_hidden)
        second = np.where(np.arange(n_positions) < 1, 0, 3)
        ids = np.stack([np.full(n_positions, 1), second], axis=1).astype(np.int32)
        factors = random.uniform(0.1, 2, ids.shape).astype(np.float32)
        x = normal(random, n_positions, width)
        kernels, groups = MetalKernels(make), grouped(mx.array(ids), n_experts, TILE_POSITIONS)
        hidden = tile_gate_up(kernels, mx.array(x), gate, up, groups, mx.array(factors), clamp)
        expected, bound = swiglu_and_bound(gates[ids], ups[ids], x, factors, clamp)
        order = np.array(groups.order)
        flat = [part.reshape(n_positions * n_chosen, n_hidden)[order] for part in (expected, bound)]
        first = Comparison(hidden, flat[0], 2 * flat[1])

        y = tile_product(kernels, hidden, last, groups)
        there = np.array(hidden).astype(np.float64)[np.argsort(order)]
        chosen = downs[ids.reshape(-1)]
        summed = np.einsum("pcf,pf->pc", chosen, there)
        sizes = np.einsum("pcf,pf->pc", np.abs(chosen), np.abs(there))
        return Run([first, Comparison(y, summed, 2 * FLOAT32_SUM * sizes)])

    name = f"tiles of experts {BLOCK[type_id].name} and {BLOCK[down_type].name}"
    return Case(name if clamp is None else f"{name}, clamp {clamp}", run)


# Rows and positions past a whole tile; a table, an offset, and widths that are no multiple of 32.
CASES = (
    product_case(8, 70, 96, 33),
    product_case(1, 9, 80, 9),
    product_case(16, 9, 256, 5),
    experts_case(16, 256, 256, 0.5, 10),
    experts_case(39, 32, 64, None, 39),
    experts_case(1, 48, 80, None, 1),
)
