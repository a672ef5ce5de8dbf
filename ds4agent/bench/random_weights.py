"""Packed matrices with random, valid content, so that a kernel can be timed without a model file.

Every bit is random except the scales, which are finite and small: infinities and subnormal sums
would cost time that trained weights do not.
"""

import numpy as np

from mlx_kernels.blocks import BLOCK, PackedMatrix

# Where the float16 scales of a block lie, bytes from its start.
_SCALES_AT = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "IQ2_XXS": (0,),
    "MXFP4": (),
}
_LARGEST_SCALE = 0.001
_DISTINCT_VALUES = 8 << 20  # the content repeats after about so many: time doesn't depend on it


def random_matrix(
    type_id: int, shape: tuple[int, int], random: np.random.Generator, name: str = ""
) -> PackedMatrix:
    """Return a matrix [R, C] of a block type, C a multiple of its values a block."""
    block = BLOCK[type_id]
    n_blocks = shape[0] * shape[1] // block.n_values
    n_distinct = min(n_blocks, max(1, _DISTINCT_VALUES // block.n_values))
    blocks = _random_blocks(type_id, n_distinct, random).reshape(-1)
    raw = np.resize(blocks, n_blocks * block.n_bytes)
    return PackedMatrix(type_id, raw, shape, name)


def _random_blocks(type_id: int, n: int, random: np.random.Generator) -> np.ndarray:
    """[n, bytes of a block] uint8."""
    block = BLOCK[type_id]
    if block.name in ("F32", "F16", "BF16"):
        values = random.standard_normal(n, np.float32) * np.float32(0.02)
        match block.name:
            case "F16":
                values = values.astype(np.float16)
            case "BF16":
                values = (values.view(np.uint32) >> 16).astype(np.uint16)
        return values.view(np.uint8).reshape(n, block.n_bytes)
    blocks = random.integers(0, 256, (n, block.n_bytes), np.uint8)
    for at in _SCALES_AT[block.name]:
        scales = random.uniform(-_LARGEST_SCALE, _LARGEST_SCALE, (n, 1)).astype(np.float16)
        blocks[:, at : at + 2] = scales.view(np.uint8)
    if block.name == "MXFP4":
        blocks[:, 0] = random.integers(115, 120, n)  # exponents: 2 ** -12 to 2 ** -8
    return blocks
