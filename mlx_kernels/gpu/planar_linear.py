"""Matrix products with packed weights on devices cuda and metal.

Up to eight positions are multiplied by the decode kernels, straight from the packed planes; more
of them as ``prefill_linear.py`` and ``metal_prefill.py`` tell. Matrices of types without a kernel
are kept in float16.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import prod

import mlx.core as mx

from mlx_kernels.blocks import PackedMatrix, check_matrix
from mlx_kernels.errors import TensorError
from mlx_kernels.gpu.dense_linear import dense_matrix
from mlx_kernels.gpu.launch_table import LaunchTable
from mlx_kernels.gpu.norm import rms_norm
from mlx_kernels.gpu.planar import planar_bytes
from mlx_kernels.gpu.planar_launches import MAX_DECODE_ROWS
from mlx_kernels.gpu.planar_weight import PlanarWeight, kernel_type
from mlx_kernels.gpu.swiglu import swiglu


@dataclass(frozen=True, slots=True)
class StackedWeight:
    """A matrix [R, C]: parts of one type each, the first on top."""

    shape: tuple[int, int]
    parts: tuple[PlanarWeight | mx.array, ...]  # an array is float16 (see ``dense_matrix``)
    halves: tuple[PlanarWeight, PlanarWeight] | None  # of one part with an even number of rows


def stacked_weight(launches: LaunchTable, parts: Sequence[PackedMatrix]) -> StackedWeight:
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
    types = [kernel_type(part.type_id, width, launches.formats) for part in parts]
    for type_id, group in groupby(zip(types, parts, strict=True), lambda pair: pair[0]):
        same = [part for _, part in group]
        held.append(dense_matrix(same, True) if type_id is None else launches.hold(same))
    n_rows = sum(part.shape[0] for part in parts)
    first = held[0]
    halves = None
    if len(held) == 1 and isinstance(first, PlanarWeight) and n_rows % 2 == 0:
        middle = n_rows // 2
        halves = first.rows(0, middle).evaluated(), first.rows(middle, n_rows).evaluated()
    return StackedWeight((n_rows, width), tuple(held), halves)


def weight_bytes(launches: LaunchTable, type_id: int, shape: tuple[int, ...]) -> int:
    """Memory that a matrix of ``stacked_weight`` takes."""
    if kernel_type(type_id, shape[-1], launches.formats) is None:
        return 2 * prod(shape)
    return planar_bytes(type_id, shape, launches.formats)


def planar_linear(
    launches: LaunchTable,
    x: mx.array,
    weight: StackedWeight,
    norm: mx.array | None = None,
    eps: float = 0.0,
    bias: mx.array | None = None,
    residual: mx.array | None = None,
) -> mx.array:
    """``linear`` of x [T, C] float32, or with ``norm`` ``normed_linear`` -> [T, R] float32."""
    is_decode = _is_decode(launches, x, weight)
    if is_decode and len(weight.parts) == 1:
        return launches.matvec(x, weight.parts[0], norm, eps, bias, residual)
    normed = x if norm is None else rms_norm(x, norm, eps)
    many = launches.many_rows(normed)
    products, stop = [], 0
    for part in weight.parts:
        first, stop = stop, stop + part.shape[0]
        own_bias = None if bias is None else bias[first:stop]
        if isinstance(part, PlanarWeight) and is_decode:
            products.append(launches.matvec(x, part, norm, eps, own_bias))
            continue
        is_few = isinstance(part, mx.array) and len(x) <= MAX_DECODE_ROWS
        product = launches.dense(normed, part) if is_few else many.times(part)
        products.append(product if own_bias is None else product + own_bias)
    product = products[0] if len(products) == 1 else mx.concatenate(products, axis=1)
    return product if residual is None else residual + product


def planar_gated_linear(
    launches: LaunchTable,
    x: mx.array,
    norm: mx.array,
    eps: float,
    weight: StackedWeight,
    clamp: float | None = None,
) -> mx.array:
    """``gated_linear``: one launch for one position, else a product and ``swiglu``."""
    if len(x) == 1 and weight.halves is not None and _is_decode(launches, x, weight):
        gate, up = weight.halves
        ids, ones = mx.zeros((1, 1), mx.int32), mx.ones((1, 1))
        n_hidden = gate.shape[0]
        hidden = launches.gate_up(x, gate, up, n_hidden, ids, ones, norm, eps, clamp)
        return hidden.reshape(1, n_hidden)
    return swiglu(planar_linear(launches, x, weight, norm, eps), clamp)


def _is_decode(launches: LaunchTable, x: mx.array, weight: StackedWeight) -> bool:
    """Few positions, and at least one type with a kernel that can stage a row."""
    types = [part.type_id for part in weight.parts if isinstance(part, PlanarWeight)]
    width = weight.shape[1]
    return (
        len(x) <= MAX_DECODE_ROWS and bool(types) and all(launches.fits(t, 1, width) for t in types)
    )
