"""Slow, obvious versions of the operations, in float64. The tests compare both worlds with them.

Axes as in ``mlx_kernels.ops``. Nothing here is used to run a model.
"""

import numpy as np

from mlx_kernels.ops import RopeSpec


def linear(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
) -> np.ndarray:
    """[T, in] times [out, in] transposed, plus [out] and [T, out] -> [T, out]."""
    product = np.zeros((len(x), len(weight)))
    for t, row in enumerate(x.astype(np.float64)):
        for o, column in enumerate(weight.astype(np.float64)):
            product[t, o] = (row * column).sum() + (0.0 if bias is None else bias[o])
    return product if residual is None else product + residual


def normed_linear(
    x: np.ndarray,
    norm: np.ndarray,
    eps: float,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """The product of the normalised input."""
    return linear(rms_norm(x, norm, eps), weight, bias)


def gated_linear(x: np.ndarray, norm: np.ndarray, eps: float, gate_up: np.ndarray) -> np.ndarray:
    """swiglu of the product of the normalised input."""
    return swiglu(normed_linear(x, norm, eps, gate_up))


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """Divide by the root mean square of the last axis, times weight."""
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight


def rope(x: np.ndarray, first_position: int, spec: RopeSpec) -> np.ndarray:
    """Turn each pair of [T, H, D] as a complex number."""
    n_positions, n_heads, width = x.shape
    turned = np.zeros(x.shape)
    for t in range(n_positions):
        for j, frequency in enumerate(spec.frequencies):
            a, b = (2 * j, 2 * j + 1) if spec.interleaved else (j, j + width // 2)
            turn = spec.magnitude * np.exp(1j * (first_position + t) * frequency)
            for h in range(n_heads):
                pair = complex(x[t, h, a], x[t, h, b]) * turn
                turned[t, h, a], turned[t, h, b] = pair.real, pair.imag
    return turned


def swiglu(gate_up: np.ndarray) -> np.ndarray:
    """silu(first half) * second half of the last axis."""
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=-1)
    return gate / (1.0 + np.exp(-gate)) * up


def attention(queries: np.ndarray, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Causal attention of the last T of N positions.

    Args:
        queries: [T, H, D].
        keys: [N, Hkv, D], rounded to float16 before use, as a cache holds them.
        values: [N, Hkv, D], likewise.

    Returns:
        [T, H * D].
    """
    n_new, n_heads, width = queries.shape
    n_rows, n_kv_heads, _ = keys.shape
    keys, values = (rows.astype(np.float16).astype(np.float64) for rows in (keys, values))
    mixed = np.zeros((n_new, n_heads, width))
    for t in range(n_new):
        n_seen = n_rows - n_new + t + 1
        for h in range(n_heads):
            kv_head = h * n_kv_heads // n_heads
            scores = keys[:n_seen, kv_head] @ queries[t, h] / np.sqrt(width)
            weights = np.exp(scores - scores.max())
            mixed[t, h] = weights @ values[:n_seen, kv_head] / weights.sum()
    return mixed.reshape(n_new, n_heads * width)
