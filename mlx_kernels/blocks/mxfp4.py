"""Decoder of MXFP4: 32 values of 4 bits that share a power of two, in 17 bytes.

Block: an exponent byte E, then 16 bytes: value l is the low nibble of byte l, value 16 + l its
high nibble. A nibble is a float of one sign, two exponent bits and one mantissa bit (E2M1):

    value = (0, 0.5, 1, 1.5, 2, 3, 4 or 6, negative where bit 3 is set) * 2 ** (E - 127)

From E = 253 the largest values exceed float32 and are infinite, and E = 255 is 2 ** 128 and not
the NaN of the OCP microscaling specification: both as in the gguf package. Nibble 8 is plain 0.
"""

import numpy as np

from mlx_kernels.blocks.unpacking import nibbles, scaled

_DOUBLED = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


def decode_mxfp4(blocks: np.ndarray, out: np.ndarray) -> None:
    """Fill out [n, 32] float32 from blocks [n, 17] uint8."""
    doubled = _DOUBLED[nibbles(blocks[:, 1:], 16)]
    # Half of 2 ** (E - 127): the table above holds doubled values. ldexp is exact for all E.
    half_scales = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    scaled(doubled, half_scales, out)
