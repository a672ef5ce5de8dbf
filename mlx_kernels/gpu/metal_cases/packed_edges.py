"""Cases at the edges of the kernels on packed weights: more steps than lanes, a last row alone."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import BLOCK
from mlx_kernels.gpu.metal_cases.case import Case, Comparison, Run, Traffic
from mlx_kernels.gpu.metal_cases.packed_products import (
    FLOAT32_SUM,
    dense_gate_up_case,
    dequantize_case,
    held,
    normal,
    plane_bytes,
)
from mlx_kernels.gpu.metal_kernels import MetalKernels, metal_name
from mlx_kernels.gpu.metal_launches import down


def down_case(type_id: int, n_out: int, n_hidden: int) -> Case:
    """The last products of experts, the last expert's included; an odd number of rows."""

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        n_experts, ids = 3, np.array([[2, 0], [1, 2]], np.int32)
        weight, values = held(type_id, n_experts * n_out, n_hidden, random)
        hidden = normal(random, *ids.shape, n_hidden)
        y = down(MetalKernels(make), mx.array(hidden), weight, n_out, mx.array(ids))
        chosen = values.reshape(n_experts, n_out, n_hidden)[ids]
        expected = np.einsum("tkcf,tkf->tc", chosen, hidden.astype(np.float64))
        sizes = np.einsum("tkcf,tkf->tc", np.abs(chosen), np.abs(hidden))
        comparison = Comparison(y, expected, FLOAT32_SUM * (sizes + np.abs(expected)))
        least = plane_bytes(type_id, ids.size * n_out * n_hidden) | {"out": 4 * expected.size}
        traffic = Traffic(least, ("hidden", "table", "sizes", "ids"))
        return Run([comparison], {metal_name("down", type_id): traffic})

    return Case(f"down {BLOCK[type_id].name}: {n_hidden} to {n_out}", run)


CASES = (
    down_case(8, 37, 1056),
    down_case(16, 13, 512),  # the one format with a table
    dense_gate_up_case(8, 37, 1056),
    dequantize_case(1, 37, 176),
)
