"""The two sublayers of a DeepSeek V4 layer as a sequence of single operations.

Every world can run them so; a world with kernels for a decoded position has shorter sequences.
"""

from typing import Any

import numpy as np

from mlx_kernels.deepseek_v4_ops import DeepseekV4Ops, Layer, LayerState

Array = Any


def attention_steps(v4: DeepseekV4Ops, streams: Array, layer: Layer, state: LayerState) -> Array:
    """See ``DeepseekV4Ops.attention_sublayer``."""
    x, mix = v4.hc_pre(streams, layer.attn_hyper, layer.shape)  # [T, D]
    projections = v4.project(x, layer)
    # A token sees its own row, and the compressed row that it completes.
    v4.store(projections, layer, state)
    queries, index_queries = v4.queries(projections, layer, state)  # [T, H, d], [T, Hi, di]
    selection = v4.select(index_queries, projections, layer, state)
    mixed = v4.attention(queries, selection, layer, state)  # [T, H d]
    return v4.output(mixed, layer, streams, mix)


def feed_forward_steps(
    v4: DeepseekV4Ops, streams: Array, layer: Layer, token_ids: np.ndarray
) -> Array:
    """See ``DeepseekV4Ops.feed_forward_sublayer``."""
    x, mix = v4.hc_pre(streams, layer.ffn_hyper, layer.shape)  # [T, D]
    ids, weights = v4.route(x, layer, token_ids)  # [T, K]
    return v4.feed_forward(x, ids, weights, layer, streams, mix)
