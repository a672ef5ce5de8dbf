"""Launches of the kernels on planar weights: grids, shared memory, constants as small arrays."""

from collections.abc import Sequence

import mlx.core as mx

from mlx_kernels.gpu.constants import float_bits, scalar, zeros
from mlx_kernels.gpu.dense_linear import dense_linear
from mlx_kernels.gpu.kernels import FORMATS, THREADS, CudaKernels
from mlx_kernels.gpu.planar_weight import PlanarWeight
from mlx_kernels.gpu.tensor_launches import down_plan, gate_up_plan, tensor_down, tensor_gate_up

MAX_DECODE_ROWS = 8  # positions up to which the decode kernels serve
_ROWS = (8, 4, 2, 1)  # positions of one launch
_SHARED_LIMIT = 200 << 10  # of the 227 KiB that a block may have on Hopper
# The results of row_factors: eight factors, and sums: eight rows of 16 warps, or one row of 32.
_NORM_BYTES = 4 * (8 + 8 * 16)
# Rows of a warp and steps in flight: the fastest of some on an NVIDIA H200 (README.md).
_MATVEC_ONE, _MATVEC_MORE, _GATE_UP = (1, 4), (2, 2), (1, 1)
_DOWN, _DOWN_OF_SMALL = (1, 2), (2, 3)
_SMALL = (10, 16, 39)  # Q2_K, IQ2_XXS, MXFP4: few bytes a row
# Threads of a block of ``matvec``: few large blocks for one position, since each stages it all.
_ONE_THREADS, _MORE_THREADS = 512, THREADS
_F16 = 1
# Values that a thread of ``dequantize`` decodes, about.
_VALUES_A_THREAD = 8


