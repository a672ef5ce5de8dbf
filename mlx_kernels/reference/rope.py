"""Rotary positions."""

import numpy as np

from mlx_kernels.ops import RopeSpec


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
