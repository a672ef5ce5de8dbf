"""Launches of the decode kernels on tensor cores: experts of the types of ``_SLOT_BYTES``.

One block of threads a multiprocessor. Its warps share the columns: each owns blocks of 256, and
weights come SLOTS units of 16 rows x 256 columns ahead of the sums.
"""

import mlx.core as mx

from mlx_kernels.gpu.constants import float_bits
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.planar_weight import PlanarWeight

_IQ2_XXS = 16
_TABLE_BYTES = {_IQ2_XXS: 4 * 32 * (256 + 128)}  # others have none
# Of 16 rows of 256 columns: IQ2_XXS, Q2_K, Q4_K, MXFP4.
_SLOT_BYTES = {
    _IQ2_XXS: 16 * 64 + 64,
    10: 16 * (64 + 16 + 4),
    12: 16 * (128 + 12 + 4),
    39: 16 * (128 + 8),
}
_COLUMN_BLOCK = 256
_STAGED_BYTES = 3 * 272 + 64 + 16  # of a column block
_TILE_BYTES = 4 * 16  # of a tile's sums of one warp
_GATE_UP_WARPS, _GATE_UP_TILES, _DOWN_WARPS, _DOWN_TILES = 16, 12, 24, 2
_SLOTS = (6, 5, 4, 3, 2)  # as many as there is memory for
_SHARED_LIMIT = 208 << 10  # of the 227 KiB that a block may have on Hopper


def gate_up_plan(weight: PlanarWeight, n_hidden: int) -> tuple[int, int, int, int] | None:
    """Warps, column blocks a warp, slots, bytes of shared memory; None where nothing fits."""
    n = weight.shape[1] // _COLUMN_BLOCK
    is_whole = weight.shape[1] % _COLUMN_BLOCK == 0 and not (n % 2 and weight.type_id == _IQ2_XXS)
    if weight.type_id not in _SLOT_BYTES or not is_whole or n_hidden % 8:
        return None
    return _plan(weight.type_id, n, n, _GATE_UP_WARPS, _GATE_UP_TILES)


def down_plan(weight: PlanarWeight, n_out: int, n_chosen: int) -> tuple[int, int, int, int] | None:
    """The same for ``tensor_down``."""
    n = weight.shape[1] // _COLUMN_BLOCK
    is_whole = weight.shape[1] % _COLUMN_BLOCK == 0 and not (n % 2 and weight.type_id == _IQ2_XXS)
    if weight.type_id not in _SLOT_BYTES or not is_whole or n_out % 16:
        return None
    return _plan(weight.type_id, n * n_chosen, n * n_chosen, _DOWN_WARPS, _DOWN_TILES)


def _plan(
    type_id: int, n_staged: int, n_columns: int, most_warps: int, n_tiles: int
) -> tuple[int, int, int, int] | None:
    per_warp = -(-n_columns // most_warps)
    n_warps = -(-n_columns // per_warp)
    for n_slots in _SLOTS:
        n_bytes = (
            _TABLE_BYTES.get(type_id, 0)
            + n_staged * _STAGED_BYTES
            + n_warps * (n_slots * _SLOT_BYTES[type_id] + n_tiles * _TILE_BYTES)
        )
        if n_bytes <= _SHARED_LIMIT:
            return n_warps, per_warp, n_slots, n_bytes
    return None


def tensor_gate_up(
    kernels: CudaKernels,
    x: mx.array,
    gate: PlanarWeight,
    up: PlanarWeight,
    n_hidden: int,
    ids: mx.array,
    weights: mx.array,
    clamp: float | None,
    plan: tuple[int, int, int, int],
) -> mx.array:
    """``gate_up`` of ``planar_launches`` without a norm, by a plan of ``gate_up_plan``."""
    n_warps, per_warp, n_slots, n_bytes = plan
    n_positions, n_chosen = ids.shape
    return kernels.launch(
        "tensor_gate_up",
        gate.type_id,
        [x, *gate.planes, *up.planes, gate.table, ids, weights],
        {
            **{"K": n_chosen, "F": n_hidden, "N": gate.shape[1] // _COLUMN_BLOCK},
            **{"PER_WARP": per_warp, "SLOTS": n_slots},
            **{"HAS_CLAMP": clamp is not None, "CLAMP": float_bits(clamp or 0.0)},
        },
        (min(kernels.n_multiprocessors, n_chosen * n_hidden // 8), n_positions),
        (n_positions, n_chosen, n_hidden),
        shared_bytes=n_bytes,
        n_threads=32 * n_warps,
    )


def tensor_down(
    kernels: CudaKernels,
    hidden: mx.array,
    weight: PlanarWeight,
    n_out: int,
    ids: mx.array,
    plan: tuple[int, int, int, int],
) -> mx.array:
    """``down`` of ``planar_launches``, by a plan of ``down_plan``."""
    n_warps, per_warp, n_slots, n_bytes = plan
    n_positions, n_chosen, n_hidden = hidden.shape
    return kernels.launch(
        "tensor_down",
        weight.type_id,
        [hidden, *weight.planes, weight.table, ids],
        {
            **{"K": n_chosen, "C": n_out, "N": n_hidden // _COLUMN_BLOCK},
            **{"PER_WARP": per_warp, "SLOTS": n_slots},
        },
        (min(kernels.n_multiprocessors, n_out // 16), n_positions),
        (n_positions, n_out),
        shared_bytes=n_bytes,
        n_threads=32 * n_warps,
    )
