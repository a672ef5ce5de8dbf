"""The rounding of cached rows, spelled out in float64: FP8 E4M3, FP4 E2M1 and the Hadamard turn.

DeepSeek V4 was trained with these, so they are part of the network. Every value of a grid is
written down and the nearest is searched: slow, and hard to get wrong.
"""

import numpy as np

# Exponent and mantissa of the codes 0 to 126; 127 is NaN. The largest number is 448.
_CODES = [divmod(code, 8) for code in range(127)]
E4M3 = np.array([m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7) for e, m in _CODES])
E2M1 = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def nearest(x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    """Round magnitudes to the grid; between two, to the one with the even code."""
    magnitude = np.abs(x)
    above = np.clip(np.searchsorted(grid, magnitude), 1, len(grid) - 1)
    below = above - 1
    down, up = magnitude - grid[below], grid[above] - magnitude
    takes_upper = (up < down) | ((up == down) & (above % 2 == 0))
    return np.where(takes_upper, grid[above], grid[below]) * np.where(x < 0, -1.0, 1.0)


def power_of_two_at_least(x: np.ndarray) -> np.ndarray:
    """2 ** ceil(log2(x)), exact for powers of two."""
    mantissa, exponent = np.frexp(x)  # x = mantissa * 2 ** exponent, 0.5 <= mantissa < 1
    return np.ldexp(1.0, exponent - (mantissa == 0.5))


def _round_blocks(x: np.ndarray, block: int, grid: np.ndarray, floor: float) -> np.ndarray:
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // block, block)
    largest = np.maximum(np.abs(blocks).max(-1, keepdims=True), floor)
    scale = power_of_two_at_least(largest / grid[-1])
    return (nearest(np.clip(blocks / scale, -grid[-1], grid[-1]), grid) * scale).reshape(x.shape)


def fp8_blocks_of_64(x: np.ndarray) -> np.ndarray:
    """Round trip of the last axis through FP8, 64 values to a power-of-two scale."""
    return _round_blocks(x, 64, E4M3, 1e-4)


def fp4_blocks_of_32(x: np.ndarray) -> np.ndarray:
    """Round trip of the last axis through FP4, 32 values to a power-of-two scale."""
    return _round_blocks(x, 32, E2M1, 6 * 2.0**-126)


def hadamard(x: np.ndarray) -> np.ndarray:
    """Multiply the last axis by the orthonormal Sylvester matrix."""
    matrix = np.ones((1, 1))
    while len(matrix) < x.shape[-1]:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return x @ matrix / np.sqrt(x.shape[-1])
