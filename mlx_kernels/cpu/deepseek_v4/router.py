"""The router: which experts a token uses, and how much each counts.

An expert's affinity is sqrt(softplus(z)). The first layers take the experts from a table by token
id; the others take the K best after a learned bias is added, which balances the load. The weights
are the affinities without bias in both, normalised over the chosen ones.
"""

import numpy as np

from mlx_kernels.cpu.deepseek_v4.products import exact_linear
from mlx_kernels.deepseek_v4_ops import Layer

# A chosen set whose affinities are all nearly 0 would divide by 0; as in antirez/ds4.
_LEAST_SUM = np.float32(2.0**-14)


def affinity(z: np.ndarray) -> np.ndarray:
    """sqrt(softplus(z)); above 20 softplus is z to float32."""
    return np.sqrt(np.where(z > 20, z, np.log1p(np.exp(np.minimum(z, np.float32(20))))))


def route(x: np.ndarray, layer: Layer, token_ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """See ``DeepseekV4Ops``."""
    weights, shape = layer.feed_forward, layer.shape
    p = affinity(exact_linear(x, weights.router))  # [T, E]
    if weights.table is not None:
        ids = weights.table[token_ids]  # [T, K]
    else:
        # Stable: the lowest id first among equals.
        ids = np.argsort(-(p + weights.bias), axis=1, kind="stable")[:, : shape.n_used]
    chosen = np.take_along_axis(p, ids, axis=1)
    total = np.maximum(chosen.sum(1, keepdims=True), _LEAST_SUM)
    return ids.astype(np.int32), np.float32(shape.expert_scale) * chosen / total
