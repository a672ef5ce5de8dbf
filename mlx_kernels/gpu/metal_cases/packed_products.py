"""Cases of the decode kernels on packed weights: every format, odd rows, norm, bias, residual."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import BLOCK, dequantize
from mlx_kernels.blocks.random_packed import random_packed
from mlx_kernels.gpu.metal_cases.case import Case, Comparison, Run, Traffic
from mlx_kernels.gpu.metal_kernels import METAL_FORMATS, MetalKernels, metal_name
from mlx_kernels.gpu.metal_launches import dequantized, down, gate_up, matvec
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
    return PlanarWeight.of([packed], METAL_FORMATS), values.astype(np.float64)


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
            sizes = np.abs(wide) @ np.abs(values).T + np.abs(bias) + np.abs(residual)
            least["residual"] = residual.nbytes
            cached += ["norm", "eps", "bias"]
        else:
            y = matvec(kernels, mx.array(x), weight)
            expected, sizes = wide @ values.T, np.abs(wide) @ np.abs(values).T
        bound = FLOAT32_SUM * sizes
        traffic = Traffic(least, tuple(cached))
        return Run([Comparison(y, expected, bound)], {metal_name("matvec", type_id): traffic})

    extras = " with norm, bias, residual" if has_extras else ""
    positions = f"{n_positions} position{'s' if n_positions > 1 else ''}"
    return Case(f"matvec {BLOCK[type_id].name}: {n_rows} x {n_columns}, {positions}{extras}", run)


def experts_case(
    type_id: int, n_hidden: int, width: int, clamp: float | None, down_type: int
) -> Case:
    """Two positions with three of five experts each: gate, up and SwiGLU, then the weighted sum."""
    n_experts, n_positions = 5, 2

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        gate, gates = held(type_id, n_experts * n_hidden, width, random)
        up, ups = held(type_id, n_experts * n_hidden, width, random)
        last, downs = held(down_type, n_experts * width, n_hidden, random)
        gates, ups = (m.reshape(n_experts, n_hidden, width) for m in (gates, ups))
        downs = downs.reshape(n_experts, width, n_hidden)
        ids = np.array([[4, 0, 2], [1, 4, 3]], np.int32)
        factors = random.uniform(0.1, 2, ids.shape).astype(np.float32)
        x = normal(random, n_positions, width)
        kernels, chosen = MetalKernels(make), mx.array(ids)
        hidden = gate_up(
            *(kernels, mx.array(x), gate, up, n_hidden, chosen, mx.array(factors)), clamp=clamp
        )
        first = Comparison(hidden, *swiglu_and_bound(gates[ids], ups[ids], x, factors, clamp))

        y = down(kernels, hidden, last, width, chosen)
        there = np.array(hidden).astype(np.float64)
        summed = np.einsum("tkcf,tkf->tc", downs[ids], there)
        sizes = np.einsum("tkcf,tkf->tc", np.abs(downs[ids]), np.abs(there))
        second = Comparison(y, summed, FLOAT32_SUM * (sizes + np.abs(summed)))

        n_values = ids.size * n_hidden * width
        least = plane_bytes(type_id, n_values, "gate_") | plane_bytes(type_id, n_values, "up_")
        of_gate_up = Traffic(
            least | {"out": 4 * ids.size * n_hidden},
            ("x", "table", "sizes", "ids", "weights", "norm", "eps", "clamp"),
        )
        of_down = Traffic(
            plane_bytes(down_type, n_values) | {"out": 4 * n_positions * width},
            ("hidden", "table", "sizes", "ids"),
        )
        traffic = {
            metal_name("gate_up", type_id): of_gate_up,
            metal_name("down", down_type): of_down,
        }
        return Run([first, second], traffic)

    name = f"experts {BLOCK[type_id].name} and {BLOCK[down_type].name}: {width} to {n_hidden}"
    return Case(name if clamp is None else f"{name}, clamp {clamp}", run)


def swiglu_and_bound(
    gates: np.ndarray, ups: np.ndarray, x: np.ndarray, factors: np.ndarray, clamp: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Gates and ups [T, K, F, C], x [T, C], factors [T, K] -> SwiGLU [T, K, F], and its bound."""
    x = x.astype(np.float64)
    gated, lifted = (np.einsum("tkfc,tc->tkf", part, x) for part in (gates, ups))
    sizes = [np.einsum("tkfc,tc->tkf", np.abs(part), np.abs(x)) for part in (gates, ups)]
    if clamp is not None:
        gated, lifted = np.minimum(gated, clamp), np.clip(lifted, -clamp, clamp)
    silu = gated / (1 + np.exp(-gated))
    # The slope of SiLU is at most 1.1.
    bound = 1.1 * sizes[0] * np.abs(lifted) + np.abs(silu) * sizes[1] + np.abs(silu * lifted)
    weights = factors[..., None]
    return weights * silu * lifted, FLOAT32_SUM * weights * bound


