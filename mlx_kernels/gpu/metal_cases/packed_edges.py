"""Cases at the edges of the kernels on packed weights: more steps than lanes, a last row alone."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import BLOCK, dequantize
from mlx_kernels.blocks.random_packed import random_packed
from mlx_kernels.gpu.metal_cases.case import Case, Comparison, Run, Traffic
from mlx_kernels.gpu.metal_cases.packed_products import (
    FLOAT32_SUM,
    dense_gate_up_case,
    dequantize_case,
    held,
    normal,
    plane_bytes,
)
from mlx_kernels.gpu.metal_kernels import METAL_FORMATS, MetalKernels, metal_name
from mlx_kernels.gpu.metal_launches import down, matvec
from mlx_kernels.gpu.planar_weight import PlanarWeight

_MXFP4 = 39


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


def smallest_scales_case() -> Case:
    """MXFP4's three smallest exponents: scales 2^-128 and 2^-127 are subnormal, 2^-126 is not."""
    n_rows, n_columns = 9, 64

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        packed = random_packed(_MXFP4, n_rows, n_columns, random)
        exponents = np.arange(n_rows) % 3
        packed.raw.reshape(n_rows, -1, BLOCK[_MXFP4].n_bytes)[..., 0] = exponents[:, None]
        values = dequantize(_MXFP4, packed.raw, packed.shape).astype(np.float64)
        x = normal(random, 1, n_columns) * np.float32(2.0**100)
        weight = PlanarWeight.of([packed], METAL_FORMATS)
        y = matvec(MetalKernels(make), mx.array(x), weight)
        expected = x.astype(np.float64) @ values.T
        # A GPU may take a subnormal number for zero: the whole row then is.
        sizes = np.abs(x).astype(np.float64) @ np.abs(values).T
        bound = np.where(exponents < 2, np.abs(expected), 0) + FLOAT32_SUM * sizes
        return Run([Comparison(y, expected, bound)])

    return Case("matvec MXFP4: the smallest scales", run)


CASES = (
    down_case(8, 37, 1056),
    down_case(16, 13, 512),  # the one format with a table
    dense_gate_up_case(8, 37, 1056),
    dequantize_case(1, 37, 176),
    smallest_scales_case(),
)
