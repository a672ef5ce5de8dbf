"""Cases of the functions that DeepSeek V4's kernels share, at every edge of their arguments."""

from collections.abc import Callable
from importlib import resources
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.cpu.deepseek_v4 import rounding
from mlx_kernels.gpu.metal_cases.case import Case, Comparison, Run


def _apply(
    make: Callable[..., Any], file: str, body: str, values: tuple[np.ndarray, ...], n_outputs: int
) -> list[mx.array]:
    """Run ``body`` for each element i of the vectors a, b, c."""
    n = len(values[0])
    names = ["a", "b", "c"][: len(values)]
    outputs = ["y", "z"][:n_outputs]
    kernel = make(
        name=f"ds4_functions_of_{file}",
        input_names=[*names, "n"],
        output_names=outputs,
        header=resources.files("mlx_kernels.gpu")
        .joinpath("bodies", f"{file}.metal")
        .read_text(encoding="utf-8"),
        source="const uint i = thread_position_in_grid.x;\nif (int(i) < n[0]) {\n" + body + "}\n",
    )
    return kernel(
        inputs=[*(mx.array(v) for v in values), mx.array([n] * 8, mx.int32)],
        grid=(-(-n // 32) * 32, 1, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[(n,)] * n_outputs,
        output_dtypes=[mx.float32] * n_outputs,
    )


def _with_neighbours(x: np.ndarray) -> np.ndarray:
    """float32 values, and those next to each, of both signs."""
    x = np.float32(x)
    x = np.concatenate([x, np.nextafter(x, np.float32(np.inf)), np.nextafter(x, np.float32(0))])
    return np.concatenate([x, -x])


def _rounding(make: Callable[..., Any], random: np.random.Generator) -> Run:
    """Every code of FP8 and FP4, the ties between two, and blocks whose largest is at an edge."""
    eighths = np.arange(8, 16) / 8
    codes8 = np.concatenate([np.arange(8) / 512, *(eighths * 2.0**e for e in range(-6, 9))])
    codes8 = codes8[codes8 <= 448]
    codes4 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    values, sizes = [], []
    for codes, top in ((codes8, 448), (codes4, 6)):
        ties = (codes[1:] + codes[:-1]) / 2
        x = _with_neighbours(np.concatenate([codes, ties]))
        for scale in np.float32([1, 2.0**-20, 2.0**30]):
            # Just above the largest code the scale doubles; the floors lie above the last two.
            for largest in (top, top * (1 + 2.0**-23), top / 2, top * 0.7, 1e-6, 1e-38):
                values.append(x[np.abs(x) <= np.float32(largest)] * scale)
                sizes.append(np.full(len(values[-1]), np.float32(largest) * scale))
    x, largest = np.concatenate(values), np.concatenate(sizes)
    body = "  y[i] = through_fp8(a[i], b[i]);\n  z[i] = through_fp4(a[i], b[i]);\n"
    results = _apply(make, "v4_rounding", body, (x, largest), 2)
    comparisons = []
    for result, floor, top, to_code in (
        (results[0], np.float32(1e-4), np.float32(448), rounding.to_e4m3),
        (results[1], np.float32(6 * 2.0**-126), np.float32(6), rounding.to_e2m1),
    ):
        scale = rounding.power_of_two_at_least(np.maximum(largest, floor) / top)
        comparisons.append(Comparison(result, to_code(np.clip(x / scale, -top, top)) * scale, 0))
    return Run(comparisons)


def _gates(make: Callable[..., Any], random: np.random.Generator) -> Run:
    """SwiGLU on both sides of its limits, and affinities where one of two formulas takes over."""
    z = np.concatenate([np.linspace(-30, 30, 61), [19.999, 20.001, 20.5, -16.6, -16.7, -17, 1e-4]])
    gate = np.resize([-40, -1.5, 0, 0.5, 2, 2.5, 7], len(z))
    up = np.resize([-7, -2, -1, 0.25, 1.5, 2, 3, 9, 0.5], len(z))
    a, b, c = (np.float32(v) for v in (z, gate, up))
    body = "  y[i] = affinity_of(a[i]);\n  z[i] = swiglu_of(b[i], c[i], 2.0f);\n"
    results = _apply(make, "v4_gates", body, (a, b, c), 2)
    z, gate, up = (np.float64(v) for v in (a, b, c))
    affinity = np.sqrt(np.log1p(np.exp(z)))
    gate = np.minimum(gate, 2)
    swiglu = gate / (1 + np.exp(-gate)) * np.clip(up, -2, 2)
    return Run(
        [
            Comparison(results[0], affinity, 1e-6 * affinity),
            Comparison(results[1], swiglu, 1e-6 * np.abs(swiglu) + 1e-20),
        ]
    )


CASES = (Case("v4 functions: rounding", _rounding), Case("v4 functions: gates", _gates))
