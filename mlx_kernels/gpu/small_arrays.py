"""Small constant arrays of kernels, kept on the device: each is sent there once."""

from functools import lru_cache

import mlx.core as mx


@lru_cache(maxsize=256)
def floats(*values: float) -> mx.array:
    """[n] float32, evaluated."""
    array = mx.array(values, mx.float32)
    mx.eval(array)
    return array


@lru_cache(maxsize=256)
def integers(*values: int) -> mx.array:
    """[n] int32, evaluated."""
    array = mx.array(values, mx.int32)
    mx.eval(array)
    return array