def shared_bytes(type_id: int, n_rows: int, n_columns: int) -> int:
    """Shared memory of a decode kernel that stages n_rows rows of activations."""
    padded = -(-n_columns // 128) * 128
    if type_id == _F16:
        return n_rows * padded * 4 + _NORM_BYTES
    return n_rows * (padded * 3 + padded // 32 * 12) + 4 * FORMATS[type_id] + _NORM_BYTES


def fits(type_id: int, n_rows: int, n_columns: int) -> bool:
    """Whether a decode kernel can stage that many rows."""
    return shared_bytes(type_id, n_rows, n_columns) <= _SHARED_LIMIT


def matvec(
    kernels: CudaKernels,
    x: mx.array,
    weight: PlanarWeight,
    norm: mx.array | None = None,
    eps: float = 0.0,
    bias: mx.array | None = None,
    residual: mx.array | None = None,
) -> mx.array:
    """Few rows x [T, C] times weight transposed, plus bias and residual -> [T, R] float32.

    With ``norm`` the product is of ``rms_norm(x, norm, eps)``.
    """
    planes, table = weight.planes, weight.table
    return _matvec(
        kernels, x, weight.type_id, weight.shape, (*planes, table), norm, eps, bias, residual
    )


def dense_matvec(kernels: CudaKernels, x: mx.array, weight: mx.array) -> mx.array:
    """``dense_linear`` of few rows x [T, C], C a multiple of 8, with float32 activations."""
    if weight.shape[1] % 8 or not fits(_F16, 1, weight.shape[1]):
        return dense_linear(x, weight)
    none = scalar(0.0)
    return _matvec(kernels, x, _F16, weight.shape, (weight, none, none, none, none))


def _matvec(
    kernels: CudaKernels,
    x: mx.array,
    type_id: int,
    shape: tuple[int, int],
    weight: Sequence[mx.array],
    norm: mx.array | None = None,
    eps: float = 0.0,
    bias: mx.array | None = None,
    residual: mx.array | None = None,
) -> mx.array:
    n_rows, n_columns = shape
    n = next(n for n in _ROWS if n == 1 or (n < 2 * len(x) and fits(type_id, n, n_columns)))
    if n < len(x):
        parts = [
            _matvec(
                *(kernels, x[t : t + n], type_id, shape, weight, norm, eps, bias),
                None if residual is None else residual[t : t + n],
            )
            for t in range(0, len(x), n)
        ]
        return mx.concatenate(parts)
    n_wanted = len(x)
    if n > n_wanted:
        x = _padded(x, n)
        residual = None if residual is None else _padded(residual, n)
    none = scalar(0.0)
    rows_a_warp, in_flight = _MATVEC_ONE if n == 1 else _MATVEC_MORE
    n_threads = _ONE_THREADS if n == 1 else _MORE_THREADS
    out = kernels.launch(
        "matvec",
        type_id,
        [
            *(x, *weight, none if norm is None else norm),
            # its shape tells the number of rows
            *(zeros(n_rows) if bias is None else bias, none if residual is None else residual),
        ],
        {
            **{"T": n, "RW": rows_a_warp, "UN": in_flight, "HAS_NORM": norm is not None},
            **{"EPS": float_bits(eps), "HAS_BIAS": bias is not None},
            **{"HAS_RESIDUAL": residual is not None},
        },
        (_blocks(kernels.max_blocks * THREADS // n_threads, n_rows, rows_a_warp, n_threads), 1),
        (n, n_rows),
        shared_bytes=shared_bytes(type_id, n, n_columns),
        n_threads=n_threads,
    )
    return out[:n_wanted] if n > n_wanted else out


def gate_up(
    kernels: CudaKernels,
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
    plan = None if norm is not None else gate_up_plan(gate, n_hidden)
    if plan is not None:
        return tensor_gate_up(kernels, x, gate, up, n_hidden, ids, weights, clamp, plan)
    n_columns = gate.shape[1]
    n_positions, n_chosen = ids.shape
    n_slots = n_positions * n_chosen
    return kernels.launch(
        "gate_up",
        gate.type_id,
        [
            *(x, *gate.planes, *up.planes, gate.table, ids, weights),
            scalar(0.0) if norm is None else norm,
        ],
        {
            **{"K": n_chosen, "F": n_hidden, "RW": _GATE_UP[0], "UN": _GATE_UP[1]},
            **{"HAS_NORM": norm is not None, "EPS": float_bits(eps)},
            **{"HAS_CLAMP": clamp is not None, "CLAMP": float_bits(clamp or 0.0)},
        },
        (_blocks(-(-kernels.max_blocks // n_slots), n_hidden, _GATE_UP[0]), n_slots),
        (n_positions, n_chosen, n_hidden),
        shared_bytes=shared_bytes(gate.type_id, 1, n_columns),
    )


def down(
    kernels: CudaKernels, hidden: mx.array, weight: PlanarWeight, n_out: int, ids: mx.array
) -> mx.array:
    """Sum over K of the experts' products: hidden [T, K, F], ids [T, K] -> [T, C], C = n_out."""
    n_positions, n_chosen, n_hidden = hidden.shape
    plan = down_plan(weight, n_out, n_chosen)
    if plan is not None:
        return tensor_down(kernels, hidden, weight, n_out, ids, plan)
    rows_a_warp, in_flight = _DOWN_OF_SMALL if weight.type_id in _SMALL else _DOWN
    return kernels.launch(
        "down",
        weight.type_id,
        [hidden, *weight.planes, weight.table, ids],
        {"K": n_chosen, "C": n_out, "RW": rows_a_warp, "UN": in_flight},
        (_blocks(kernels.max_blocks, n_out, rows_a_warp), n_positions),
        (n_positions, n_out),
        shared_bytes=shared_bytes(weight.type_id, n_chosen, n_hidden),
    )


def dequantized(kernels: CudaKernels, weight: PlanarWeight) -> mx.array:
    """[R, C] float32, rounded to the 11 bits of TF32 (see ``tf32.py``)."""
    n_values = weight.shape[0] * weight.shape[1]
    n_blocks = -(-n_values // (THREADS * _VALUES_A_THREAD))
    return kernels.launch(
        "dequantize",
        weight.type_id,
        [*weight.planes, weight.table, weight.sizes],
        {},
        (n_blocks, 1),
        weight.shape,
    )


def _blocks(max_blocks: int, n_rows: int, rows_a_warp: int, n_threads: int = THREADS) -> int:
    return min(max(1, max_blocks), -(-n_rows // (n_threads // 32 * rows_a_warp)))


def _padded(rows: mx.array, n: int) -> mx.array:
    return mx.concatenate([rows, mx.zeros((n - len(rows), rows.shape[1]))])
