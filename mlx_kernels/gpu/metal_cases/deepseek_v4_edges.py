"""Cases of single decode kernels of DeepSeek V4 at edges: ties, overflow, few groups."""

from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import dequantize
from mlx_kernels.blocks.random_packed import random_packed
from mlx_kernels.cpu.deepseek_v4 import hyper_connection, rounding, router
from mlx_kernels.deepseek_v4_ops import HyperWeights
from mlx_kernels.gpu.deepseek_v4.decode_constants import integers, nothing, numbers
from mlx_kernels.gpu.deepseek_v4.decode_kernels import DecodeKernels
from mlx_kernels.gpu.deepseek_v4.decode_rows import Rows, Way, rows_of
from mlx_kernels.gpu.metal_cases.case import Case, Comparison, Run
from mlx_kernels.gpu.metal_cases.deepseek_v4_layers import SHAPE
from mlx_kernels.gpu.planar_weight import PlanarWeight

_Q8_0 = 8
_FLOAT32_SUM = 4e-6  # of the sum of the sizes of the terms, whose factors are rounded before
_NARROW = Way(2, 2, 2)  # several turns of staging and of rows


def _rows(
    n_packed: int, n_halves: int, n_columns: int, way: Way, random: np.random.Generator, n: int = 0
) -> tuple[Rows, np.ndarray]:
    """Rows of both kinds for two groups, and their values in float64; ``n``: partial sums."""
    packed = random_packed(_Q8_0, n_packed, n_columns, random)
    halves = random.standard_normal((n_halves, n_columns)).astype(np.float16)
    values = np.concatenate([dequantize(_Q8_0, packed.raw, packed.shape), halves])
    weight = PlanarWeight.of([packed])
    exact = mx.array(halves) if n_halves else None
    rows = rows_of(weight, exact, way, n_partials=n, max_groups=2)
    return rows, values.astype(np.float64)


def _product(values: np.ndarray, x: np.ndarray, result: mx.array) -> Comparison:
    return Comparison(result, values @ x, _FLOAT32_SUM * (np.abs(values) @ np.abs(x)))


def _turns(random: np.random.Generator) -> tuple[np.ndarray, mx.array]:
    """Angles of 32 pairs, and their cosines and sines."""
    angles = random.uniform(0, 6, 32)
    return angles, mx.array(np.concatenate([np.cos(angles), np.sin(angles)]).astype(np.float32))


def _combine(make: Callable[..., Any], random: np.random.Generator) -> Run:
    """The first chunk, the last one or the sink has a score that would overflow an exponential."""
    n_chunks, n_heads, d = 4, 3, 256
    mixed = random.standard_normal((n_chunks, n_heads, d)).astype(np.float32)
    shares = random.uniform(1, 2, (n_chunks, n_heads, 2)).astype(np.float32)
    sinks = random.standard_normal(n_heads).astype(np.float32)
    shares[0, 0, 0], shares[-1, 1, 0], sinks[2] = 120, 120, 100
    shares[1:, 2, 0] = 98  # beside that sink
    angles, turns = _turns(random)
    launch = DecodeKernels(make, "metal").launch(
        "v4_combine", {"D": d}, (n_heads, 1), [(1, n_heads * d)]
    )
    (out,) = launch(
        *(mx.array(mixed), mx.array(shares), mx.array(sinks), turns),
        *(integers(0, 0, 0, n_chunks), integers(n_heads)),
    )
    tops, totals = np.moveaxis(shares.astype(np.float64), -1, 0)
    top = np.maximum(tops.max(0), sinks)
    weights = np.exp(tops - top)
    joined = (weights[..., None] * mixed).sum(0)
    joined /= ((weights * totals).sum(0) + np.exp(sinks - top))[:, None]
    pairs = joined[:, -64:].reshape(n_heads, 32, 2)
    turned = (pairs[..., 0] + 1j * pairs[..., 1]) * np.exp(-1j * angles)
    joined[:, -64:] = np.stack([turned.real, turned.imag], -1).reshape(n_heads, 64)
    return Run([Comparison(out, joined.reshape(1, -1), 1e-5)])


