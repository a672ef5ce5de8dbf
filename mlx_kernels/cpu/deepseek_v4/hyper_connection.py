"""Manifold-constrained hyper-connections: four residual streams instead of one.

From all streams of a token, normalised together, 24 numbers are computed: how much of each stream a
sublayer reads (*pre*), how much of its result each stream gets (*post*), and a 4 x 4 matrix by
which the streams mix meanwhile (*comb*). Sinkhorn's iteration makes that matrix doubly stochastic,
so the streams neither grow nor vanish over many layers.
"""

from dataclasses import dataclass

import numpy as np

from mlx_kernels.cpu.deepseek_v4.products import exact_linear
from mlx_kernels.cpu.norm import rms_norm
from mlx_kernels.deepseek_v4_ops import HyperWeights, NetworkShape


@dataclass(frozen=True, slots=True)
class CpuMix:
    """How a sublayer's result is written back."""

    post: np.ndarray  # [T, h]
    comb: np.ndarray  # [T, h, h], from stream (row) to stream (column)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)); exp may overflow to infinity, which gives the right 0."""
    with np.errstate(over="ignore"):
        return np.float32(1) / (np.float32(1) + np.exp(-x))


def sinkhorn(a: np.ndarray, n_iterations: int, eps: float) -> np.ndarray:
    """Softmax of the rows of [T, h, h], then columns and rows are divided by their sums in turn."""
    eps = np.float32(eps)
    a = np.exp(a - a.max(-1, keepdims=True))
    a = a / a.sum(-1, keepdims=True) + eps
    a /= a.sum(-2, keepdims=True) + eps
    for _ in range(n_iterations - 1):
        a /= a.sum(-1, keepdims=True) + eps
        a /= a.sum(-2, keepdims=True) + eps
    return a


def mixes(
    m: np.ndarray, hyper: HyperWeights, shape: NetworkShape
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split m [T, h (h + 2)] -> pre [T, h], post [T, h], comb [T, h, h]."""
    h, scale, base = shape.n_streams, hyper.scale, hyper.base
    pre = sigmoid(m[:, :h] * scale[0] + base[:h]) + np.float32(shape.hc_eps)
    post = np.float32(2) * sigmoid(m[:, h : 2 * h] * scale[1] + base[h : 2 * h])
    comb = (m[:, 2 * h :] * scale[2] + base[2 * h :]).reshape(-1, h, h)
    return pre, post, sinkhorn(comb, shape.n_sinkhorn, shape.hc_eps)


def flat_normed(streams: np.ndarray, eps: float) -> np.ndarray:
    """[T, h, D] -> [T, h D], divided by the root of the mean square over all streams."""
    return rms_norm(streams.reshape(len(streams), -1), np.float32(1), eps)


def weighted_sum(weights: np.ndarray, streams: np.ndarray) -> np.ndarray:
    """weights [T, h] of streams [T, h, D] -> [T, D], summed in the order of the streams."""
    total = weights[:, 0, None] * streams[:, 0]
    for i in range(1, streams.shape[1]):
        total += weights[:, i, None] * streams[:, i]
    return total


def hc_pre(
    streams: np.ndarray, hyper: HyperWeights, shape: NetworkShape
) -> tuple[np.ndarray, CpuMix]:
    """See ``DeepseekV4Ops``."""
    m = exact_linear(flat_normed(streams, shape.eps), hyper.fn)  # [T, 24]
    pre, post, comb = mixes(m, hyper, shape)
    x = rms_norm(weighted_sum(pre, streams), hyper.norm, shape.eps)  # [T, D]
    return x, CpuMix(post, comb)


def hc_post(y: np.ndarray, streams: np.ndarray, mix: CpuMix) -> np.ndarray:
    """Write a sublayer's result y [T, D] to the streams [T, h, D], mixing them -> [T, h, D]."""
    out = np.empty_like(streams)
    for b in range(streams.shape[1]):
        out[:, b] = mix.post[:, b, None] * y + weighted_sum(mix.comb[:, :, b], streams)
    return out


def hc_head(
    streams: np.ndarray, fn: object, scale: np.ndarray, base: np.ndarray, shape: NetworkShape
) -> np.ndarray:
    """See ``DeepseekV4Ops``: neither Sinkhorn nor writing back."""
    m = exact_linear(flat_normed(streams, shape.eps), fn)  # [T, h]
    return weighted_sum(sigmoid(m * scale + base) + np.float32(shape.hc_eps), streams)
