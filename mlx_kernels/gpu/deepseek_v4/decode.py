"""One decoded position through a layer of DeepSeek V4 in few launches.

A sublayer's result is not written to the streams at once: the next sublayer does it in the launch
that begins its own hyper-connection. Until then the streams are ``Pending``.

Rings and frontiers are not changed in place: a launch reads the old one and writes a new one with
the new row in it, less than one percent of a token's bytes. So a state that went back, or that
another one was made from, is never half written.
"""

from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np

from mlx_kernels.deepseek_v4_ops import Layer, NetworkShape
from mlx_kernels.deepseek_v4_state import PlainLayerState
from mlx_kernels.gpu.deepseek_v4.decode_constants import integers, nothing, now, turn_of
from mlx_kernels.gpu.deepseek_v4.decode_kernels import DecodeKernels
from mlx_kernels.gpu.deepseek_v4.decode_layer import (
    STREAM_COLUMNS,
    DecodeHead,
    DecodeLayer,
    Hyper,
    can_decode,
)

_EVALUATE_EVERY = 2  # the least of what was measured; see README.md


class Pending(NamedTuple):
    """Streams [1, 4, D] to which a sublayer's result is still to be written."""

    streams: mx.array
    y: mx.array  # [1, D]
    z: mx.array | None  # [1, D], added to y
    mix: mx.array  # [20]: post, comb
    layer: DecodeLayer  # whose ``post`` writes it

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the streams."""
        return self.streams.shape


class Decoder:
    """Runs sublayers of layers that ``can_decode``, one position at a time.

    Attributes:
        evaluate_every: Layers after which the device is told to go on, the first time after one:
            it works on them while the host makes the launches of the next ones. 0: it is told by
            whoever reads a result.
    """

    def __init__(self, kernels: DecodeKernels, ops: Any) -> None:
        self._kernels, self._ops = kernels, ops
        self.evaluate_every = _EVALUATE_EVERY
        self._layers: dict[int, tuple[Layer, DecodeLayer | None]] = {}
        self._head: DecodeHead | None = None
        self._n_layers = 0  # since the device was told to begin
        self._loose: list[mx.array] = []  # rows of states that nothing of this token reads

    def serves(self, layer: Layer, streams: mx.array | Pending) -> bool:
        """Whether this is one position, and the layer one that the kernels serve."""
        return streams.shape[0] == 1 and self._layer(layer) is not None

    def attention(
        self, streams: mx.array | Pending, layer: Layer, state: PlainLayerState
    ) -> Pending:
        """See ``DeepseekV4Ops.attention_sublayer``."""
        own, position = self._layer(layer), state.n_tokens
        if not isinstance(streams, Pending):  # a token begins: the device is idle
            self._n_layers = self.evaluate_every - 1
        streams, products, _, mix = _begin(
            own, streams, own.attn_hyper, own.input, own.input_launch
        )
        turn = turn_of(position, layer.frequencies)
        heads = _store(own, products, turn, state)
        if state.indexer is not None and state.indexer.frontier.end % layer.ratio == 0:
            self._loose.append(state.indexer.rows.raw)
        mixed = _attend(own, products, heads, turn, state)
        (low,) = own.out_a_launch(mixed, *own.out_a.inputs)
        (y,) = own.out_b_launch(low, *own.out_b.inputs)
        return Pending(streams, y, None, mix, own)

    def feed_forward(
        self, streams: mx.array | Pending, layer: Layer, token_ids: np.ndarray
    ) -> Pending:
        """See ``DeepseekV4Ops.feed_forward_sublayer``."""
        own, ffn = self._layer(layer), layer.feed_forward
        streams, products, x, mix = _begin(
            own, streams, own.ffn_hyper, own.ffn_input, own.ffn_input_launch
        )
        token = now(int(token_ids[0]))
        shared, ids, weights = own.route(
            *(products, own.bias, own.table, token, own.route_numbers), *own.shared_down.inputs
        )
        routed = self._ops.moe(x, ffn.experts, ids, weights, ffn.clamp)
        self._n_layers += 1
        if self.evaluate_every and self._n_layers >= self.evaluate_every:
            mx.async_eval(streams, shared, routed, mix, *self._loose)
            self._n_layers = 0
            self._loose.clear()
        return Pending(streams, shared, routed, mix, own)

    def mix_for_head(
        self,
        streams: mx.array,
        fn: mx.array,
        scale: mx.array,
        base: mx.array,
        shape: NetworkShape,
    ) -> mx.array | None:
        """See ``DeepseekV4Ops.hc_head``; None if the kernels do not serve."""
        if not (
            streams.shape[:2] == (1, 4)
            and shape.n_embd % STREAM_COLUMNS == 0
            and fn.dtype == mx.float16
        ):
            return None
        if self._head is None or self._head.given is not scale:
            self._head = DecodeHead(shape, scale, self._kernels)
        own = self._head
        (partials,) = own.partials(streams, fn, own.columns)
        return own.mix(streams, partials, own.scale, base, own.numbers, own.sizes)[0]

    def _layer(self, layer: Layer) -> DecodeLayer | None:
        known = self._layers.get(id(layer))
        if known is None or known[0] is not layer:
            known = (layer, DecodeLayer(layer, self._kernels) if can_decode(layer) else None)
            self._layers[id(layer)] = known
        return known[1]


def settle(streams: mx.array | Pending) -> mx.array:
    """Write what is pending -> [T, 4, D]."""
    if not isinstance(streams, Pending):
        return streams
    old, y, z, mix, own = streams
    z = mx.zeros_like(y) if z is None else z
    return own.post(old, y, z, mix, own.columns)[0]


def _begin(
    own: DecodeLayer, streams: mx.array | Pending, hyper: Hyper, rows: Any, launch: Any
) -> tuple[mx.array, mx.array, mx.array, mx.array]:
    """Write what is pending, mix, norm and multiply -> streams, products, normed input, mix."""
    if isinstance(streams, Pending):
        old, y, z, mix, _ = streams
        post = own.post_partials[z is not None]
        streams, partials = post(old, y, y if z is None else z, mix, hyper.fn, own.columns)
    else:
        (partials,) = own.partials(streams, hyper.fn, own.columns)
    products, normed, mix = launch(
        *(streams, hyper.norm, partials, hyper.scale, hyper.base, hyper.numbers), *rows.inputs
    )
    return streams, products, normed, mix


def _store(
    own: DecodeLayer, products: mx.array, turn: mx.array, state: PlainLayerState
) -> mx.array:
    """Append the position's rows to the state, and return the heads before norm and turn."""
    layer, position = own.layer, state.n_tokens
    ratio, none = layer.ratio, nothing(mx.float32)
    parts = [part for part in (state.compressor, state.indexer) if part is not None]
    rings = [state.window, *(part.frontier for part in parts)]
    capacities = [ring.capacity for ring in rings] + [0, 0]
    old = [ring.raw for ring in rings] + [none, none]
    completes = ratio > 0 and (position + 1) % ratio == 0
    row_turn = turn_of(position + 1 - ratio, layer.frequencies) if completes else turn
    ape, norm, index_ape, index_norm = own.store_weights
    weights = layer.attention
    heads, window, frontier, row, index_frontier, index_row = own.store(tuple(capacities[:3]))(
        *(products, weights.q_norm, weights.kv_norm, turn, row_turn, old[0], old[1], ape, norm),
        *(old[2], index_ape, index_norm, own.eps, now(position)),
        integers(*capacities[:3]),
        *own.queries.inputs,
    )
    for ring, new in zip(rings, (window, frontier, index_frontier), strict=False):
        ring.advance(new)
    if completes:
        for part, new in zip(parts, (row, index_row), strict=False):
            part.rows.append(new)
    return heads


