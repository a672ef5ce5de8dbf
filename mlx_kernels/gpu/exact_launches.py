"""Products of many positions as precise as those of one: for comparisons with other networks.

The decode kernels take their few positions at a time. That is slow, and nothing is rounded to the
11 bits of tensor cores.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import mlx.core as mx

from mlx_kernels.gpu.dense_linear import HALF_SCALE
from mlx_kernels.gpu.launch_table import LaunchTable
from mlx_kernels.gpu.planar_launches import MAX_DECODE_ROWS
from mlx_kernels.gpu.planar_weight import PlanarWeight


def exact_table(launches: LaunchTable) -> LaunchTable:
    """The same launches, but many positions take those of few."""
    return replace(
        launches,
        many_rows=partial(_FewRows, launches),
        experts_in_tiles=partial(_experts, launches),
    )


class _FewRows:
    def __init__(self, launches: LaunchTable, x: mx.array) -> None:
        self._launches, self._x = launches, x

    def times(self, weight: PlanarWeight | mx.array) -> mx.array:
        """x [T, C] times weight [R, C] transposed -> [T, R] float32."""
        if isinstance(weight, mx.array):
            return self._x @ (weight.astype(mx.float32) * HALF_SCALE).T
        return _in_parts(lambda t: self._launches.matvec(self._x[t], weight), len(self._x))


def _experts(
    launches: LaunchTable,
    x: mx.array,
    gate: PlanarWeight,
    up: PlanarWeight,
    down: PlanarWeight,
    expert_ids: mx.array,
    expert_weights: mx.array,
    clamp: float | None = None,
) -> mx.array:
    n_in, n_hidden = gate.shape[1], down.shape[1]

    def part(t: slice) -> mx.array:
        ids = expert_ids[t]
        hidden = launches.gate_up(x[t], gate, up, n_hidden, ids, expert_weights[t], clamp=clamp)
        return launches.down(hidden, down, n_in, ids)

    return _in_parts(part, len(x))


def _in_parts(product: Callable[[slice], mx.array], n: int) -> mx.array:
    starts = range(0, n, MAX_DECODE_ROWS)
    return mx.concatenate([product(slice(t, t + MAX_DECODE_ROWS)) for t in starts])
