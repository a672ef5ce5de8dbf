"""Decoding whole blocks of any known type to float32."""

from collections.abc import Callable
from math import prod

import numpy as np

from mlx_kernels.blocks import float_types, k_types, q_types
from mlx_kernels.blocks.formats import BLOCK
from mlx_kernels.blocks.iq2_xxs import decode_iq2_xxs
from mlx_kernels.blocks.mxfp4 import decode_mxfp4
from mlx_kernels.errors import TensorError

_DECODERS: dict[int, Callable[[np.ndarray, np.ndarray], None]] = {
    0: float_types.decode_f32,
    1: float_types.decode_f16,
    30: float_types.decode_bf16,
    2: q_types.decode_q4_0,
    3: q_types.decode_q4_1,
    6: q_types.decode_q5_0,
    7: q_types.decode_q5_1,
    8: q_types.decode_q8_0,
    10: k_types.decode_q2_k,
    11: k_types.decode_q3_k,
    12: k_types.decode_q4_k,
    13: k_types.decode_q5_k,
    14: k_types.decode_q6_k,
    16: decode_iq2_xxs,
    39: decode_mxfp4,
}

# Values decoded at a time: 64 Ki values are 256 KiB of float32, so the passes over one chunk stay
# in the second-level cache. Measured: 32 to 128 Ki are equal, 1 Mi is 1.7 times slower.
_CHUNK_VALUES = 64 * 1024


def can_dequantize(type_id: int) -> bool:
    """True when ``dequantize`` knows the block format."""
    return type_id in _DECODERS


def dequantize(
    type_id: int, raw: np.ndarray, shape: tuple[int, ...], out: np.ndarray | None = None
) -> np.ndarray:
    """Decode whole blocks to float32.

    Args:
        type_id: Key of ``BLOCK``.
        raw: uint8, the packed bytes of ``shape``, contiguous. Not kept.
        shape: Shape of the result; its last axis is a whole number of blocks.
        out: Contiguous float32 array of ``shape`` to write to; a new one when None.

    Returns:
        ``out``, or the new array.

    Raises:
        TensorError: the format is not computed with here, or the byte count is wrong.
    """
    block = BLOCK.get(type_id)
    decode = _DECODERS.get(type_id)
    if block is None or decode is None:
        raise TensorError(
            f"no decoder for tensors of type {block.name if block else type_id}",
            f"Get a file that uses only {', '.join(BLOCK[i].name for i in _DECODERS)}.",
        )
    n_blocks = prod(shape) // block.n_values
    if raw.size != n_blocks * block.n_bytes or prod(shape) % block.n_values:
        raise TensorError(
            f"{raw.size} bytes for {block.name} values of shape {list(shape)}, "
            f"expected {n_blocks * block.n_bytes}"
        )
    if out is None:
        out = np.empty(shape, np.float32)
    blocks = raw.reshape(n_blocks, block.n_bytes)
    values = out.reshape(n_blocks, block.n_values)
    step = max(1, _CHUNK_VALUES // block.n_values)
    # Infinite and NaN scales give what IEEE says, without a warning.
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, n_blocks, step):
            decode(blocks[start : start + step], values[start : start + step])
    return out
