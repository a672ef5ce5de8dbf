"""Launches of the Metal kernels on planar weights: grids, template values, constants as arrays."""

import mlx.core as mx

from mlx_kernels.gpu.constants import pair, scalar, zeros
from mlx_kernels.gpu.metal_kernels import METAL_THREADS, MetalKernels
from mlx_kernels.gpu.planar_launches import MAX_DECODE_ROWS
from mlx_kernels.gpu.planar_weight import PlanarWeight

# Elements of what stands for an input that is not there: it lies in the device address space.
_NONE = 8
_N_SIMDGROUPS = METAL_THREADS // 32
_POSITIONS = (1, 2, 4, 8)  # of one launch; a number between takes the next larger text
# Rows of a simdgroup: the activations are loaded once for all of them. More where a step has few
# bytes; not where the sums of many positions fill the registers. Not measured on a GPU.
_SMALL = (10, 11, 16)  # Q2_K, Q3_K, IQ2_XXS
_ROWS_OF_SMALL, _ROWS, _GATE_UP_ROWS = 4, 2, 2
# Values that a thread of ``dequantize`` decodes: Format::STEP of packed_formats.metal.
_STEP = {1: 16, 8: 16, 10: 64, 11: 64, 16: 64}  # others 32


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
    none = zeros(_NONE)
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


def gate_up(
    kernels: MetalKernels,
    x: mx.array,
    gate: PlanarWeight,
    up: PlanarWeight,
    n_hidden: int,
    ids: mx.array,
    weights: mx.array,
    norm: mx.array | None = None,
    eps: float = 0.0,
    clamp: float | None = None,
) -> mx.array:
    """weights * swiglu of each position's K experts: x [T, C], ids and weights [T, K] -> [T, K, F].

    gate and up are [E * F, C] of one type, F = ``n_hidden``.
    """
    n_positions, n_chosen = ids.shape
    rows = _GATE_UP_ROWS
    (out,) = kernels.launch(
        "gate_up",
        gate.type_id,
        [
            *(x, *gate.planes, *up.planes, gate.table, pair(n_hidden, gate.shape[1])),
            *(ids, weights, zeros(_NONE) if norm is None else norm),
            *(scalar(eps), scalar(clamp or 0.0)),
        ],
        {
            **{"K": n_chosen, "RW": rows},
            **{"HAS_NORM": norm is not None, "HAS_CLAMP": clamp is not None},
        },
        (_groups(n_hidden, rows), n_positions * n_chosen),
        [(n_positions, n_chosen, n_hidden)],
    )
    return out


def down(
    kernels: MetalKernels, hidden: mx.array, weight: PlanarWeight, n_out: int, ids: mx.array
) -> mx.array:
    """Sum over K of the experts' products: hidden [T, K, F], ids [T, K] -> [T, C], C = n_out."""
    n_positions, n_chosen, n_hidden = hidden.shape
    rows = _rows_a_simdgroup(weight.type_id, 1)
    (out,) = kernels.launch(
        "down",
        weight.type_id,
        [hidden, *weight.planes, weight.table, pair(n_out, n_hidden), ids],
        {"K": n_chosen, "RW": rows},
        (_groups(n_out, rows), n_positions),
        [(n_positions, n_out)],
    )
    return out


def dequantized(kernels: MetalKernels, weight: PlanarWeight) -> mx.array:
    """[R, C] float16, divided by 32 as in ``dense_matrix``."""
    n_rows, n_columns = weight.shape
    n_steps = n_rows * n_columns // _STEP.get(weight.type_id, 32)
    (out,) = kernels.launch(
        "dequantize",
        weight.type_id,
        [*weight.planes, weight.table, weight.sizes],
        {},
        (-(-n_steps // METAL_THREADS), 1),
        [weight.shape],
        [mx.float16],
    )
    return out


def _rows_a_simdgroup(type_id: int, n_positions: int) -> int:
    return _ROWS_OF_SMALL if type_id in _SMALL and n_positions == 1 else _ROWS


def _groups(n_rows: int, rows_a_simdgroup: int) -> int:
    return -(-n_rows // (_N_SIMDGROUPS * rows_a_simdgroup))
