"""Exact matrices in the float16 of their file."""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import PackedMatrix, check_matrix


def half_matrix(parts: Sequence[PackedMatrix]) -> mx.array:
    """Stack matrices of type F16 and equal width -> [out, in] float16, without any rounding.

    Evaluated: a lazy array would be bound to this thread. Products with it are those of float32,
    to which MLX widens it.

    Raises:
        TensorError: a matrix is not what it says.
    """
    for part in parts:
        check_matrix(part)
    halves = [part.raw.reshape(-1).view(np.float16).reshape(part.shape) for part in parts]
    weight = mx.array(np.concatenate(halves))
    mx.eval(weight)
    return weight
