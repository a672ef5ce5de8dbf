"""Random packed matrices, for checks of kernels against the decoded values."""

import numpy as np

from mlx_kernels.blocks.formats import BLOCK
from mlx_kernels.blocks.packed_matrix import PackedMatrix

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
    type_id: int, n_rows: int, n_columns: int, random: np.random.Generator, name: str = ""
) -> PackedMatrix:
    """Every bit random, except that the float16 factors are small and finite."""
    shape = (n_rows, n_columns)
    if type_id not in FACTORS:
        values = random.standard_normal(shape).astype(np.float32)
        if type_id == 1:
            values = values.astype(np.float16)
        elif type_id == 30:
            values = (values.view(np.uint32) >> 16).astype(np.uint16)
        return PackedMatrix(type_id, values.reshape(-1).view(np.uint8), shape, name)
    block = BLOCK[type_id]
    blocks = (n_rows, n_columns // block.n_values)
    raw = random.integers(0, 256, (*blocks, block.n_bytes), dtype=np.uint8)
    for at in FACTORS[type_id]:
        factors = random.uniform(-0.01, 0.01, blocks).astype(np.float16)
        raw[:, :, at : at + 2] = factors[..., None].view(np.uint8)
    if type_id == _MXFP4:
        raw[:, :, 0] = random.integers(115, 122, blocks)  # 2 ** -12 to 2 ** -6
    return PackedMatrix(type_id, raw.reshape(-1), shape, name)
