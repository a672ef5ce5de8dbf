"""Launches of the Metal kernels on planar weights: grids, template values, constants as arrays."""

from functools import cache

import mlx.core as mx

from mlx_kernels.gpu.metal_kernels import METAL_THREADS, MetalKernels
from mlx_kernels.gpu.planar_launches import MAX_DECODE_ROWS, scalar
from mlx_kernels.gpu.planar_weight import PlanarWeight

_N_SIMDGROUPS = METAL_THREADS // 32
_POSITIONS = (1, 2, 4, 8)  # of one launch; a number between takes the next larger text
# Rows of a simdgroup: the activations are loaded once for all of them. More where a step has few
# bytes; not where the sums of many positions fill the registers. Not measured on a GPU.
_SMALL = (10, 16)  # Q2_K, IQ2_XXS
_ROWS_OF_SMALL, _ROWS = 4, 2


def fits(type_id: int, n_rows: int, n_columns: int) -> bool:
    """Whether a decode kernel takes that many rows; nothing is staged, so each does."""
    return True


def matvec(
    kernels: MetalKernels,
    x: mx.array,
    weight: PlanarWeight,
    norm: mx.array | None = None,
    eps: float = 0.0,
    bias: mx.array | None = None,
    residual: mx.array | None = None,
) -> mx.array:
    """Up to ``MAX_DECODE_ROWS`` rows x [T, C] times weight transposed, plus bias and residual.

    With ``norm`` the product is of ``rms_norm(x, norm, eps)``. Returns [T, R] float32.
    """
    n_rows = weight.shape[0]
    assert 1 <= len(x) <= MAX_DECODE_ROWS
    n = next(n for n in _POSITIONS if n >= len(x))
    rows = _rows_a_simdgroup(weight.type_id, n)
    none = _no_values()
    (out,) = kernels.launch(
        "matvec",
        weight.type_id,
        [
            *(x, *weight.planes, weight.table, weight.sizes),
            *(none if norm is None else norm, scalar(eps)),
            *(none if bias is None else bias, none if residual is None else residual),
        ],
        {
            **{"T": n, "RW": rows, "HAS_NORM": norm is not None},
            **{"HAS_BIAS": bias is not None, "HAS_RESIDUAL": residual is not None},
        },
        (_groups(n_rows, rows), 1),
        [(len(x), n_rows)],
    )
    return out


def _rows_a_simdgroup(type_id: int, n_positions: int) -> int:
    return _ROWS_OF_SMALL if type_id in _SMALL and n_positions == 1 else _ROWS


def _groups(n_rows: int, rows_a_simdgroup: int) -> int:
    return -(-n_rows // (_N_SIMDGROUPS * rows_a_simdgroup))


@cache
def _no_values() -> mx.array:
    """In place of an input that is not there; eight elements, so in the device address space."""
    array = mx.zeros(8)
    mx.eval(array)
    return array
