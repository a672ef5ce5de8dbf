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
from mlx_kernels.gpu.deepseek_v4.decode_constants import moment, nothing, token_of
from mlx_kernels.gpu.deepseek_v4.decode_kernels import DecodeKernels
from mlx_kernels.gpu.deepseek_v4.decode_layer import (
    STREAM_COLUMNS,
    DecodeHead,
    DecodeLayer,
    can_decode,
)
from mlx_kernels.gpu.deepseek_v4.decode_steps import Far, LayerSteps

_N_RINGS = 3  # window, frontier, indexer's frontier
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
        self._layers: dict[int, tuple[Layer, tuple[DecodeLayer, LayerSteps] | None]] = {}
        self._head: DecodeHead | None = None
        self._n_layers = 0  # since the device was told to begin
        self._loose: list[mx.array] = []  # rows of states that nothing of this token reads

    def close(self) -> None:
        """Forget the layers and their kept graphs.

        MLX keeps compiled functions by thread. What is still there when a thread ends is freed
        behind Python's back: that aborts the process if it ends at the same time.
        """
        for _, launches in self._layers.values():
            if launches is not None:
                launches[1].forget()
        self._layers.clear()
        self._loose.clear()

    def serves(self, layer: Layer, streams: mx.array | Pending) -> bool:
        """Whether this is one position, and the layer one that the kernels serve."""
        return streams.shape[0] == 1 and self._layer(layer) is not None

    def attention(
        self, streams: mx.array | Pending, layer: Layer, state: PlainLayerState
    ) -> Pending:
        """See ``DeepseekV4Ops.attention_sublayer``."""
        own, steps = self._layer(layer)
        if not isinstance(streams, Pending):  # a token begins: the device is idle
            self._n_layers = self.evaluate_every - 1
        parts = [part for part in (state.compressor, state.indexer) if part is not None]
        rings = [state.window, *(part.frontier for part in parts)]
        old = [ring.raw for ring in rings]
        old += [nothing(mx.float32, True)] * (_N_RINGS - len(old))
        capacities = [ring.capacity for ring in rings] + [0] * (_N_RINGS - len(rings))
        own.bind(tuple(capacities))
        position = state.n_tokens
        now, turn, row_turn, far = _present(own, position)
        pending = _arrays(streams)
        before = (*pending, now, turn, row_turn, *old)
        if layer.ratio and (position + 1) % layer.ratio == 0:
            written, mix, products, heads, window, frontier, row, index_frontier, index_row = (
                steps.store(len(pending))(*before)
            )
            for part, new in zip(parts, (row, index_row), strict=False):
                part.rows.append(new)
            rows = _rows(state)
            y, *z = steps.attend(far)(products, heads, now, turn, window, *rows)
            if state.indexer is not None and self.evaluate_every:
                self._loose.append(state.indexer.rows.raw)
        else:
            written, mix, window, frontier, index_frontier, y, *z = steps.store_and_attend(
                len(pending), far
            )(*before, *_rows(state))
        for ring, new in zip(rings, (window, frontier, index_frontier), strict=False):
            ring.advance(new)
        return Pending(written, y, z[0] if z else None, mix, own)

    def feed_forward(
        self, streams: mx.array | Pending, layer: Layer, token_ids: np.ndarray
    ) -> Pending:
        """See ``DeepseekV4Ops.feed_forward_sublayer``."""
        own, steps = self._layer(layer)
        has_table = layer.feed_forward.table is not None
        token = token_of(int(token_ids[0])) if has_table else nothing(mx.int32, True)
        pending = _arrays(streams)
        written, mix, shared, routed = steps.feed(len(pending))(*pending, token)
        self._n_layers += 1
        if self.evaluate_every and self._n_layers >= self.evaluate_every:
            mx.async_eval(written, shared, routed, mix, *self._loose)
            self._n_layers = 0
            self._loose.clear()
        return Pending(written, shared, routed, mix, own)

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

    def _layer(self, layer: Layer) -> tuple[DecodeLayer, LayerSteps] | None:
        known = self._layers.get(id(layer))
        if known is None or known[0] is not layer:
            launches = None
            if can_decode(layer):
                own = DecodeLayer(layer, self._kernels)
                launches = own, LayerSteps(own, self._ops.moe, self._kernels.are_lazy)
            known = self._layers[id(layer)] = (layer, launches)
        return known[1]


def settle(streams: mx.array | Pending) -> mx.array:
    """Write what is pending -> [T, 4, D]."""
    if not isinstance(streams, Pending):
        return streams
    old, y, z, mix, own = streams
    z = mx.zeros_like(y) if z is None else z
    return own.post(old, y, z, mix, own.columns)[0]


def _arrays(streams: mx.array | Pending) -> tuple[mx.array, ...]:
    if not isinstance(streams, Pending):
        return (streams,)
    old, y, z, mix, _ = streams
    return (old, y, mix) if z is None else (old, y, z, mix)


def _rows(state: PlainLayerState) -> tuple[mx.array, mx.array]:
    """Compressed rows and those of the indexer, whole buffers; nothing where there is no row."""
    return tuple(
        nothing(mx.float16, True) if part is None or not part.rows.n_rows else part.rows.raw
        for part in (state.compressor, state.indexer)
    )


def _present(own: DecodeLayer, position: int) -> tuple[mx.array, mx.array, mx.array, Far]:
    """What launches need to know of a position, and how it reads compressed rows."""
    shape, ratio = own.layer.shape, own.layer.ratio
    n_near = min(position + 1, shape.window)
    n_far = n_rows = (position + 1) // ratio if ratio else 0
    selects = ratio == 4 and n_rows > shape.top_k
    if selects:
        n_far = shape.top_k
    far = Far(own.n_chunks(n_far), selects, own.n_score_groups(n_rows) if selects else 0)
    completes = ratio > 0 and (position + 1) % ratio == 0
    row_position = position + 1 - ratio if completes else position
    numbers = (position, n_near, n_far, far.n_chunks, n_rows)
    return *moment(numbers, position, row_position, own.layer.frequencies), far
