"""Random packed matrices of every GGUF format, and their values by the gguf package."""

import gguf
import numpy as np

from mlx_kernels.blocks import BLOCK, PackedMatrix

# Where the float16 factors of a block lie, bytes from its start.
FACTORS = {
    2: (0,),
    3: (0, 2),
    6: (0,),
    7: (0, 2),
    8: (0,),
    10: (80, 82),
    11: (108,),
    12: (0, 2),
    13: (0, 2),
    14: (208,),
    16: (0,),
    39: (),  # no float16, but an exponent byte
}
_MXFP4 = 39


def random_packed(
    type_id: int, n_rows: int, n_columns: int, rng: np.random.Generator
) -> PackedMatrix:
    """Every bit random, except that the float16 factors are small and finite."""
    if type_id not in FACTORS:
        values = rng.standard_normal((n_rows, n_columns)).astype(np.float32)
        if type_id == 1:
            values = values.astype(np.float16)
        elif type_id == 30:
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        return PackedMatrix(type_id, values.reshape(-1).view(np.uint8), (n_rows, n_columns))
    block = BLOCK[type_id]
    shape = (n_rows, n_columns // block.n_values, block.n_bytes)
    raw = rng.integers(0, 256, shape, dtype=np.uint8)
    for at in FACTORS[type_id]:
        factors = rng.uniform(-0.01, 0.01, shape[:2]).astype(np.float16)
        raw[:, :, at : at + 2] = factors[..., None].view(np.uint8)
    if type_id == _MXFP4:
        raw[:, :, 0] = rng.integers(115, 122, shape[:2])  # 2 ** -12 to 2 ** -6
    return PackedMatrix(type_id, raw.reshape(-1), (n_rows, n_columns))


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
