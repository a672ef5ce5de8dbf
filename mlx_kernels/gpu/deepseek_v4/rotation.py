"""Rotary positions of the last values of a head; neighbours are a pair."""

import mlx.core as mx


def turn(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """Turn x [T, ..., d] by cos, sin [T, r / 2]; its first d - r values stay."""
    n_rotary = 2 * cos.shape[-1]
    n = x.shape[-1] - n_rotary
    at = (cos.shape[0], *[1] * (x.ndim - 2), cos.shape[-1])
    cos, sin = cos.reshape(at), sin.reshape(at)
    a, b = x[..., n::2], x[..., n + 1 :: 2]
    pairs = mx.stack([a * cos - b * sin, a * sin + b * cos], axis=-1)  # [T, ..., r / 2, 2]
    return mx.concatenate([x[..., :n], pairs.reshape(*x.shape[:-1], n_rotary)], axis=-1)
