"""Small arrays that decode kernels read: sizes, numbers, positions and angles.

A number in an array needs no compile; a value of a template does. All are evaluated and kept, so
that a token sends each of them to the device at most once, for all layers. None is as small as 8
bytes: MLX would leave it in the host's memory (see ``mlx_kernels.gpu.constants``).
"""

from functools import lru_cache

import mlx.core as mx
import numpy as np

from mlx_kernels.deepseek_v4_turns import turns
from mlx_kernels.gpu.constants import on_device

_N_VALUES = 8  # that change with the position, zeros at the end


def _kept(array: mx.array) -> mx.array:
    mx.eval(array)
    return array


@lru_cache(maxsize=64)
def integers(*values: int) -> mx.array:
    """[32] int32 that begins with sizes of a layer."""
    return on_device(values, mx.int32)


@lru_cache(maxsize=64)
def numbers(*values: float) -> mx.array:
    """[32] float32 that begins with numbers of a layer."""
    return on_device(values, mx.float32)


@lru_cache(maxsize=64)
def now(*values: int) -> mx.array:
    """[8] int32 that begins with what changes from position to position."""
    return _kept(mx.array([*values, *[0] * (_N_VALUES - len(values))], mx.int32))


@lru_cache(maxsize=4)
def nothing(dtype: mx.Dtype) -> mx.array:
    """In place of an input that a kernel does not read: 16 zeros, since fewer than 8 elements would
    lie in another address space of Metal."""
    return _kept(mx.zeros(16, dtype))


def turn_of(position: int, frequencies: np.ndarray) -> mx.array:
    """Cosines, then sines of a position's angles: [r] float32."""
    return _turn(position, frequencies.tobytes())


@lru_cache(maxsize=8)
def _turn(position: int, frequencies: bytes) -> mx.array:
    cos, sin = turns(position, 1, np.frombuffer(frequencies, np.float64))
    return _kept(mx.array(np.concatenate([cos[0], sin[0]])))
