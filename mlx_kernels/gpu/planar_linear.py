"""Matrix products with packed weights on device cuda.

Up to eight positions are multiplied by the decode kernels, straight from the packed planes; more
of them as ``prefill_linear.py`` tells. Matrices of types without a kernel are kept in float16.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

import mlx.core as mx

from mlx_kernels.blocks import PackedMatrix, check_matrix
from mlx_kernels.errors import TensorError
from mlx_kernels.gpu.dense_linear import dense_linear, dense_matrix
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.norm import rms_norm
from mlx_kernels.gpu.planar import planar_bytes
from mlx_kernels.gpu.planar_launches import MAX_DECODE_ROWS, fits, gate_up, matvec
from mlx_kernels.gpu.planar_weight import PlanarWeight, kernel_type
from mlx_kernels.gpu.prefill_linear import ManyRows
from mlx_kernels.gpu.swiglu import swiglu
from mlx_kernels.gpu.weight_scaling import with_scaling


@dataclass(frozen=True, slots=True)
class StackedWeight:
    """A matrix [R, C]: parts of one type each, the first on top."""

    shape: tuple[int, int]
    parts: tuple[PlanarWeight | mx.array, ...]  # an array is float16 (see ``dense_matrix``)
    halves: tuple[PlanarWeight, PlanarWeight] | None  # of one part with an even number of rows


def stacked_weight(parts: Sequence[PackedMatrix]) -> StackedWeight:
    """Take over packed matrices of equal width.

    Raises:
        TensorError: the widths differ, or a matrix is not what it says (see ``check_matrix``).
    """
    for part in parts:
        check_matrix(part)
    width = parts[0].shape[1]
    for part in parts:
        if part.shape[1] != width:
            raise TensorError(
                f"{part.name or 'a matrix'} has {part.shape[1]} columns and cannot be stacked with "
                f"{parts[0].name or 'one'} of {width}, expected equal widths"
            )
    held: list[PlanarWeight | mx.array] = []
    for type_id, group in groupby(parts, lambda part: kernel_type(part.type_id, width)):
        same = list(group)
        is_dense = type_id is None
        held.append(dense_matrix(same, True) if is_dense else with_scaling(PlanarWeight.of(same)))
    n_rows = sum(part.shape[0] for part in parts)
    first = held[0]
    halves = None
    if len(held) == 1 and isinstance(first, PlanarWeight) and n_rows % 2 == 0:
        middle = n_rows // 2
        halves = first.rows(0, middle).evaluated(), first.rows(middle, n_rows).evaluated()
    return StackedWeight((n_rows, width), tuple(held), halves)


def weight_bytes(type_id: int, shape: tuple[int, ...]) -> int:
    """Memory that a matrix of ``stacked_weight`` takes."""
    if kernel_type(type_id, shape[-1]) is None:
        return 2 * prod(shape)
    return planar_bytes(type_id, shape)


def planar_linear(
    kernels: CudaKernels,
    x: mx.array,
    weight: StackedWeight,
    norm: mx.array | None = None,
    eps: float = 0.0,
    bias: mx.array | None = None,
    residual: mx.array | None = None,
) -> mx.array:
    """``linear`` of x [T, C] float32, or with ``norm`` ``normed_linear`` -> [T, R] float32."""
    if _is_decode(x, weight) and len(weight.parts) == 1:
        return matvec(kernels, x, weight.parts[0], norm, eps, bias, residual)
    normed = x if norm is None else rms_norm(x, norm, eps)
    many = ManyRows(kernels, normed)
    products = []
    for part in weight.parts:
        if isinstance(part, PlanarWeight) and _is_decode(x, weight):
            products.append(matvec(kernels, x, part, norm, eps))
        elif isinstance(part, mx.array) and len(x) <= MAX_DECODE_ROWS:
            products.append(dense_linear(normed, part))
        else:
            products.append(many.times(part))
    product = products[0] if len(products) == 1 else mx.concatenate(products, axis=1)
    if bias is not None:
        product = product + bias
    return product if residual is None else residual + product


def planar_gated_linear(
    kernels: CudaKernels,
    x: mx.array,
    norm: mx.array,
    eps: float,
    weight: StackedWeight,
    clamp: float | None = None,
) -> mx.array:
    """``gated_linear``: one launch for one position, else a product and ``swiglu``."""
    if len(x) == 1 and weight.halves is not None and _is_decode(x, weight):
        gate, up = weight.halves
        ids, ones = mx.zeros((1, 1), mx.int32), mx.ones((1, 1))
        n_hidden = gate.shape[0]
        hidden = gate_up(kernels, x, gate, up, n_hidden, ids, ones, norm, eps, clamp)
        return hidden.reshape(1, n_hidden)
    return swiglu(planar_linear(kernels, x, weight, norm, eps), clamp)


def _is_decode(x: mx.array, weight: StackedWeight) -> bool:
    """Few positions, and at least one type with a kernel that can stage a row."""
    types = [part.type_id for part in weight.parts if isinstance(part, PlanarWeight)]
    width = weight.shape[1]
    return len(x) <= MAX_DECODE_ROWS and bool(types) and all(fits(t, 1, width) for t in types)
