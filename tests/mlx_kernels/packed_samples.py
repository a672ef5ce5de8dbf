"""Random packed matrices of every GGUF format, and their values by the gguf package."""

import gguf
import numpy as np

from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.blocks.random_packed import FACTORS, random_packed

__all__ = ["FACTORS", "dense", "full_packed", "random_packed"]

_MXFP4 = 39


def full_packed(type_id: int, n_rows: int, n_columns: int, byte: int) -> PackedMatrix:
    """Every byte of the integers and scales equal to ``byte``; float16 factors 0.001."""
    block = BLOCK[type_id]
    raw = np.full((n_rows, n_columns // block.n_values, block.n_bytes), byte, np.uint8)
    for at in FACTORS[type_id]:
        raw[:, :, at : at + 2] = np.array([0.001], np.float16).view(np.uint8)
    if type_id == _MXFP4:
        raw[:, :, 0] = 117  # 2 ** -10
    return PackedMatrix(type_id, raw.reshape(-1), (n_rows, n_columns))


def dense(matrix: PackedMatrix) -> np.ndarray:
    """The values [N, K] float64, decoded by the gguf package and not by ours."""
    kind = gguf.GGMLQuantizationType(matrix.type_id)
    rows = matrix.raw.reshape(matrix.shape[0], -1)
    return gguf.quants.dequantize(rows, kind).astype(np.float64).reshape(matrix.shape)
