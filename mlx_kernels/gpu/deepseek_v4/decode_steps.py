"""A layer's launches as functions of arrays alone, of which MLX keeps the graph.

Making 13 launches of up to 19 arrays takes Python longer than the device needs for a layer. So the
functions are compiled (``mx.compile``): they run once for each kind of position, and from then on
MLX makes the same nodes with other arrays. Whatever changes with the position is an array or a
part of ``kind``; weights and sizes are constants of the graph.

Three functions: ``store`` until the position's rows are in the state, ``attend`` from there to the
attention's result, ``feed`` for the experts. A position that completes no compressed row takes
the first two as one.
"""

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import mlx.core as mx

from mlx_kernels.gpu.deepseek_v4.decode_constants import nothing
from mlx_kernels.gpu.deepseek_v4.decode_layer import DecodeLayer, Hyper

Arrays = tuple[mx.array, ...]
Function = Callable[..., Arrays]


class Far(NamedTuple):
    """How a position reads compressed rows; launches follow from it.

    Attributes:
        n_chunks: See ``DecodeLayer.n_chunks``.
        selects: The indexer chooses.
        n_groups: Of its scores.
    """

    n_chunks: int
    selects: bool
    n_groups: int


class LayerSteps:
    """The functions of one layer."""

    def __init__(self, own: DecodeLayer, moe: Callable[..., mx.array], compiles: bool) -> None:
        self._own, self._moe, self._compiles = own, moe, compiles
        self._kept: dict[Hashable, tuple[Hashable, Function]] = {}

    def store(self, n_pending: int) -> Function:
        """Until the position's rows are there.

        Takes ``n_pending`` arrays of the streams (see ``_begin``), then now, turn, row_turn,
        window, frontier, indexer's frontier. Gives streams, mix, products, heads, window,
        frontier, row, indexer's frontier, its row.
        """
        own = self._own

        def store(*arrays: mx.array) -> Arrays:
            pending, rest = arrays[:n_pending], arrays[n_pending:]
            streams, products, _, mix = _begin(
                own, pending, own.attn_hyper, own.input, own.input_launch
            )
            return streams, mix, products, *_store(own, products, *rest)

        return self._compiled(("store", n_pending), None, store)

    def attend(self, far: Far) -> Function:
        """Products, heads, now, turn, window, rows, indexer's rows -> one or two results.

        Each is [1, D], and two are to be added.
        """

        def attend(*arrays: mx.array) -> Arrays:
            return _attend(self._own, far, *arrays)

        return self._compiled("attend", far, attend)

    def store_and_attend(self, n_pending: int, far: Far) -> Function:
        """As ``store`` with rows and indexer's rows behind.

        Gives streams, mix, three rings, and what ``attend`` gives.
        """
        own = self._own

        def both(*arrays: mx.array) -> Arrays:
            *before, rows, index_rows = arrays
            pending, rest = before[:n_pending], before[n_pending:]
            streams, products, _, mix = _begin(
                own, tuple(pending), own.attn_hyper, own.input, own.input_launch
            )
            heads, window, frontier, _, index_frontier, _ = _store(own, products, *rest)
            now, turn = rest[:2]
            results = _attend(own, far, products, heads, now, turn, window, rows, index_rows)
            return streams, mix, window, frontier, index_frontier, *results

        return self._compiled(("both", n_pending), far, both)

    def feed(self, n_pending: int) -> Function:
        """Pending streams and the token's id -> streams, mix, shared and routed experts."""
        own = self._own

        def feed(*arrays: mx.array) -> Arrays:
            *pending, token = arrays
            streams, products, x, mix = _begin(
                own, tuple(pending), own.ffn_hyper, own.ffn_input, own.ffn_input_launch
            )
            shared, ids, weights = own.route(
                *(products, own.bias, own.table, token, own.route_numbers),
                *own.shared_down.inputs,
            )
            ffn = own.layer.feed_forward
            return streams, mix, shared, self._moe(x, ffn.experts, ids, weights, ffn.clamp)

        return self._compiled(("feed", n_pending), None, feed)

    def forget(self) -> None:
        """Free the kept graphs."""
        self._kept.clear()

    def _compiled(self, name: Hashable, kind: Hashable, function: Function) -> Function:
        """The kept function of that name, if the last one was of this kind."""
        if not self._compiles:
            return function
        known = self._kept.get(name)
        if known is None or known[0] != kind:
            known = self._kept[name] = (kind, mx.compile(function))
        return known[1]


def _begin(
    own: DecodeLayer, pending: Arrays, hyper: Hyper, rows: Any, launch: Any
) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """Write what is pending, mix, norm and multiply -> streams, products, normed input, mix.

    ``pending``: streams; or streams, y and mix; or streams, y, z and mix.
    """
    if len(pending) > 1:
        old, y, *more, mix = pending
        z = more[0] if more else y
        streams, partials = own.post_partials[bool(more)](old, y, z, mix, hyper.fn, own.columns)
    else:
        (streams,) = pending
        (partials,) = own.partials(streams, hyper.fn, own.columns)
    products, normed, mix = launch(
        *(streams, hyper.norm, partials, hyper.scale, hyper.base, hyper.numbers), *rows.inputs
    )
    return streams, products, normed, mix


def _store(
    own: DecodeLayer,
    products: mx.array,
    now: mx.array,
    turn: mx.array,
    row_turn: mx.array,
    window: mx.array,
    frontier: mx.array,
    index_frontier: mx.array,
) -> Arrays:
    """Heads before norm and turn, then what the position leaves in the state."""
    weights = own.layer.attention
    ape, norm, index_ape, index_norm = own.store_weights
    return tuple(
        own.store_launch(
            *(products, weights.q_norm, weights.kv_norm, turn, row_turn, window, frontier, ape),
            *(norm, index_frontier, index_ape, index_norm, own.eps, now, own.capacities),
            *own.queries.inputs,
        )
    )


def _attend(
    own: DecodeLayer,
    far: Far,
    products: mx.array,
    heads: mx.array,
    now: mx.array,
    turn: mx.array,
    window: mx.array,
    rows: mx.array,
    index_rows: mx.array,
) -> Arrays:
    """Attend over the window and the compressed rows, and multiply with both output matrices."""
    index = nothing(mx.int32)
    if far.selects:
        (scores,) = own.index_scores(far.n_groups, index_rows.shape[0])(
            heads, turn, products, index_rows, own.attention_numbers, now
        )
        (index,) = own.top_k(scores, now)
    mixed, shares = own.attention(far.n_chunks, far.selects)(
        *(heads, turn, window, rows, index, own.attention_numbers, now, own.sizes)
    )
    (out,) = own.combine(mixed, shares, own.layer.attention.sinks, turn, now, own.sizes)
    (low,) = own.out_a_launch(out, *own.out_a.inputs)
    (results,) = own.out_b_launch(low, *own.out_b.inputs)  # [parts, D]
    return (results,) if own.n_parts == 1 else tuple(mx.split(results, own.n_parts))
