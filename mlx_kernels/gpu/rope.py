"""Rotary position embedding: MLX's own, with frequencies of the model."""

import mlx.core as mx
import numpy as np

from mlx_kernels.ops import RopeSpec


class Rope:
    """Turns queries and keys; keeps the frequencies of the last spec on the device."""

    def __init__(self) -> None:
        self._spec: RopeSpec | None = None
        self._periods: mx.array | None = None  # [D / 2], positions a radian

    def turn(self, x: mx.array, first_position: int, spec: RopeSpec) -> mx.array:
        """Rotate x [T, H, D], whose rows are positions ``first_position``, +1, ..."""
        if self._spec is not spec:
            # MLX wants the reciprocal of a frequency.
            self._spec = spec
            self._periods = mx.array((1.0 / spec.frequencies).astype(np.float32))
        turned = mx.fast.rope(
            mx.swapaxes(x, 0, 1)[None],  # [1, H, T, D]
            x.shape[-1],
            traditional=spec.interleaved,
            base=None,
            scale=1.0,
            offset=first_position,
            freqs=self._periods,
        )
        turned = mx.swapaxes(turned[0], 0, 1)  # [T, H, D]
        return turned if spec.magnitude == 1.0 else turned * spec.magnitude
