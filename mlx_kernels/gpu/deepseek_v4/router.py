"""The router; the algorithm is told in the cpu world's file."""

import mlx.core as mx
import numpy as np

from mlx_kernels.deepseek_v4_ops import Layer
from mlx_kernels.gpu.deepseek_v4.top_k import top_k
from mlx_kernels.gpu.tf32 import exact_product

_LEAST_SUM = 2.0**-14  # as in the cpu world


def affinity(z: mx.array) -> mx.array:
    """sqrt(softplus(z)); above 20 softplus is z to float32."""
    return mx.sqrt(mx.where(z > 20.0, z, mx.log1p(mx.exp(mx.minimum(z, 20.0)))))


def route(x: mx.array, layer: Layer, token_ids: np.ndarray) -> tuple[mx.array, mx.array]:
    """See ``DeepseekV4Ops``. The ids of a choice by score are ascending."""
    weights, shape = layer.feed_forward, layer.shape
    p = affinity(exact_product(x, weights.router))  # [T, E]
    if weights.table is not None:
        ids = weights.table[mx.array(token_ids)]  # [T, K]
    else:
        ids = top_k(p + weights.bias, shape.n_used)
    chosen = mx.take_along_axis(p, ids, axis=1)
    total = mx.maximum(chosen.sum(axis=1, keepdims=True), _LEAST_SUM)
    return ids, shape.expert_scale * chosen / total