def route_case(what: str, z: np.ndarray, bias: np.ndarray, k: int) -> Case:
    """Experts chosen by z [E] and bias [E]; beside it rows of whole steps, SwiGLU in two turns."""
    n_columns, limit, scale = 512, 1.0, 1.5
    z, bias = np.float32(z), np.float32(bias)

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        rows, values = _rows(5, 0, n_columns, _NARROW, random)
        gate, up = random.standard_normal((2, n_columns)).astype(np.float32)
        template = {"AT": 2 * n_columns, "E": len(z), "K": k, "HAS_TABLE": False}
        launch = DecodeKernels(make, "metal").launch(
            *("v4_route_swiglu_rows", template | _NARROW.template(n_columns)),
            *((1 + rows.n_groups, 1), [(1, rows.n_rows), (1, k), (1, k)]),
            [mx.float32, mx.int32, mx.float32],
            threads=32 * _NARROW.simdgroups,
        )
        out, ids, weights = launch(
            *(mx.array(np.concatenate([gate, up, z])), mx.array(bias), nothing(mx.int32)),
            *(nothing(mx.int32), numbers(limit, scale), *rows.inputs),
        )
        affinity = router.affinity(z.astype(np.float64))
        left, chosen = affinity + bias, []
        for _ in range(k):
            chosen.append(int(np.argmax(left)))
            left[chosen[-1]] = -np.inf
        chosen = np.sort(chosen)
        wanted = affinity[chosen] * scale / max(affinity[chosen].sum(), 2.0**-14)
        gate, up = np.minimum(np.float64(gate), limit), np.clip(np.float64(up), -limit, limit)
        swiglu = gate / (1 + np.exp(-gate)) * up
        return Run(
            [
                _product(values, swiglu, out[0]),
                Comparison(ids[0], chosen, 0),
                Comparison(weights[0], wanted, 1e-4 * wanted),
            ]
        )

    return Case(f"v4 route: {what}", run)


def _route_cases() -> tuple[Case, ...]:
    """33 experts: one alone in the second turn of the lanes."""
    ties = np.full(33, -1.0)
    ties[[32, 7]], ties[30], ties[[4, 5, 11, 20, 25]] = 3, 2.5, 2
    small = np.full(33, -45.0)
    small[7], small[[0, 32]] = -38, -39
    none = np.full(33, -np.inf)
    none[[9, 32]] = 0.5, 1
    zeros, rising = np.zeros(33), np.linspace(-1, 1, 33)
    return (
        route_case("equal scores in several lanes, the last expert the best", ties, zeros, 6),
        route_case("equal scores in one lane, affinities near zero", small, zeros, 2),
        route_case("fewer scores than places: the first expert again", rising, none, 4),
    )


def _hyper(make: Callable[..., Any], random: np.random.Generator) -> Run:
    """Two groups of two simdgroups: each loop goes round more than once. Exponents far apart."""
    n_columns, n_partials = 1024, 40
    rows, values = _rows(9, 5, n_columns, _NARROW, random, n_partials)
    streams = random.standard_normal((4, n_columns)).astype(np.float32)
    norm = random.uniform(0.5, 1.5, n_columns).astype(np.float32)
    partials = random.standard_normal((25, n_partials)).astype(np.float32)
    partials[24] = random.uniform(0.5, 1.5, n_partials) * 4 * n_columns / n_partials
    scale, base = (random.standard_normal(n).astype(np.float32) for n in (3, 24))
    base[[8, 13, 18, 23]] += np.float32([100, -100, 100, 100])
    launch = DecodeKernels(make, "metal").launch(
        *("v4_hyper_rows", _NARROW.template(n_columns), (1 + rows.n_groups, 1)),
        [(1, rows.n_rows), (1, n_columns), (20,)],
        threads=32 * _NARROW.simdgroups,
    )
    out, normed, mix = launch(
        *(mx.array(a) for a in (streams, norm, partials, scale, base)),
        *(numbers(SHAPE.eps, SHAPE.hc_eps, SHAPE.n_sinkhorn), *rows.inputs),
    )
    sums = partials.astype(np.float64).sum(1)
    products = sums[:24] / np.sqrt(sums[24] / (4 * n_columns) + SHAPE.eps)
    weights = HyperWeights(None, np.float64(scale), np.float64(base), norm)
    pre, post, comb = hyper_connection.mixes(products[None], weights, SHAPE)
    x = pre[0].astype(np.float64) @ streams
    x *= norm / np.sqrt((x**2).mean() + SHAPE.eps)
    wanted = np.concatenate([post[0], comb[0].reshape(-1)])
    comparisons = [_product(values, x, out[0]), Comparison(normed[0], x, 1e-5 * (1 + np.abs(x)))]
    return Run([*comparisons, Comparison(mix, wanted, 2e-5 * (1e-3 + wanted))])


