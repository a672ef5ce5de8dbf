"""Rotary positions of the last values of a head; neighbours are a pair."""

import numpy as np


def turn(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Turn x [T, ..., d] by cos, sin [T, r / 2]; its first d - r values stay."""
    n = x.shape[-1] - 2 * cos.shape[-1]
    at = (len(cos), *[1] * (x.ndim - 2), cos.shape[-1])
    cos, sin = cos.reshape(at), sin.reshape(at)
    a, b = x[..., n::2], x[..., n + 1 :: 2]
    out = x.copy()
    out[..., n::2] = a * cos - b * sin
    out[..., n + 1 :: 2] = a * sin + b * cos
    return out
