"""Many positions through a layer of DeepSeek V4 on device cuda.

The same steps as the plain ones of this folder, with kernels where those would write and read the
streams, the heads or copies of selected rows again and again. Queries are float16 (normalised, so
none is out of its range), as the stored rows are; scores and sums are float32.
"""

from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.deepseek_v4_ops import HyperWeights, Layer, Projections
from mlx_kernels.deepseek_v4_state import PlainLayerState
from mlx_kernels.deepseek_v4_turns import turns
from mlx_kernels.gpu.deepseek_v4.compressor import extend
from mlx_kernels.gpu.deepseek_v4.grouped import groups_of
from mlx_kernels.gpu.deepseek_v4.prefill_launches import (
    attend,
    attention_bytes,
    heads,
    hyper_read,
    hyper_write,
    index_heads,
    index_rows,
    index_scores,
    pool,
    stored_rows,
    top_k,
)
from mlx_kernels.gpu.deepseek_v4.router import route
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.tf32 import exact_product

_HEAD_DIMS = (256, 512)
_SHARED_BYTES = 227 << 10  # that a block may have on Hopper
_MOST_SCORES = 256 << 20  # float32 values of the indexer at a time: 1 GB


class Prefiller:
    """Runs sublayers of layers whose shape the kernels have."""

    def __init__(self, kernels: CudaKernels, ops: Any, v4: Any) -> None:
        self._kernels, self._ops, self._v4 = kernels, ops, v4
        self._running: mx.array | None = None

    def serves(self, layer: Layer, streams: mx.array) -> bool:
        """Whether these are several positions, and the layer one that the kernels serve."""
        shape = layer.shape
        return (
            streams.shape[0] > 1
            and shape.n_streams == 4
            and shape.n_embd % 4 == 0
            and shape.head_dim in _HEAD_DIMS
            and attention_bytes(shape.head_dim) <= _SHARED_BYTES
            and shape.n_rotary % 4 == 0
            and (layer.ratio != 4 or (shape.index_dim == 128 and shape.index_heads % 16 == 0))
        )

    def attention(self, streams: mx.array, layer: Layer, state: PlainLayerState) -> mx.array:
        """See ``DeepseekV4Ops.attention_sublayer``; the state rounds its rows."""
        x, mix = self._read(streams, layer.attn_hyper, layer)
        projections = self._v4.project(x, layer)
        first = state.n_tokens
        self._store(projections, layer, state)
        mixed = self._attend(projections, layer, state, first)
        groups = groups_of(layer.attention.out_a)
        width = mixed.shape[1] // len(groups)
        low = mx.concatenate(
            [
                self._ops.linear(mixed[:, g * width : (g + 1) * width], weight)  # [T, Ro]
                for g, weight in enumerate(groups)
            ],
            axis=1,
        )  # [T, G Ro]
        y = self._ops.linear(low, layer.attention.out_b)
        return hyper_write(self._kernels, y, None, streams, mix)

    def feed_forward(self, streams: mx.array, layer: Layer, token_ids: np.ndarray) -> mx.array:
        """See ``DeepseekV4Ops.feed_forward_sublayer``."""
        x, mix = self._read(streams, layer.ffn_hyper, layer)
        ids, weights = route(x, layer, token_ids)
        ffn = layer.feed_forward
        hidden = self._ops.swiglu(self._ops.linear(x, ffn.shared_gate_up), ffn.clamp)  # [T, F]
        shared = self._ops.linear(hidden, ffn.shared_down)  # [T, D]
        routed = self._ops.moe(x, ffn.experts, ids, weights, ffn.clamp)
        streams = hyper_write(self._kernels, shared, routed, streams, mix)
        self._start(streams)
        return streams

    def _read(
        self, streams: mx.array, hyper: HyperWeights, layer: Layer
    ) -> tuple[mx.array, mx.array]:
        products = exact_product(streams.reshape(streams.shape[0], -1), hyper.fn)  # [T, 24]
        return hyper_read(self._kernels, streams, products, hyper, layer.shape)

    def _store(self, projections: Projections, layer: Layer, state: PlainLayerState) -> None:
        weights, eps = layer.attention, layer.shape.eps
        n_new = projections.kv.shape[0]
        turn = _turns(state.n_tokens, n_new, layer.frequencies)
        window = stored_rows(self._kernels, projections.kv, weights.kv_norm, *turn, eps)
        state.append_window(window.astype(mx.float32))
        for products, own, part, rounded in (
            (projections.compressor, weights.compressor, state.compressor, stored_rows),
            (projections.index_compressor, weights.index_compressor, state.indexer, index_rows),
        ):
            if part is None:
                continue
            history, at, first_row, n = extend(products, own, part)
            if history is not None:
                pooled = pool(self._kernels, history, at, n, part.ratio, part.width)
                turn = _turns(first_row * part.ratio, n, layer.frequencies, part.ratio)
                part.rows.append(rounded(self._kernels, pooled, own.norm, *turn, eps))

    def _attend(
        self, projections: Projections, layer: Layer, state: PlainLayerState, first: int
    ) -> mx.array:
        weights, shape = layer.attention, layer.shape
        n_new = projections.kv.shape[0]
        cos, sin = _turns(first, n_new, layer.frequencies)
        rank = mx.fast.rms_norm(projections.q_rank, weights.q_norm, shape.eps)  # [T, Rq]
        wide = self._ops.linear(rank, weights.q_b)  # [T, H d]
        queries = heads(self._kernels, wide, shape.n_heads, cos, sin, shape.eps)
        rows = index = None
        if state.compressor is not None and state.compressor.rows.n_rows:
            rows = state.compressor.rows.rows
        if rows is not None and layer.ratio == 4 and rows.shape[0] > shape.top_k:
            index = self._select(rank, projections, layer, state, (cos, sin), first)
        window = state.window_of_block(n_new).astype(mx.float16)  # they were rounded to that
        low = max(0, first - shape.window + 1)
        places = (first, low, shape.window, max(1, layer.ratio))
        return attend(
            self._kernels, queries, window, rows, index, weights.sinks, (cos, sin), places
        )

    def _select(
        self,
        rank: mx.array,
        projections: Projections,
        layer: Layer,
        state: PlainLayerState,
        turn: tuple[mx.array, mx.array],
        first: int,
    ) -> mx.array:
        """The best rows of each position -> [T, k] int32, ascending."""
        shape, rows = layer.shape, state.indexer.rows.rows
        wide = exact_product(rank, layer.attention.index_q_b)
        queries = index_heads(self._kernels, wide, shape.index_heads, *turn)
        weights = projections.index_weights * (shape.index_dim * shape.index_heads) ** -0.5
        step = max(1, _MOST_SCORES // rows.shape[0])
        chosen = []
        for t in range(0, len(queries), step):
            part = queries[t : t + step], weights[t : t + step]
            scores = index_scores(self._kernels, *part, rows, first + t, layer.ratio)
            chosen.append(top_k(self._kernels, scores, shape.top_k))
        return chosen[0] if len(chosen) == 1 else mx.concatenate(chosen)

    def _start(self, streams: mx.array) -> None:
        """Begin to compute a layer, and wait for the one before: two at a time hold memory."""
        mx.async_eval(streams)
        if self._running is not None:
            mx.eval(self._running)
        self._running = streams


def _turns(first: int, n: int, frequencies: np.ndarray, step: int = 1) -> tuple[mx.array, mx.array]:
    cos, sin = turns(first, n, frequencies, step)
    return mx.array(cos), mx.array(sin)
