"""Manifold-constrained hyper-connections; the algorithm is told in the cpu world's file."""

from dataclasses import dataclass

import mlx.core as mx

from mlx_kernels.deepseek_v4_ops import HyperWeights, NetworkShape
from mlx_kernels.gpu.tf32 import exact_product


@dataclass(frozen=True, slots=True)
class MlxMix:
    """How a sublayer's result is written back."""

    post: mx.array  # [T, h]
    comb: mx.array  # [T, h, h], from stream (row) to stream (column)


def sinkhorn(a: mx.array, n_iterations: int, eps: float) -> mx.array:
    """Softmax of the rows of [T, h, h], then columns and rows are divided by their sums in turn."""
    a = mx.softmax(a, axis=-1) + eps
    a = a / (a.sum(axis=-2, keepdims=True) + eps)
    for _ in range(n_iterations - 1):
        a = a / (a.sum(axis=-1, keepdims=True) + eps)
        a = a / (a.sum(axis=-2, keepdims=True) + eps)
    return a


def mixes(
    m: mx.array, hyper: HyperWeights, shape: NetworkShape
) -> tuple[mx.array, mx.array, mx.array]:
    """Split m [T, h (h + 2)] -> pre [T, h], post [T, h], comb [T, h, h]."""
    h, scale, base = shape.n_streams, hyper.scale, hyper.base
    pre = mx.sigmoid(m[:, :h] * scale[0] + base[:h]) + shape.hc_eps
    post = 2.0 * mx.sigmoid(m[:, h : 2 * h] * scale[1] + base[h : 2 * h])
    comb = (m[:, 2 * h :] * scale[2] + base[2 * h :]).reshape(-1, h, h)
    return pre, post, sinkhorn(comb, shape.n_sinkhorn, shape.hc_eps)


def _flat_normed(streams: mx.array, eps: float) -> mx.array:
    """[T, h, D] -> [T, h D], divided by the root of the mean square over all streams."""
    return mx.fast.rms_norm(streams.reshape(streams.shape[0], -1), None, eps)


def _weighted_sum(weights: mx.array, streams: mx.array) -> mx.array:
    """weights [T, h] of streams [T, h, D] -> [T, D]."""
    return (weights[:, :, None] * streams).sum(axis=1)


def hc_pre(streams: mx.array, hyper: HyperWeights, shape: NetworkShape) -> tuple[mx.array, MlxMix]:
    """See ``DeepseekV4Ops``."""
    m = exact_product(_flat_normed(streams, shape.eps), hyper.fn)  # [T, 24]
    pre, post, comb = mixes(m, hyper, shape)
    x = mx.fast.rms_norm(_weighted_sum(pre, streams), hyper.norm, shape.eps)  # [T, D]
    return x, MlxMix(post, comb)


def hc_post(y: mx.array, streams: mx.array, mix: MlxMix) -> mx.array:
    """Write a sublayer's result y [T, D] to the streams [T, h, D], mixing them -> [T, h, D]."""
    out = mix.post[:, :, None] * y[:, None]
    for a in range(streams.shape[1]):
        out = out + mix.comb[:, a, :, None] * streams[:, a, None]
    return out


def hc_head(
    streams: mx.array, fn: mx.array, scale: mx.array, base: mx.array, shape: NetworkShape
) -> mx.array:
    """See ``DeepseekV4Ops``: neither Sinkhorn nor writing back."""
    m = exact_product(_flat_normed(streams, shape.eps), fn)  # [T, h]
    return _weighted_sum(mx.sigmoid(m * scale + base) + shape.hc_eps, streams)