def _attend(
    own: DecodeLayer, products: mx.array, heads: mx.array, turn: mx.array, state: PlainLayerState
) -> mx.array:
    """Attend over the window and the compressed rows -> [1, H d]."""
    layer, shape = own.layer, own.layer.shape
    position = state.n_tokens - 1
    n_near = min(position + 1, shape.window)
    n_rows = n_far = state.compressor.rows.n_rows if state.compressor is not None else 0
    rows = state.compressor.rows.raw if n_far else nothing(mx.float16)
    selects = layer.ratio == 4 and n_rows > shape.top_k
    if selects:
        n_far = shape.top_k
    numbers = now(position, n_near, n_far, own.n_chunks(n_far), n_rows)
    index = nothing(mx.int32)
    if selects:
        keys = state.indexer.rows.raw
        (scores,) = own.index_scores(n_rows, keys.shape[0])(
            heads, turn, products, keys, own.attention_numbers, numbers
        )
        (index,) = own.top_k(scores, numbers)
    sizes = integers(shape.n_heads, state.window.capacity, shape.window)
    mixed, shares = own.attention(n_far, selects)(
        *(heads, turn, state.window.raw, rows, index, own.attention_numbers, numbers, sizes)
    )
    (out,) = own.combine(mixed, shares, layer.attention.sinks, turn, numbers, sizes)
    return out
