"""``DeepseekV4Ops`` for MLX arrays; binds the functions of this folder.

Exact matrices are float32, or float16 where that is what the file has and kernels read it; all
others are those of ``Ops.matrix``. One position of a layer that the kernels serve takes the few
launches of ``decode.py``, several positions on device cuda those of ``prefill.py``; everything else
takes the steps of ``deepseek_v4_sublayers.py``.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.deepseek_v4_ops import SLACK_TOKENS, Layer, NetworkShape, Projections
from mlx_kernels.deepseek_v4_state import PlainLayerState, state_bytes
from mlx_kernels.deepseek_v4_sublayers import attention_steps, feed_forward_steps
from mlx_kernels.deepseek_v4_turns import turns
from mlx_kernels.gpu.deepseek_v4 import hyper_connection
from mlx_kernels.gpu.deepseek_v4.attention import Selection, attention
from mlx_kernels.gpu.deepseek_v4.compressor import compress
from mlx_kernels.gpu.deepseek_v4.decode import Decoder, settle
from mlx_kernels.gpu.deepseek_v4.decode_kernels import DecodeKernels
from mlx_kernels.gpu.deepseek_v4.exact import half_matrix
from mlx_kernels.gpu.deepseek_v4.grouped import GroupedWeight, grouped_weight, groups_of
from mlx_kernels.gpu.deepseek_v4.hyper_connection import MlxMix, hc_post
from mlx_kernels.gpu.deepseek_v4.indexer import best_rows
from mlx_kernels.gpu.deepseek_v4.prefill import Prefiller
from mlx_kernels.gpu.deepseek_v4.rotation import turn
from mlx_kernels.gpu.deepseek_v4.rounding import index_row, key_row
from mlx_kernels.gpu.deepseek_v4.router import route
from mlx_kernels.gpu.dense_linear import dense_matrix
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.tf32 import exact_product

_F16 = 1  # key of mlx_kernels.blocks.BLOCK


class MlxDeepseekV4Ops:
    """See ``DeepseekV4Ops``; the products that may round activations are those of ``ops``."""

    hc_pre = staticmethod(hyper_connection.hc_pre)
    attention = staticmethod(attention)
    route = staticmethod(route)
    state_bytes = staticmethod(state_bytes)

    def __init__(
        self,
        ops: Any,
        kernels: DecodeKernels | None = None,
        prefill_kernels: CudaKernels | None = None,
    ) -> None:
        self._ops = ops
        self._decoder = None if kernels is None else Decoder(kernels, ops)
        self._prefiller = None
        if prefill_kernels is not None:
            self._prefiller = Prefiller(prefill_kernels, ops, self)

    def exact_matrix(self, parts: Sequence[PackedMatrix]) -> mx.array:
        """See ``DeepseekV4Ops``."""
        if self._decoder is not None and all(part.type_id == _F16 for part in parts):
            return half_matrix(parts)
        return dense_matrix(parts, is_half=False)

    def exact_matrix_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """See ``DeepseekV4Ops``."""
        return (2 if self._decoder is not None and type_id == _F16 else 4) * prod(shape)

    def experts_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """See ``DeepseekV4Ops``: they are decoded."""
        return self._ops.matrix_bytes(type_id, shape)

    def grouped_matrix(self, matrix: PackedMatrix, n_groups: int) -> list[mx.array] | GroupedWeight:
        """See ``DeepseekV4Ops``."""
        if self._decoder is not None:
            return grouped_weight(self._ops.matrix([matrix]), n_groups)
        rows = matrix.shape[0] // n_groups
        raw = matrix.raw.reshape(n_groups, -1)
        shape = (rows, matrix.shape[1])
        return [
            self._ops.matrix([PackedMatrix(matrix.type_id, raw[g], shape, matrix.name)])
            for g in range(n_groups)
        ]

    def exact_linear(self, x: mx.array, weight: mx.array) -> mx.array:
        """See ``DeepseekV4Ops``."""
        return exact_product(x, weight)

    def integers(self, table: np.ndarray) -> mx.array:
        """See ``DeepseekV4Ops``."""
        integers = mx.array(table)
        mx.eval(integers)  # a lazy array would be bound to this thread
        return integers

    def layer_state(
        self, shape: NetworkShape, ratio: int, max_tokens: int, rounds: bool
    ) -> PlainLayerState:
        """See ``DeepseekV4Ops``."""
        return PlainLayerState(mx, shape, ratio, max_tokens, rounds)

    def streams(self, embedded: mx.array, n_streams: int) -> mx.array:
        """See ``DeepseekV4Ops``."""
        return mx.repeat(embedded[:, None], n_streams, axis=1)

    def attention_sublayer(
        self, streams: mx.array, layer: Layer, state: PlainLayerState
    ) -> mx.array:
        """See ``DeepseekV4Ops``."""
        if self._decoder is not None and state.rounds and self._decoder.serves(layer, streams):
            return self._decoder.attention(streams, layer, state)
        streams = settle(streams)
        if self._prefiller is not None and state.rounds and self._prefiller.serves(layer, streams):
            return self._prefiller.attention(streams, layer, state)
        return attention_steps(self, streams, layer, state)

    def feed_forward_sublayer(
        self, streams: mx.array, layer: Layer, token_ids: np.ndarray
    ) -> mx.array:
        """See ``DeepseekV4Ops``."""
        if self._decoder is not None and self._decoder.serves(layer, streams):
            return self._decoder.feed_forward(streams, layer, token_ids)
        streams = settle(streams)
        if self._prefiller is not None and self._prefiller.serves(layer, streams):
            return self._prefiller.feed_forward(streams, layer, token_ids)
        return feed_forward_steps(self, streams, layer, token_ids)

    def settle(self, streams: mx.array) -> mx.array:
        """See ``DeepseekV4Ops``."""
        return settle(streams)

    def close(self) -> None:
        """See ``DeepseekV4Ops``."""
        if self._decoder is not None:
            self._decoder.close()

    def project(self, x: mx.array, layer: Layer) -> Projections:
        """See ``DeepseekV4Ops``."""
        weights, shape = layer.attention, layer.shape
        both = self._ops.linear(x, weights.input)  # [T, Rq + d]
        q_rank, kv = both[:, : shape.query_rank], both[:, shape.query_rank :]
        if weights.exact_input is None:
            return Projections(q_rank, kv, None, None, None)
        exact = self.exact_linear(x, weights.exact_input)  # [T, 2 w (+ 4 di + Hi)]
        if layer.ratio != 4:
            return Projections(q_rank, kv, exact, None, None)
        first, second = 4 * shape.head_dim, 4 * (shape.head_dim + shape.index_dim)
        return Projections(q_rank, kv, exact[:, :first], exact[:, first:second], exact[:, second:])

    def store(self, projections: Projections, layer: Layer, state: PlainLayerState) -> None:
        """See ``DeepseekV4Ops``."""
        weights, shape, omega = layer.attention, layer.shape, layer.frequencies
        cos, sin = _turns(state.n_tokens, projections.kv.shape[0], omega)
        kv = turn(mx.fast.rms_norm(projections.kv, weights.kv_norm, shape.eps), cos, sin)
        state.append_window(key_row(kv, shape.n_rotary) if state.rounds else kv)
        if state.compressor is not None:
            rows = compress(
                projections.compressor, weights.compressor, state.compressor, omega, shape.eps
            )
            if rows.shape[0]:
                rows = key_row(rows, shape.n_rotary) if state.rounds else rows
                state.compressor.rows.append(rows)
        if state.indexer is not None:
            rows = compress(
                projections.index_compressor,
                weights.index_compressor,
                state.indexer,
                omega,
                shape.eps,
            )
            if rows.shape[0]:
                state.indexer.rows.append(index_row(rows) if state.rounds else rows)

    def queries(
        self, projections: Projections, layer: Layer, state: PlainLayerState
    ) -> tuple[mx.array, mx.array | None]:
        """See ``DeepseekV4Ops``."""
        weights, shape = layer.attention, layer.shape
        n_new = projections.kv.shape[0]
        cos, sin = _turns(state.n_tokens - n_new, n_new, layer.frequencies)
        rank = mx.fast.rms_norm(projections.q_rank, weights.q_norm, shape.eps)  # [T, Rq]
        heads = self._ops.linear(rank, weights.q_b).reshape(n_new, shape.n_heads, shape.head_dim)
        queries = turn(mx.fast.rms_norm(heads, None, shape.eps), cos, sin)  # [T, H, d]
        if weights.index_q_b is None or state.n_tokens // 4 <= shape.top_k:
            return queries, None  # every row is read: nothing to score
        heads = self.exact_linear(rank, weights.index_q_b)
        heads = turn(heads.reshape(n_new, shape.index_heads, shape.index_dim), cos, sin)
        return queries, index_row(heads) if state.rounds else heads  # [T, Hi, di]

    def select(
        self,
        index_queries: mx.array | None,
        projections: Projections,
        layer: Layer,
        state: PlainLayerState,
    ) -> Selection | None:
        """See ``DeepseekV4Ops``."""
        if not layer.ratio:
            return None
        if index_queries is None:
            return Selection(None, layer.ratio, state.n_tokens - projections.kv.shape[0])
        shape, first = layer.shape, state.n_tokens - index_queries.shape[0]
        weights = projections.index_weights * (shape.index_dim * shape.index_heads) ** -0.5
        rows = state.indexer.rows.rows.astype(mx.float32)
        index = best_rows(index_queries, weights, rows, first, layer.ratio, shape.top_k)
        return Selection(index, layer.ratio, first)

    def selected_rows(self, selection: Selection | None, n_positions: int) -> list[np.ndarray]:
        """See ``DeepseekV4Ops``."""
        if selection is None:
            return [np.zeros(0, int)] * n_positions
        counts = [(selection.first + t + 1) // selection.ratio for t in range(n_positions)]
        if selection.index is None:
            return [np.arange(n) for n in counts]
        return [row[row < n] for row, n in zip(np.array(selection.index), counts, strict=True)]

    def logits(self, x: mx.array, norm: mx.array, eps: float, output: mx.array) -> mx.array:
        """See ``DeepseekV4Ops``."""
        return self._ops.normed_linear(x, norm, eps, output)

    def hc_head(
        self,
        streams: mx.array,
        fn: mx.array,
        scale: mx.array,
        base: mx.array,
        shape: NetworkShape,
    ) -> mx.array:
        """See ``DeepseekV4Ops``."""
        if self._decoder is not None:
            mixed = self._decoder.mix_for_head(streams, fn, scale, base, shape)
            if mixed is not None:
                return mixed
        return hyper_connection.hc_head(streams, fn, scale, base, shape)

    def output(self, mixed: mx.array, layer: Layer, streams: mx.array, mix: MlxMix) -> mx.array:
        """See ``DeepseekV4Ops``."""
        groups = groups_of(layer.attention.out_a)
        width = mixed.shape[1] // len(groups)
        parts = [
            self._ops.linear(mixed[:, g * width : (g + 1) * width], weight)  # [T, Ro]
            for g, weight in enumerate(groups)
        ]
        low = mx.concatenate(parts, axis=1)  # [T, G Ro]
        return hc_post(self._ops.linear(low, layer.attention.out_b), streams, mix)

    def feed_forward(
        self,
        x: mx.array,
        ids: mx.array,
        weights: mx.array,
        layer: Layer,
        streams: mx.array,
        mix: MlxMix,
    ) -> mx.array:
        """See ``DeepseekV4Ops``."""
        ffn = layer.feed_forward
        hidden = self._ops.swiglu(self._ops.linear(x, ffn.shared_gate_up), ffn.clamp)  # [T, F]
        y = self._ops.linear(hidden, ffn.shared_down)  # [T, D]
        y = y + self._ops.moe(x, ffn.experts, ids, weights, ffn.clamp)
        streams = hc_post(y, streams, mix)
        if x.shape[0] > SLACK_TOKENS:
            mx.eval(streams)  # a long block's graph over all layers would hold all of their values
        return streams


def _turns(first: int, n: int, frequencies: np.ndarray) -> tuple[mx.array, mx.array]:
    cos, sin = turns(first, n, frequencies)
    return mx.array(cos), mx.array(sin)
