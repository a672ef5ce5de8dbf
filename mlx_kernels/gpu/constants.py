"""Constants of launches: small arrays in the device's own memory, and numbers for templates."""

import struct
from collections.abc import Sequence
from functools import lru_cache

import mlx.core as mx

_N_VALUES = 32


def on_device(values: Sequence[float], dtype: mx.Dtype) -> mx.array:
    """[32] values, zeros at the end, evaluated.

    MLX leaves an array of up to 8 bytes that comes from the host in the host's memory, and every
    block of a CUDA launch would read it over the bus. Results of operations lie on the device.
    """
    array = mx.pad(mx.array(values, dtype), (0, _N_VALUES - len(values)))
    mx.eval(array)
    return array


@lru_cache(maxsize=64)
def scalar(value: float) -> mx.array:
    """[32] float32 that begins with a number; kept: a constant is sent to the device once."""
    return on_device([value], mx.float32)


@lru_cache(maxsize=64)
def pair(first: int, second: int) -> mx.array:
    """[32] int32 that begins with two numbers, kept."""
    return on_device([first, second], mx.int32)


@lru_cache(maxsize=64)
def zeros(n: int) -> mx.array:
    """[n] float32, kept."""
    array = mx.zeros((n,))
    mx.eval(array)
    return array


def float_bits(value: float) -> int:
    """The bits of a float32 as a signed integer: template values are whole numbers."""
    bits: int = struct.unpack("<i", struct.pack("<f", value))[0]
    return bits
