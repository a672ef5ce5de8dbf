"""Cases of the decode kernels on packed weights: every format, odd rows, norm, bias, residual."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import BLOCK, dequantize
from mlx_kernels.blocks.random_packed import random_packed
from mlx_kernels.gpu.metal_cases.case import Case, Comparison, Run, Traffic
from mlx_kernels.gpu.metal_kernels import MetalKernels, metal_name
from mlx_kernels.gpu.metal_launches import matvec
from mlx_kernels.gpu.planar import LAYOUT, PLANES
from mlx_kernels.gpu.planar_weight import PlanarWeight

# Float32: a lane adds some ten products one after the other, the simdgroup adds in five steps, and
# formats with offsets subtract two sums of that size. Of the sum of all products' sizes.
FLOAT32_SUM = 2e-6
_EPS = 1e-3


def held(
    type_id: int, n_rows: int, n_columns: int, random: np.random.Generator
) -> tuple[PlanarWeight, np.ndarray]:
    """A random matrix on the device, and its values in float64."""
    packed = random_packed(type_id, n_rows, n_columns, random)
    values = dequantize(packed.type_id, packed.raw, packed.shape)
    return PlanarWeight.of([packed]), values.astype(np.float64)


def plane_bytes(type_id: int, n_values: int, prefix: str = "") -> dict[str, int]:
    """The bytes that a kernel needs of each plane, to read so many weights."""
    n_blocks = n_values // BLOCK[type_id].n_values
    spans = zip(PLANES, LAYOUT[type_id], strict=True)
    return {prefix + name: n_blocks * (stop - start) for name, (start, stop) in spans if stop}


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Values of size one, float32."""
    return random.standard_normal(shape, np.float32)


def matvec_case(
    type_id: int, n_rows: int, n_columns: int, n_positions: int, has_extras: bool
) -> Case:
    """Positions times a matrix; the extras are norm, bias and residual."""

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        weight, values = held(type_id, n_rows, n_columns, random)
        x = normal(random, n_positions, n_columns)
        wide = x.astype(np.float64)
        kernels = MetalKernels(make)
        least = plane_bytes(type_id, n_rows * n_columns)
        least["out"] = 4 * n_positions * n_rows
        cached = ["x", "table", "sizes", "x_shape"]
        if has_extras:
            norm = random.uniform(0.5, 2, n_columns).astype(np.float32)
            bias, residual = normal(random, n_rows), normal(random, n_positions, n_rows)
            added = mx.array(bias), mx.array(residual)
            y = matvec(kernels, mx.array(x), weight, mx.array(norm), _EPS, *added)
            wide *= norm / np.sqrt((wide**2).mean(axis=1, keepdims=True) + _EPS)
            expected = wide @ values.T + bias + residual
            least["residual"] = residual.nbytes
            cached += ["norm", "eps", "bias"]
        else:
            y = matvec(kernels, mx.array(x), weight)
            expected = wide @ values.T
        bound = FLOAT32_SUM * (np.abs(wide) @ np.abs(values).T + np.abs(expected))
        traffic = Traffic(least, tuple(cached))
        return Run([Comparison(y, expected, bound)], {metal_name("matvec", type_id): traffic})

    extras = " with norm, bias, residual" if has_extras else ""
    positions = f"{n_positions} position{'s' if n_positions > 1 else ''}"
    return Case(f"matvec {BLOCK[type_id].name}: {n_rows} x {n_columns}, {positions}{extras}", run)


# Fewer steps than lanes and an odd number of them; a last simdgroup without all of its rows.
CASES = (
    matvec_case(8, 11, 1312, 3, True),  # Q8_0
    matvec_case(1, 9, 176, 1, True),  # F16
    matvec_case(10, 17, 2304, 1, False),  # Q2_K
    matvec_case(12, 9, 1280, 2, True),  # Q4_K
    matvec_case(13, 9, 768, 1, False),  # Q5_K
    matvec_case(14, 9, 1280, 5, False),  # Q6_K
    matvec_case(16, 17, 2304, 1, True),  # IQ2_XXS
    matvec_case(39, 9, 1120, 8, False),  # MXFP4
)
