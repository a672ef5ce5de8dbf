"""Cases of the functions that DeepSeek V4's kernels share, at every edge of their arguments."""

from collections.abc import Callable
from importlib import resources
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.cpu.deepseek_v4 import rounding
from mlx_kernels.gpu.metal_cases.case import Case, Comparison, Run


def _text(file: str) -> str:
    path = resources.files("mlx_kernels.gpu").joinpath("bodies", f"{file}.metal")
    return path.read_text(encoding="utf-8")


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
        header=_text(file),
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
    """Every code of FP8 and FP4, the ties between two, and blocks whose largest is at an edge.

    Values above the largest are cut. A launch has values of one order of magnitude.
    """
    eighths = np.arange(8, 16) / 8
    codes8 = np.concatenate([np.arange(8) / 512, *(eighths * 2.0**e for e in range(-6, 9))])
    codes = (codes8[codes8 <= 448], 448), (np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6]), 6)
    blocks = []
    for scale in np.float32([1, 2.0**-20, 2.0**30]):
        values, sizes = [], []
        for known, top in codes:
            x = _with_neighbours(np.concatenate([known, (known[1:] + known[:-1]) / 2]))
            # Just above the largest code the scale doubles.
            for largest in (top, top * (1 + 2.0**-23), top / 2, top * 0.7):
                values.append(x * scale)
                sizes.append(np.full(len(x), np.float32(largest) * scale))
        blocks.append((np.concatenate(values), np.concatenate(sizes)))
    # Below the floor of FP8, and of FP4.
    for largest in np.float32([1e-6, 3e-38]):
        x = largest * np.linspace(0.4, 1, 50, dtype=np.float32)
        blocks.append((np.concatenate([x, -x]), np.full(100, largest)))
    comparisons = []
    body = "  y[i] = through_fp8(a[i], b[i]);\n  z[i] = through_fp4(a[i], b[i]);\n"
    for x, largest in blocks:
        results = _apply(make, "v4_rounding", body, (x, largest), 2)
        for result, floor, top, to_code in (
            (results[0], np.float32(1e-4), np.float32(448), rounding.to_e4m3),
            (results[1], np.float32(6 * 2.0**-126), np.float32(6), rounding.to_e2m1),
        ):
            scale = rounding.power_of_two_at_least(np.maximum(largest, floor) / top)
            wanted = to_code(np.clip(x / scale, -top, top)) * scale
            if wanted.any():
                comparisons.append(Comparison(result, wanted, 0))
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


def _order(make: Callable[..., Any], random: np.random.Generator) -> Run:
    """Scores as integers, in two halves: both zeros are one, smaller sizes below are larger."""
    x = np.concatenate([[0, 2.0**-126, 1, 1.5, 2.0**127, np.inf], random.standard_normal(20)])
    x = np.float32(np.concatenate([x, -x]))
    body = "  const uint32_t key = order_of(a[i]);\n  y[i] = float(key >> 16);\n"
    body += "  z[i] = float(key & 0xffffu);\n"
    results = _apply(make, "v4_order", body, (x,), 2)
    bits = (x + np.float32(0)).view(np.uint32)  # -0 + 0 is 0
    wanted = np.where(x < 0, ~bits, bits | np.uint32(1 << 31))
    return Run(
        [Comparison(results[0], wanted >> 16, 0), Comparison(results[1], wanted & 0xFFFF, 0)]
    )


def pooling_case(ratio: int, position: int) -> Case:
    """A row of 16 channels. In some of them one member, each in its turn, has a score that would
    overflow an exponential. Whatever is not among the members is infinite."""
    width = 16
    n_members, w = (8, 2 * width) if ratio == 4 else (ratio, width)
    capacity = n_members + 2

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        at = np.arange(position - n_members + 1, position + 1)
        at = at[at >= 0]
        values, scores = random.standard_normal((2, len(at), width)).astype(np.float32)
        for channel in range(0, width, 2):
            scores[channel * len(at) // width, channel] += 100
        scores[0, 0] += 100
        scores[-1, 2] += 300
        frontier = np.full((capacity, 2 * w), np.inf, np.float32)
        products, ape = np.full(2 * w, np.inf, np.float32), np.full((ratio, w), np.inf, np.float32)
        added = random.standard_normal(width).astype(np.float32)
        for p, value, score in zip(at, values, scores, strict=True):
            # At R = 4 the group before gives the first half of its channels.
            first = width if ratio == 4 and p > position - 4 else 0
            row = products if p == position else frontier[p % capacity]
            row[first : first + width], row[w + first : w + first + width] = value, score
            if p == position:
                ape[p % ratio, first : first + width] = added
        scores[-1] += added
        kernel = make(
            name="ds4_functions_of_v4_pooling",
            input_names=["frontier", "products", "ape", "n"],
            output_names=["y"],
            header=_text("v4_pooling"),
            source="const int i = int(thread_position_in_grid.x);\n"
            "if (i < n[0])\n"
            "  y[i] = pooled_of<R>(frontier, products, ape, n[1], n[2], n[0], n[3], i);\n",
        )
        (pooled,) = kernel(
            inputs=[
                *(mx.array(a) for a in (frontier, products, ape)),
                mx.array([width, capacity, w, position] * 2, mx.int32),
            ],
            template=[("R", ratio)],
            grid=(32, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[(width,)],
            output_dtypes=[mx.float32],
        )
        shares = np.exp(np.float64(scores) - scores.max(0))
        return Run([Comparison(pooled, (shares * values).sum(0) / shares.sum(0), 1e-5)])

    return Case(f"v4 functions: pooling, ratio {ratio}, position {position}", run)


CASES = (
    Case("v4 functions: rounding", _rounding),
    Case("v4 functions: gates", _gates),
    Case("v4 functions: order", _order),
    pooling_case(4, 3),
    pooling_case(4, 27),
    pooling_case(128, 127),
)
