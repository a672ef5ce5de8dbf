"""The rounding of cached rows: FP8, FP4 and the Hadamard turn, in float32 by bit patterns.

The network was trained with rows that went through these round trips, so they are part of it.
Scales are powers of two: dividing by one is exact, and only the rounding to the small grid is left.
"""

import numpy as np

_EXPONENT = np.uint32(0x7F800000)
_FP8_MAX, _FP8_FLOOR = np.float32(448), np.float32(1e-4)
_FP4_MAX, _FP4_FLOOR = np.float32(6), np.float32(6 * 2.0**-126)
_HADAMARD_SCALE = np.float32(128**-0.5)


def power_of_two_at_least(x: np.ndarray) -> np.ndarray:
    """2 ** ceil(log2(x)) of normal positive float32: any mantissa bit carries into the exponent."""
    return ((x.view(np.uint32) + np.uint32(0x007FFFFF)) & _EXPONENT).view(np.float32)


def _keep_bits(magnitude: np.ndarray, n_dropped: int) -> np.ndarray:
    """Round float32 to the mantissa without its last bits, ties to even."""
    bits = magnitude.view(np.uint32)
    odd = (bits >> np.uint32(n_dropped)) & np.uint32(1)
    bits = bits + np.uint32((1 << (n_dropped - 1)) - 1) + odd
    return (bits & np.uint32(0xFFFFFFFF << n_dropped & 0xFFFFFFFF)).view(np.float32)


def _to_multiples(magnitude: np.ndarray, step: float) -> np.ndarray:
    """Round to multiples of a power of two, ties to even: float32 at 2 ** 23 steps has no finer
    ones."""
    big = np.float32(step * 2.0**23)
    return (magnitude + big) - big


def to_e4m3(x: np.ndarray) -> np.ndarray:
    """Round float32 of at most 448 to FP8: 3 mantissa bits, below 2 ** -6 multiples of 2 ** -9."""
    a = np.abs(x)
    rounded = np.where(a < np.float32(2**-6), _to_multiples(a, 2**-9), _keep_bits(a, 20))
    return np.copysign(rounded, x)


def to_e2m1(x: np.ndarray) -> np.ndarray:
    """Round float32 of at most 6 to FP4: one mantissa bit, below 1 multiples of 1/2."""
    a = np.abs(x)
    rounded = np.where(a < 1, _to_multiples(a, 0.5), _keep_bits(a, 22))
    return np.copysign(rounded, x)


def fp8_blocks(x: np.ndarray) -> np.ndarray:
    """Round trip of x [..., 64 n] through FP8, 64 values to a scale."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // 64, 64)
    largest = np.maximum(np.abs(blocks).max(-1, keepdims=True), _FP8_FLOOR)
    scale = power_of_two_at_least(largest / _FP8_MAX)
    return (to_e4m3(np.clip(blocks / scale, -_FP8_MAX, _FP8_MAX)) * scale).reshape(x.shape)


def fp4_blocks(x: np.ndarray) -> np.ndarray:
    """Round trip of x [..., 32 n] through FP4, 32 values to a scale."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // 32, 32)
    largest = np.maximum(np.abs(blocks).max(-1, keepdims=True), _FP4_FLOOR)
    scale = power_of_two_at_least(largest / _FP4_MAX)
    return (to_e2m1(np.clip(blocks / scale, -_FP4_MAX, _FP4_MAX)) * scale).reshape(x.shape)


def hadamard(x: np.ndarray) -> np.ndarray:
    """Orthonormal Walsh-Hadamard transform of x [..., 128], Sylvester order, by butterflies."""
    stride = 1
    while stride < x.shape[-1]:
        pairs = x.reshape(*x.shape[:-1], x.shape[-1] // (2 * stride), 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = np.stack([a + b, a - b], axis=-2).reshape(x.shape)
        stride *= 2
    return x * _HADAMARD_SCALE


def key_row(x: np.ndarray, n_rotary: int) -> np.ndarray:
    """Round turned rows [..., d]: FP8 but for the rotary values, then float16 for all."""
    n = x.shape[-1] - n_rotary
    rounded = np.concatenate([fp8_blocks(np.ascontiguousarray(x[..., :n])), x[..., n:]], axis=-1)
    return rounded.astype(np.float16).astype(np.float32)


def index_row(x: np.ndarray) -> np.ndarray:
    """Turn and round indexer rows and queries [..., 128]. Exact in float16."""
    return fp4_blocks(hadamard(x))