def dense_gate_up_case(type_id: int, n_hidden: int, n_columns: int) -> Case:
    """A dense layer with its norm: one "expert", whose gate and up are halves of one matrix."""

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        both, values = held(type_id, 2 * n_hidden, n_columns, random)
        x = normal(random, 1, n_columns)
        norm = random.uniform(0.5, 2, n_columns).astype(np.float32)
        halves = both.rows(0, n_hidden), both.rows(n_hidden, 2 * n_hidden)
        ids, ones = mx.zeros((1, 1), mx.int32), mx.ones((1, 1))
        hidden = gate_up(
            *(MetalKernels(make), mx.array(x), *halves, n_hidden, ids, ones, mx.array(norm), _EPS)
        )
        wide = x.astype(np.float64)
        wide *= norm / np.sqrt((wide**2).mean() + _EPS)
        gates, ups = np.split(values[None, None], 2, axis=2)
        expected, bound = swiglu_and_bound(gates, ups, wide, np.ones((1, 1)), None)
        comparison = Comparison(hidden, expected, bound)
        n_values = n_hidden * n_columns
        least = plane_bytes(type_id, n_values, "gate_") | plane_bytes(type_id, n_values, "up_")
        cached = ("x", "table", "sizes", "ids", "weights", "norm", "eps", "clamp")
        traffic = Traffic(least | {"out": 4 * n_hidden}, cached)
        return Run([comparison], {metal_name("gate_up", type_id): traffic})

    return Case(f"gate_up {BLOCK[type_id].name} with norm: {n_columns} to {n_hidden}", run)


def dequantize_case(type_id: int, n_rows: int, n_columns: int) -> Case:
    """A whole matrix to float16, divided by 32."""

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        weight, values = held(type_id, n_rows, n_columns, random)
        halves = dequantized(MetalKernels(make), weight)
        # Rounded once, after float32 steps: half a unit of the last of 11 bits, or of the smallest.
        bound = 1.001 * (np.abs(values / 32) * 2**-11 + 2**-25)
        least = plane_bytes(type_id, n_rows * n_columns) | {"out": 2 * n_rows * n_columns}
        traffic = {metal_name("dequantize", type_id): Traffic(least, ("table", "sizes"))}
        return Run([Comparison(halves, values / 32, bound)], traffic)

    return Case(f"dequantize {BLOCK[type_id].name}: {n_rows} x {n_columns}", run)


# Each format once; each format in each kernel: tests/metal/test_packed_*.py, the slow ones.
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
    matvec_case(2, 9, 1120, 1, False),  # Q4_0
    matvec_case(3, 9, 1120, 2, False),  # Q4_1
    matvec_case(6, 9, 1120, 1, False),  # Q5_0
    matvec_case(7, 9, 1120, 1, True),  # Q5_1
    matvec_case(11, 17, 2304, 1, False),  # Q3_K
    experts_case(16, 256, 512, 0.5, 10),  # IQ2_XXS and Q2_K: DeepSeek V4 Flash
    experts_case(39, 96, 160, None, 39),
    dense_gate_up_case(12, 37, 512),
    dequantize_case(1, 5, 176),
    dequantize_case(8, 7, 160),
    dequantize_case(11, 5, 512),
    dequantize_case(13, 3, 768),
    dequantize_case(14, 3, 512),
    dequantize_case(16, 5, 512),
    dequantize_case(39, 7, 160),
)
