"""Matrix products: packed weights by the compiled kernels, dense ones by BLAS."""

from collections.abc import Sequence
from math import prod

import numpy as np

from mlx_kernels.blocks import BLOCK, PackedMatrix, check_matrix
from mlx_kernels.cpu import native
from mlx_kernels.cpu.norm import rms_norm
from mlx_kernels.cpu.swiglu import swiglu
from mlx_kernels.dense import decode_stacked
from mlx_kernels.errors import TensorError

_PAGE_BYTES = 4096  # the smallest page in use

Weight = np.ndarray | native.StackedWeight  # dense float32 [out, in], or packed


def matrix(parts: Sequence[PackedMatrix], is_native: bool) -> Weight:
    """Take over weights: packed as they lie in the file, or dense float32 [out, in].

    Raises:
        TensorError: a matrix is not what it says, or the widths differ; names the tensor.
    """
    for part in parts:
        check_matrix(part)
    if all(_stays_packed(part.type_id, part.shape, is_native) for part in parts):
        for part in parts:
            touch(part.raw)
        return native.StackedWeight(parts)
    return decode_stacked(parts)


def matrix_bytes(type_id: int, shape: tuple[int, ...], is_native: bool) -> int:
    """Memory that ``matrix`` takes for a packed matrix of that block format and shape."""
    if _stays_packed(type_id, shape, is_native):
        return prod(shape) // BLOCK[type_id].n_values * BLOCK[type_id].n_bytes
    return 4 * prod(shape)


def _stays_packed(type_id: int, shape: tuple[int, ...], is_native: bool) -> bool:
    return is_native and native.can_multiply(type_id, shape[-1])


def touch(raw: np.ndarray) -> None:
    """Read a byte of every page of a mapped array, so that loading pays for the disk and not the
    first token."""
    raw[::_PAGE_BYTES].max(initial=0)


def linear(
    x: np.ndarray,
    weight: Weight,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
) -> np.ndarray:
    """x [T, in] times weight [out, in] transposed, plus bias [out] and residual [T, out]."""
    if isinstance(weight, native.StackedWeight):
        return native.linear(x, weight, bias=bias, residual=residual)
    if not np.isfinite(x).all():
        raise TensorError("activations hold NaN or infinity, expected finite numbers")
    product = x @ weight.T
    for addend in (bias, residual):
        if addend is not None:
            product += addend
    return product


def normed_linear(
    x: np.ndarray, norm: np.ndarray, eps: float, weight: Weight, bias: np.ndarray | None = None
) -> np.ndarray:
    """``linear`` of ``rms_norm(x, norm, eps)``."""
    if isinstance(weight, native.StackedWeight):
        return native.linear(x, weight, bias=bias, norm=norm, eps=eps)
    return linear(rms_norm(x, norm, eps), weight, bias)


def gated_linear(
    x: np.ndarray, norm: np.ndarray, eps: float, gate_up: Weight, clamp: float | None = None
) -> np.ndarray:
    """``swiglu`` of ``normed_linear``: x [T, in], gate_up [2 F, in] -> [T, F]."""
    if isinstance(gate_up, native.StackedWeight) and gate_up.n_parts == 2 and clamp is None:
        return native.gated_linear(x, gate_up, norm=norm, eps=eps)
    return swiglu(normed_linear(x, norm, eps, gate_up), clamp)
