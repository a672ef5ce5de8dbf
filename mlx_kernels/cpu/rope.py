"""Rotary positions: pairs of values turn by angles that grow with the position."""

import numpy as np

from mlx_kernels.ops import RopeSpec


class Rope:
    """Turns queries and keys. Remembers the last angles: every layer asks for the same ones."""

    def __init__(self) -> None:
        self._key: tuple[int, int, RopeSpec | None] = (0, 0, None)
        self._turns = (np.empty(0), np.empty(0))

    def turn(self, x: np.ndarray, first_position: int, spec: RopeSpec) -> np.ndarray:
        """Rotate x [T, H, D], whose rows are positions ``first_position``, +1, ..."""
        cos, sin = self._turns_of(first_position, len(x), spec)  # [T, 1, D / 2]
        half = x.shape[-1] // 2
        if spec.interleaved:
            first, second = np.s_[..., 0::2], np.s_[..., 1::2]
        else:
            first, second = np.s_[..., :half], np.s_[..., half:]
        turned = np.empty_like(x)
        turned[first] = x[first] * cos - x[second] * sin
        turned[second] = x[first] * sin + x[second] * cos
        return turned

    def _turns_of(
        self, first_position: int, n_positions: int, spec: RopeSpec
    ) -> tuple[np.ndarray, np.ndarray]:
        if (first_position, n_positions) != self._key[:2] or spec is not self._key[2]:
            positions = np.arange(first_position, first_position + n_positions)
            # float64: at position 8000 a float32 angle would be wrong by 5e-4 radians.
            angles = positions[:, None, None] * spec.frequencies
            cos, sin = np.cos(angles) * spec.magnitude, np.sin(angles) * spec.magnitude
            self._turns = (cos.astype(np.float32), sin.astype(np.float32))
            self._key = (first_position, n_positions, spec)
        return self._turns