def store_case(ratio: int, position: int) -> Case:
    """One group copies the rings. A value of the row's first 64 dwarfs the others: the scale that
    they share leaves them few bits. Queries of whole steps, staged in two turns."""
    n_columns, d, di, capacities, way = 1536, 256, 128, (6, 9, 10), Way(8, 4, 2)
    w = {0: 0, 4: 2 * d, 128: d}[ratio]

    def run(make: Callable[..., Any], random: np.random.Generator) -> Run:
        def normal(*shape: int) -> np.ndarray:
            return random.standard_normal(shape).astype(np.float32)

        rows, values = _rows(5, 0, n_columns, way, random)
        n_exact = 2 * w + (4 * di if ratio == 4 else 0)
        x = normal(n_columns + d + n_exact)
        x[n_columns : n_columns + 64] *= np.float32(1.3e-3)
        x[n_columns + 6] = 40
        norm, kv_norm, row_norm, index_norm = (
            random.uniform(0.5, 1.5, n).astype(np.float32) for n in (n_columns, d, d, di)
        )
        angles, turns = _turns(random)
        none = np.zeros(16, np.float32)
        window, frontier = normal(capacities[0], d), normal(capacities[1], 2 * w) if w else none
        index_frontier = normal(capacities[2], 4 * di) if ratio == 4 else none
        ape, index_ape = normal(max(ratio, 1), max(w, 16)), normal(4, 2 * di)
        shapes = [(1, 5), window.shape, frontier.shape, (1, d) if ratio else (16,)]
        shapes += [index_frontier.shape, (1, di) if ratio == 4 else (16,)]
        template = {"STORE_GROUPS": 4, "R": ratio, "D": d, "DI": di, "KV_AT": n_columns}
        launch = DecodeKernels(make, "metal").launch(
            *("v4_store_queries", template | way.template(n_columns), (4 + rows.n_groups, 1)),
            shapes,
            [*[mx.float32] * 3, mx.float16, mx.float32, mx.float16],
        )
        results = launch(
            *(mx.array(x), mx.array(norm), mx.array(kv_norm), turns, turns, mx.array(window)),
            *(mx.array(a) for a in (frontier, ape, row_norm, index_frontier, index_ape)),
            *(mx.array(index_norm), numbers(SHAPE.eps), integers(position)),
            *(integers(*capacities), *rows.inputs),
        )
        queries = x[:n_columns].astype(np.float64)
        queries *= norm / np.sqrt((queries**2).mean() + SHAPE.eps)
        key = x[n_columns : n_columns + d].astype(np.float64)
        key *= kv_norm / np.sqrt((key**2).mean() + SHAPE.eps)
        turned = (key[-64::2] + 1j * key[-63::2]) * np.exp(1j * angles)
        key[-64::2], key[-63::2] = turned.real, turned.imag
        # float32 may take the other one of two codes next to which a value lies in the middle.
        low, wanted, high = (
            rounding.key_row(np.float32(key * share), 64) for share in (1 - 1e-5, 1, 1 + 1e-5)
        )
        new_window, bound = window.copy(), np.zeros_like(window)
        new_window[position % capacities[0]] = wanted
        bound[position % capacities[0]] = np.abs(high - low)
        comparisons = [
            _product(values, queries, results[0][0]),
            Comparison(results[1], new_window, bound),
        ]
        at = n_columns + d
        rings = ((frontier, ape, w, 1), (index_frontier, index_ape, 2 * di, 2))
        for ring, added, width, i in rings[: 0 if ratio == 0 else 1 + (ratio == 4)]:
            new = ring.copy()
            new[position % capacities[i]] = x[at : at + 2 * width]
            new[position % capacities[i], width:] += added[position % ratio]
            comparisons.append(Comparison(results[2 * i], new, 1e-6 * (1 + np.abs(new))))
            at += 2 * width
        missing = ("new_frontier", "row", "new_index_frontier", "index_row")
        missing = missing[{0: 0, 128: 2, 4: 4}[ratio] :]
        return Run(comparisons, unwritten={"ds4_v4_store_queries": missing})

    return Case(f"v4 store: ratio {ratio}, one group for the rings", run)


CASES = (
    Case("v4 combine: scores far apart", _combine),
    *_route_cases(),
    Case("v4 hyper: two groups of two simdgroups", _hyper),
    store_case(0, 9),
    store_case(4, 11),
    store_case(128, 2),
)
