"""``DeepseekV4Ops`` for NumPy arrays; binds the functions of this folder.

Products with exact matrices are always exact. The others (Q8_0 projections, experts) are those of
the cpu world, which rounds the activations of up to 16 positions to 8 bits: twice as fast where
a person waits, and like antirez/ds4 on a CPU. ``exact_products`` turns that off.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.cpu.deepseek_v4 import hyper_connection
from mlx_kernels.cpu.deepseek_v4.attention import attention
from mlx_kernels.cpu.deepseek_v4.compressor import compress
from mlx_kernels.cpu.deepseek_v4.hyper_connection import CpuMix, hc_post
from mlx_kernels.cpu.deepseek_v4.indexer import best_rows, scores
from mlx_kernels.cpu.deepseek_v4.products import (
    exact_linear,
    exact_matrix,
    exact_moe,
    grouped_matrix,
)
from mlx_kernels.cpu.deepseek_v4.rotation import turn
from mlx_kernels.cpu.deepseek_v4.rounding import index_row, key_row
from mlx_kernels.cpu.deepseek_v4.router import route
from mlx_kernels.cpu.linear import Weight, matrix_bytes
from mlx_kernels.cpu.norm import rms_norm
from mlx_kernels.deepseek_v4_ops import Layer, NetworkShape, Projections
from mlx_kernels.deepseek_v4_state import PlainLayerState, state_bytes
from mlx_kernels.deepseek_v4_sublayers import attention_steps, feed_forward_steps
from mlx_kernels.deepseek_v4_turns import turns


class CpuDeepseekV4Ops:
    """See ``DeepseekV4Ops``; the products that may round activations are those of ``ops``."""

    exact_linear = staticmethod(exact_linear)
    hc_pre = staticmethod(hyper_connection.hc_pre)
    hc_head = staticmethod(hyper_connection.hc_head)
    attention = staticmethod(attention)
    route = staticmethod(route)
    state_bytes = staticmethod(state_bytes)

    def __init__(self, ops: Any, is_native: bool, exact_products: bool) -> None:
        self._ops = ops
        self._is_native = is_native
        self._linear = exact_linear if exact_products else ops.linear
        self._moe = exact_moe if exact_products else ops.moe

    def exact_matrix(self, parts: Sequence[PackedMatrix]) -> Weight:
        """See ``DeepseekV4Ops``."""
        return exact_matrix(parts, self._is_native)

    def exact_matrix_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """See ``DeepseekV4Ops``."""
        return matrix_bytes(type_id, shape, self._is_native)

    def experts_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """See ``DeepseekV4Ops``: they stay packed."""
        return prod(shape) // BLOCK[type_id].n_values * BLOCK[type_id].n_bytes

    def grouped_matrix(self, matrix: PackedMatrix, n_groups: int) -> list[Weight]:
        """See ``DeepseekV4Ops``."""
        return grouped_matrix(matrix, n_groups, self._is_native)

    def integers(self, table: np.ndarray) -> np.ndarray:
        """See ``DeepseekV4Ops``."""
        return table

    def layer_state(
        self, shape: NetworkShape, ratio: int, max_tokens: int, rounds: bool
    ) -> PlainLayerState:
        """See ``DeepseekV4Ops``."""
        return PlainLayerState(np, shape, ratio, max_tokens, rounds)

    def streams(self, embedded: np.ndarray, n_streams: int) -> np.ndarray:
        """See ``DeepseekV4Ops``."""
        return np.repeat(embedded[:, None], n_streams, axis=1)

    def attention_sublayer(
        self, streams: np.ndarray, layer: Layer, state: PlainLayerState
    ) -> np.ndarray:
        """See ``DeepseekV4Ops``."""
        return attention_steps(self, streams, layer, state)

    def feed_forward_sublayer(
        self, streams: np.ndarray, layer: Layer, token_ids: np.ndarray
    ) -> np.ndarray:
        """See ``DeepseekV4Ops``."""
        return feed_forward_steps(self, streams, layer, token_ids)

    def settle(self, streams: np.ndarray) -> np.ndarray:
        """See ``DeepseekV4Ops``."""
        return streams

    def close(self) -> None:
        """See ``DeepseekV4Ops``."""

    def project(self, x: np.ndarray, layer: Layer) -> Projections:
        """See ``DeepseekV4Ops``."""
        weights, shape = layer.attention, layer.shape
        both = self._linear(x, weights.input)  # [T, Rq + d]
        q_rank, kv = both[:, : shape.query_rank], both[:, shape.query_rank :]
        if weights.exact_input is None:
            return Projections(q_rank, kv, None, None, None)
        exact = exact_linear(x, weights.exact_input)  # [T, 2 w (+ 4 di + Hi)]
        if layer.ratio != 4:
            return Projections(q_rank, kv, exact, None, None)
        first, second = 4 * shape.head_dim, 4 * (shape.head_dim + shape.index_dim)
        return Projections(q_rank, kv, exact[:, :first], exact[:, first:second], exact[:, second:])

    def store(self, projections: Projections, layer: Layer, state: PlainLayerState) -> None:
        """See ``DeepseekV4Ops``."""
        weights, shape, omega = layer.attention, layer.shape, layer.frequencies
        cos, sin = turns(state.n_tokens, len(projections.kv), omega)
        kv = turn(rms_norm(projections.kv, weights.kv_norm, shape.eps), cos, sin)
        state.append_window(key_row(kv, shape.n_rotary) if state.rounds else kv)
        if state.compressor is not None:
            rows = compress(
                projections.compressor, weights.compressor, state.compressor, omega, shape.eps
            )
            state.compressor.rows.append(key_row(rows, shape.n_rotary) if state.rounds else rows)
        if state.indexer is not None:
            rows = compress(
                projections.index_compressor,
                weights.index_compressor,
                state.indexer,
                omega,
                shape.eps,
            )
            state.indexer.rows.append(index_row(rows) if state.rounds else rows)

    def queries(
        self, projections: Projections, layer: Layer, state: PlainLayerState
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """See ``DeepseekV4Ops``."""
        weights, shape = layer.attention, layer.shape
        n_new = len(projections.kv)
        cos, sin = turns(state.n_tokens - n_new, n_new, layer.frequencies)
        rank = rms_norm(projections.q_rank, weights.q_norm, shape.eps)  # [T, Rq]
        heads = self._linear(rank, weights.q_b).reshape(n_new, shape.n_heads, shape.head_dim)
        queries = turn(rms_norm(heads, np.float32(1), shape.eps), cos, sin)  # [T, H, d]
        n_rows = state.n_tokens // 4
        if weights.index_q_b is None or n_rows <= shape.top_k:
            return queries, None  # every row is read: nothing to score
        heads = exact_linear(rank, weights.index_q_b)
        heads = turn(heads.reshape(n_new, shape.index_heads, shape.index_dim), cos, sin)
        return queries, index_row(heads) if state.rounds else heads  # [T, Hi, di]

    def select(
        self,
        index_queries: np.ndarray | None,
        projections: Projections,
        layer: Layer,
        state: PlainLayerState,
    ) -> list[np.ndarray] | None:
        """See ``DeepseekV4Ops``."""
        if not layer.ratio:
            return None
        shape, n_new = layer.shape, len(projections.kv)
        first = state.n_tokens - n_new
        counts = [(first + t + 1) // layer.ratio for t in range(n_new)]
        if index_queries is None:
            return [np.arange(n) for n in counts]
        scale = np.float32((shape.index_dim * shape.index_heads) ** -0.5)
        weights = projections.index_weights * scale  # [T, Hi]
        rows = state.indexer.rows.rows.astype(np.float32)
        return [
            best_rows(scores(index_queries[t], weights[t], rows[:n]), shape.top_k)
            if n > shape.top_k
            else np.arange(n)
            for t, n in enumerate(counts)
        ]

    def selected_rows(
        self, selection: list[np.ndarray] | None, n_positions: int
    ) -> list[np.ndarray]:
        """See ``DeepseekV4Ops``."""
        return [np.zeros(0, int)] * n_positions if selection is None else selection

    def logits(self, x: np.ndarray, norm: np.ndarray, eps: float, output: Weight) -> np.ndarray:
        """See ``DeepseekV4Ops``."""
        return self._linear(rms_norm(x, norm, eps), output)

    def output(
        self, mixed: np.ndarray, layer: Layer, streams: np.ndarray, mix: CpuMix
    ) -> np.ndarray:
        """See ``DeepseekV4Ops``."""
        groups = layer.attention.out_a
        width = mixed.shape[1] // len(groups)
        parts = [
            self._linear(mixed[:, g * width : (g + 1) * width], weight)  # [T, Ro]
            for g, weight in enumerate(groups)
        ]
        low = np.concatenate(parts, axis=1)  # [T, G Ro]
        return hc_post(self._linear(low, layer.attention.out_b), streams, mix)

    def feed_forward(
        self,
        x: np.ndarray,
        ids: np.ndarray,
        weights: np.ndarray,
        layer: Layer,
        streams: np.ndarray,
        mix: Any,
    ) -> np.ndarray:
        """See ``DeepseekV4Ops``."""
        ffn = layer.feed_forward
        hidden = self._ops.swiglu(self._linear(x, ffn.shared_gate_up), ffn.clamp)  # [T, F]
        y = self._linear(hidden, ffn.shared_down)  # [T, D]
        y += self._moe(x, ffn.experts, ids, weights, ffn.clamp)
        return hc_post(y, streams, mix)
