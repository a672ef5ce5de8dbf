"""Cases of the decode kernels of DeepSeek V4: a position through a layer, beside the cpu world."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.blocks.random_packed import random_packed
from mlx_kernels.cpu.operations import CpuOps
from mlx_kernels.deepseek_v4_ops import (
    AttentionWeights,
    CompressorWeights,
    FeedForwardWeights,
    HyperWeights,
    Layer,
    NetworkShape,
)
from mlx_kernels.gpu.metal_cases.case import Case, Comparison, Run, Traffic
from mlx_kernels.gpu.metal_kernels import MetalKernels
from mlx_kernels.gpu.operations import MlxOps

_Q8_0, _F16 = 8, 1
_N_TOKENS, _MAX_TOKENS = 5, 256
# Small, and odd where the kernels allow it: more heads than a group of the attention has, experts
# that fill no simdgroup, columns that fill no step of 512.
SHAPE = NetworkShape(
    **{"n_streams": 4, "n_embd": 320, "n_heads": 10, "head_dim": 256, "n_rotary": 64},
    **{"query_rank": 96, "n_groups": 2, "window": 64, "index_heads": 16, "index_dim": 128},
    **{"top_k": 40, "n_experts": 40, "n_used": 3, "expert_scale": 1.5, "n_sinkhorn": 4},
    **{"eps": 1e-3, "hc_eps": 1e-4},
)
# More columns than 32 groups of 64 have: sums over groups go round more than once.
WIDE = replace(SHAPE, n_embd=2112, n_experts=9)
_LOW_ROWS, _HIDDEN = 32, 96  # of a group of the output; of an expert
# Sums of float32 in another order differ by 1e-6, and a value between two codes of FP8 then takes
# the other one: a sixteenth of one of the 256 values of a row, of which many are mixed.
_STREAM_BOUND = 5e-4
_ONE_CODE = 1 / 8


def random_layer(
    random: np.random.Generator, s: NetworkShape, ratio: int, has_table: bool
) -> Callable[[Any], tuple[Layer, tuple]]:
    """Random weights; returns what hands a world a layer, and the mixing before the output."""
    normal = random.standard_normal

    def packed(n_rows: int, n_columns: int) -> PackedMatrix:
        """Smaller weights than random ones: the products of many are of size one."""
        matrix = random_packed(_Q8_0, n_rows, n_columns, random)
        matrix.raw.reshape(-1, 34)[:, :2].view(np.float16)[...] *= np.float16(0.125)
        return matrix

    def halves(n_rows: int, n_columns: int) -> PackedMatrix:
        values = (normal((n_rows, n_columns)) / np.sqrt(n_columns)).astype(np.float16)
        return PackedMatrix(_F16, values.reshape(-1).view(np.uint8), (n_rows, n_columns))

    def vector(*shape: int) -> np.ndarray:
        return random.uniform(0.5, 1.5, shape).astype(np.float32)

    w = 2 * s.head_dim if ratio == 4 else s.head_dim
    exact_rows = [2 * w] if ratio else []
    exact_rows += [4 * s.index_dim, s.index_heads] if ratio == 4 else []
    n_exact = sum(exact_rows)
    hypers = [(halves(24, 4 * s.n_embd), normal(3), normal(24), vector(s.n_embd)) for _ in range(2)]
    attention = {
        "input": packed(s.query_rank + s.head_dim, s.n_embd),
        "q_b": packed(s.n_heads * s.head_dim, s.query_rank),
        "out_a": packed(s.n_groups * _LOW_ROWS, s.n_heads * s.head_dim // s.n_groups),
        "out_b": packed(s.n_embd, s.n_groups * _LOW_ROWS),
        "exact_input": halves(n_exact, s.n_embd) if ratio else None,
        "index_q_b": halves(s.index_heads * s.index_dim, s.query_rank) if ratio == 4 else None,
    }
    vectors = [vector(s.query_rank), vector(s.head_dim), normal(s.n_heads).astype(np.float32)]
    compressors = [
        (normal((ratio, w)), vector(s.head_dim)),
        (normal((ratio, 2 * s.index_dim)), vector(s.index_dim)),
    ][: 0 if ratio == 0 else 1 + (ratio == 4)]
    router = halves(s.n_experts, s.n_embd)
    bias = normal(s.n_experts).astype(np.float32)
    table = random.random((_N_TOKENS, s.n_experts)).argsort(axis=1)[:, : s.n_used]
    shared = packed(2 * _HIDDEN, s.n_embd), packed(s.n_embd, _HIDDEN)
    experts = [
        packed(s.n_experts * _HIDDEN, s.n_embd),
        packed(s.n_experts * _HIDDEN, s.n_embd),
        packed(s.n_experts * s.n_embd, _HIDDEN),
    ]
    head = halves(4, 4 * s.n_embd), np.float32(normal(1)), np.float32(normal(4))
    frequencies = 1e4 ** (-np.arange(s.n_rotary // 2) / (s.n_rotary // 2))

    def layer_of(ops: Any) -> tuple[Layer, tuple]:
        v4 = ops.deepseek_v4()

        def hyper(fn: PackedMatrix, scale: Any, base: Any, norm: Any) -> HyperWeights:
            small = [ops.vector(np.float32(a)) for a in (scale, base, norm)]
            return HyperWeights(v4.exact_matrix([fn]), *small)

        def exact(matrix: PackedMatrix | None) -> Any:
            return None if matrix is None else v4.exact_matrix([matrix])

        pooling = [
            CompressorWeights(ops.vector(np.float32(ape)), ops.vector(norm))
            for ape, norm in compressors
        ] + [None, None]
        mixing = (exact(head[0]), ops.vector(head[1]), ops.vector(head[2]), s)
        layer = Layer(
            shape=s,
            ratio=ratio,
            frequencies=frequencies,
            attn_hyper=hyper(*hypers[0]),
            ffn_hyper=hyper(*hypers[1]),
            attention=AttentionWeights(
                input=ops.matrix([attention["input"]]),
                exact_input=exact(attention["exact_input"]),
                q_norm=ops.vector(vectors[0]),
                q_b=ops.matrix([attention["q_b"]]),
                kv_norm=ops.vector(vectors[1]),
                sinks=ops.vector(vectors[2]),
                out_a=v4.grouped_matrix(attention["out_a"], s.n_groups),
                out_b=ops.matrix([attention["out_b"]]),
                compressor=pooling[0],
                index_q_b=exact(attention["index_q_b"]),
                index_compressor=pooling[1],
            ),
            feed_forward=FeedForwardWeights(
                router=v4.exact_matrix([router]),
                bias=None if has_table else ops.vector(bias),
                table=v4.integers(table.astype(np.int32)) if has_table else None,
                experts=ops.experts(*experts, s.n_experts),
                shared_gate_up=ops.matrix([shared[0]]),
                shared_down=ops.matrix([shared[1]]),
                clamp=1.0,
            ),
        )
        return layer, mixing

    return layer_of


def random_state(
    random: np.random.Generator, expected: dict[str, tuple[tuple[int, ...], type]]
) -> dict[str, np.ndarray]:
    """Arrays of a state: values that float16 holds, as every stored row."""
    return {
        name: random.standard_normal(shape).astype(np.float16).astype(dtype)
        for name, (shape, dtype) in expected.items()
    }


def layer_case(
    ratio: int, n_past: int, has_table: bool, what: str, shape: NetworkShape = SHAPE
) -> Case:
    """Two positions, one after the other, through one layer twice: all that is pending is read."""

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        layer_of = random_layer(random, shape, ratio, has_table)
        streams = random.standard_normal((2, 4, shape.n_embd)).astype(np.float32)
        token_ids = random.integers(0, _N_TOKENS, 2, np.int32)
        device = "metal" if mx.metal.is_available() else "mlx-cpu"
        worlds = CpuOps(exact_products=True), MlxOps(device, MetalKernels(make))
        start = random_state(
            random,
            worlds[0].deepseek_v4().layer_state(shape, ratio, _MAX_TOKENS, True).expected(n_past),
        )
        results = [
            _two_positions(start, n_past, ops, *layer_of(ops), streams, token_ids) for ops in worlds
        ]
        comparisons = []
        for expected, result in zip(*results, strict=True):
            wanted = np.asarray(expected, np.float64)
            size = np.sqrt(np.mean(wanted**2))
            bound = np.full(wanted.shape, _STREAM_BOUND * size)
            if np.asarray(expected).dtype == np.float16:
                bound = _ONE_CODE * np.abs(wanted) + 1e-3 * size
            comparisons.append(Comparison(mx.array(np.asarray(result)), wanted, bound))
        return Run(comparisons, _traffic(shape, ratio), _UNWRITTEN)

    return Case(f"v4 layer, ratio {ratio}: {what}", run)


_STORED = ("new_frontier", "row", "new_index_frontier", "index_row")  # of layers that have them
_UNWRITTEN = {"ds4_v4_store_queries": _STORED, "ds4_v4_index_scores": ("scores",)}
# One position's activations and numbers, and the rings that it is stored in.
_SMALL = ("x", "norm", "numbers", "sizes", "partials", "scale", "base", "normed", "mix", "streams")
_SMALL += ("y", "z", "bias", "table", "token", "ids", "weights", "now", "capacities", "turns")
_SMALL += ("row_turns", "kv_norm", "ape", "row_norm", "index_ape", "index_norm", "window")
_SMALL += ("frontier", "index_frontier", "new_window", *_STORED)


def _traffic(s: NetworkShape, ratio: int) -> dict[str, Traffic]:
    """The weights that three attention sublayers and two of experts read, each once a launch."""
    w = 2 * s.head_dim if ratio == 4 else s.head_dim
    n_exact = (2 * w if ratio else 0) + (4 * s.index_dim + s.index_heads if ratio == 4 else 0)
    n_index = s.index_heads * s.index_dim if ratio == 4 else 0
    group = s.n_heads * s.head_dim // s.n_groups
    # Per kernel: (launches, rows of Q8_0, rows of float16, columns) of each matrix.
    matrices = {
        "v4_hyper_rows": [
            (3, s.query_rank + s.head_dim, n_exact, s.n_embd),
            (2, 2 * _HIDDEN, s.n_experts, s.n_embd),
        ],
        "v4_store_queries": [(3, s.n_heads * s.head_dim, n_index, s.query_rank)],
        "v4_rows": [
            (3, s.n_groups * _LOW_ROWS, 0, group),
            (3, s.n_embd, 0, s.n_groups * _LOW_ROWS),
        ],
        "v4_route_swiglu_rows": [(2, s.n_embd, 0, _HIDDEN)],
    }
    traffic = {}
    for name, parts in matrices.items():
        packed = sum(n * rows * columns for n, rows, _, columns in parts)
        halves = sum(n * rows * columns for n, _, rows, columns in parts)
        least = {"quants": packed, "factors": packed // 16}
        least |= {"halves": 2 * halves} if halves else {}
        least["out"] = 4 * sum(n * (rows + more) for n, rows, more, _ in parts)
        traffic[f"ds4_{name}"] = Traffic(least, _SMALL)
    row = 2 * 4 * s.n_embd
    # Before the output there are four rows for eight simdgroups: the others read the last again.
    for name, n_rows in (("v4_partials", 2 * 24 + 2 * 8), ("v4_post_partials", 3 * 24)):
        traffic[f"ds4_{name}"] = Traffic({"fn": n_rows * row}, (*_SMALL, "out"))
    return traffic


def _two_positions(
    start: dict[str, np.ndarray],
    n_past: int,
    ops: Any,
    layer: Layer,
    mixing: tuple,
    streams: np.ndarray,
    token_ids: np.ndarray,
) -> list[np.ndarray]:
    """Streams and their mixture after each position, then the arrays of the last state."""
    v4 = ops.deepseek_v4()
    state = v4.layer_state(layer.shape, layer.ratio, _MAX_TOKENS, True)
    state.load(start, n_past)
    results = []
    for t in range(2):
        x = ops.vector(streams[t].reshape(-1)).reshape(1, 4, layer.shape.n_embd)
        x = v4.attention_sublayer(x, layer, state)
        x = v4.feed_forward_sublayer(x, layer, token_ids[t : t + 1])
        if t:  # as if it were the next layer
            state.truncate(state.n_tokens - 1)
            x = v4.attention_sublayer(x, layer, state)
        x = v4.settle(x)
        results += [ops.to_host(x), ops.to_host(v4.hc_head(x, *mixing))]
    return results + list(state.arrays().values())


CASES = (
    layer_case(0, 70, True, "window only, experts of a table", WIDE),
    layer_case(4, 30, False, "a row completed, all rows read"),
    layer_case(4, 186, False, "rows chosen by the indexer"),
    layer_case(128, 127, False, "a row completed"),
)
