"""Cases of single decode kernels of DeepSeek V4, at sizes that the small layers do not have."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import dequantize
from mlx_kernels.blocks.random_packed import random_packed
from mlx_kernels.cpu.deepseek_v4.indexer import best_rows
from mlx_kernels.gpu.deepseek_v4.decode_constants import integers, numbers
from mlx_kernels.gpu.deepseek_v4.decode_kernels import DecodeKernels, Launch
from mlx_kernels.gpu.deepseek_v4.decode_rows import Way, rows_of
from mlx_kernels.gpu.metal_cases.case import Case, Comparison, Run
from mlx_kernels.gpu.planar_weight import PlanarWeight

_Q8_0 = 8
_FLOAT32_SUM = 2e-6  # of the sum of the sizes of the terms


def _kernels(make: Callable[..., Any]) -> DecodeKernels:
    return DecodeKernels(make, "metal")


def rows_case(n_packed: int, n_halves: int, n_columns: int, way: Way, what: str) -> Case:
    """Rows of Q8_0 and of float16 by few groups: several turns of rows, and of columns."""

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        packed = random_packed(_Q8_0, n_packed, n_columns, random)
        halves = random.standard_normal((n_halves, n_columns)).astype(np.float16)
        x = random.standard_normal(n_columns).astype(np.float32)
        weight = PlanarWeight.of([packed])
        rows = rows_of(weight, mx.array(halves) if n_halves else None, way, max_groups=2)
        launch = _kernels(make).launch(
            *("v4_rows", way.template(n_columns), (rows.n_groups, 1), [(1, rows.n_rows)]),
            threads=32 * way.simdgroups,
        )
        (out,) = launch(mx.array(x), *rows.inputs)
        values = np.concatenate([dequantize(_Q8_0, packed.raw, packed.shape), halves]).astype(
            np.float64
        )
        bound = _FLOAT32_SUM * (np.abs(values) @ np.abs(x))
        return Run([Comparison(out[0], values @ x, bound)])

    return Case(f"v4 rows: {what}", run)


def parts_case(n_rows: int, n_columns: int, n_parts: int, way: Way) -> Case:
    """Columns in parts, whose results are left to be added; two groups to a part."""

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        packed = random_packed(_Q8_0, n_rows, n_columns, random)
        x = random.standard_normal(n_columns).astype(np.float32)
        rows = rows_of(
            PlanarWeight.of([packed]), None, way, n_parts=n_parts, max_groups=2 * n_parts
        )
        launch = _kernels(make).launch(
            *("v4_rows", way.template(n_columns, n_parts)),
            *((rows.n_groups, 1), [(n_parts, rows.n_rows // n_parts)]),
            threads=32 * way.simdgroups,
        )
        (out,) = launch(mx.array(x), *rows.inputs)
        values = dequantize(_Q8_0, packed.raw, packed.shape).astype(np.float64)
        values, x = values.reshape(n_rows, n_parts, -1), x.reshape(n_parts, -1)
        bound = _FLOAT32_SUM * np.einsum("rpc,pc->pr", np.abs(values), np.abs(x))
        return Run([Comparison(out, np.einsum("rpc,pc->pr", values, x), bound)])

    return Case(f"v4 rows: {n_rows} x {n_columns} in {n_parts} parts", run)


def attention_case(has_index: bool, n_near: int, n_far: int) -> Case:
    """A query over both kinds of rows, heads of 512 values, and its chunks joined."""
    n_heads, d, window, capacity, position, n_buffer = 10, 512, 64, 70, 200, 90

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        kernels = _kernels(make)
        normal = random.standard_normal
        heads = normal((n_heads, d)).astype(np.float32)
        ring = normal((capacity, d)).astype(np.float32)
        rows = normal((n_buffer, d)).astype(np.float16)
        index = np.sort(random.permutation(n_buffer)[:n_far]).astype(np.int32)
        sinks = normal(n_heads).astype(np.float32)
        angles = random.uniform(0, 6, 32)
        turns = np.concatenate([np.cos(angles), np.sin(angles)]).astype(np.float32)
        n_chunks = window // 32 + -(-n_far // 32)
        now = integers(position, n_near, n_far, n_chunks)
        sizes, eps = integers(n_heads, capacity, window), 1e-3
        shapes = [(n_chunks, n_heads, d), (n_chunks, n_heads, 2)]
        mixed, shares = kernels.launch(
            *("v4_attention", {"D": d, "HAS_INDEX": has_index}, (n_chunks, 2), shapes)
        )(
            *(mx.array(heads), mx.array(turns), mx.array(ring), mx.array(rows)),
            *(mx.array(index), numbers(eps), now, sizes),
        )
        (out,) = kernels.launch("v4_combine", {"D": d}, (n_heads, 1), [(1, n_heads * d)])(
            mixed, shares, mx.array(sinks), mx.array(turns), now, sizes
        )
        places = (position + 1 - n_near + np.arange(n_near)) % capacity
        chosen = index if has_index else np.arange(n_far)
        read = np.concatenate([ring[places], rows[chosen]]).astype(np.float64)
        norm = 1 / np.sqrt(np.square(heads, dtype=np.float64).mean(1, keepdims=True) + eps)
        queries = _turned(heads * norm, angles, 1)
        scores = queries @ read.T / np.sqrt(d)
        all_scores = np.concatenate([scores, sinks[:, None]], 1)
        share = np.exp(all_scores - all_scores.max(1, keepdims=True))
        share /= share.sum(1, keepdims=True)
        expected = _turned(share[:, :-1] @ read, angles, -1)
        return Run([Comparison(out, expected.reshape(1, -1), 1e-5)])

    chosen = "of an index" if has_index else "in order"
    return Case(f"v4 attention: {n_near} near rows, {n_far} {chosen}, heads of 512", run)


def _turned(x: np.ndarray, angles: np.ndarray, direction: int) -> np.ndarray:
    """The last 64 values of x [n, d] turned by pairs."""
    pairs = x[:, -64:].reshape(len(x), 32, 2)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(1j * direction * angles)
    last = np.stack([turned.real, turned.imag], axis=-1).reshape(len(x), 64)
    return np.concatenate([x[:, :-64], last], axis=1)


def index_scores_case(n_heads: int, n_rows: int, n_groups: int) -> Case:
    """More tiles of rows than groups. The queries lie on the grid already: nothing is rounded."""

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        at, weights_at = 40, 24
        # A transform whose values are small multiples of one number survives FP4: of one value
        # in each head, all 128 are equal in size.
        heads = np.zeros((n_heads, 128), np.float32)
        which = random.integers(0, 64, n_heads)  # before the rotary values
        heads[np.arange(n_heads), which] = 128**0.5 * random.choice([-2.0, 1.0, 4.0], n_heads)
        signs = 1 - 2 * (np.bitwise_count(np.arange(128)[:, None] & np.arange(128)) % 2.0)
        queries = (heads / 128**0.5).astype(np.float64) @ signs
        products = random.standard_normal(weights_at + n_heads).astype(np.float32)
        rows = random.standard_normal((n_rows, 128)).astype(np.float16)
        scale = (128 * n_heads) ** -0.5
        angles = random.uniform(0, 6, 32)
        turns = np.concatenate([np.cos(angles), np.sin(angles)]).astype(np.float32)
        padded = np.concatenate([np.zeros(at, np.float32), heads.reshape(-1)])
        template = {"HEADS": n_heads, "AT": at, "WEIGHTS_AT": weights_at}
        launch = _kernels(make).launch("v4_index_scores", template, (n_groups, 1), [(n_rows,)])
        (scores,) = launch(
            *(mx.array(padded), mx.array(turns), mx.array(products), mx.array(rows)),
            *(numbers(1e-3, scale), integers(0, 0, 0, 0, n_rows)),
        )
        weights = products[weights_at:].astype(np.float64) * scale
        terms = np.maximum(queries @ rows.astype(np.float64).T, 0) * weights[:, None]
        bound = 1e-5 * (np.abs(terms).sum(0) + np.abs(terms).mean())
        return Run([Comparison(scores, terms.sum(0), bound)])

    return Case(f"v4 index scores: {n_heads} heads, {n_rows} rows, {n_groups} groups", run)


def _top_k(make: Callable[..., Any], scores: np.ndarray, k: int) -> Comparison:
    launch: Launch = _kernels(make).launch(
        "v4_top_k", {"K": k}, (1, 1), [(k,)], [mx.int32], threads=1024
    )
    (index,) = launch(mx.array(scores), integers(0, 0, 0, 0, len(scores)))
    return Comparison(index, best_rows(scores, k), 0)


def top_k_case(n_rows: int, k: int) -> Case:
    """More rows than registers hold; equal scores, both zeros, scores below zero."""

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        scores = random.integers(-3, 4, n_rows).astype(np.float32) / 4
        scores[random.permutation(n_rows)[: n_rows // 3]] *= -1  # zeros of both signs
        best = random.permutation(n_rows)[: k // 2]
        scores[best] = random.standard_normal(len(best)).astype(np.float32) + 1
        return Run([_top_k(make, scores, k)])

    return Case(f"v4 top-k: {k} of {n_rows}", run)


def last_bits_case(k: int) -> Case:
    """One score more than ``k`` is not below the least: two that are not counted, and too many are
    chosen. The least has each value of its last bits.
    """

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        comparisons = []
        # Three turns behind the rows in registers, and none. Some equal ones lie where a turn ends.
        many, few = (0, 16384, 16385, 17408, 18433), (0, 5999, 6000)
        for n_rows, edges, bits in ((19500, many, range(4)), (6000, few, (1,))):
            for last_bits in bits:
                least = (np.float32(1).view(np.uint32) + np.uint32(last_bits)).view(np.float32)
                n = n_rows + last_bits
                scores = random.uniform(-1, 0.99, n).astype(np.float32)
                first = 16416 if n > 16416 else 1056
                scores[first + random.permutation(900)[: k // 2]] = random.uniform(2, 4, k // 2)
                n_equal = k + 1 - k // 2 - len(edges)
                scores[[*edges, *(2048 + random.permutation(3000)[:n_equal])]] = least
                comparisons.append(_top_k(make, scores, k))
        return Run(comparisons)

    return Case(f"v4 top-k: {k}, and one more that is equal", run)


_NARROW = Way(2, 2, 2)
CASES = (
    rows_case(19, 11, 1312, _NARROW, "two simdgroups, three steps, several turns"),
    rows_case(9, 0, 96, Way(2, 1, 2), "bytes alone, a part of a step"),
    rows_case(3, 9, 1024, Way(2, 1, 4), "whole steps, two groups of halves"),
    parts_case(12, 1088, 2, Way(2, 1, 2)),
    attention_case(True, 50, 40),
    attention_case(False, 64, 37),
    attention_case(False, 3, 2),
    # A last tile of one row.
    index_scores_case(64, 161, 2),
    index_scores_case(16, 65, 3),
    top_k_case(17500, 40),
    last_bits_case(40),
)
