"""Decoders of the types with one scale for 32 values: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.

Each takes blocks [n, bytes] uint8 and fills out [n, 32] float32.
"""

import numpy as np

from mlx_kernels.blocks.unpacking import half, nibbles, scaled


def decode_q4_0(blocks: np.ndarray, out: np.ndarray) -> None:
    """scale f16; 16 bytes of nibbles, stored plus 8."""
    integers = nibbles(blocks[:, 2:], 16).view(np.int8)
    integers -= 8
    scaled(integers, half(blocks, 0), out)


def decode_q4_1(blocks: np.ndarray, out: np.ndarray) -> None:
    """scale f16; offset f16; 16 bytes of nibbles."""
    scaled(nibbles(blocks[:, 4:], 16), half(blocks, 0), out)
    out += half(blocks, 2)


def _fifth_bits(packed: np.ndarray) -> np.ndarray:
    """[n, 4] bytes, bit j for value j -> [n, 32] uint8, each 0 or 16."""
    bits = np.unpackbits(packed, axis=1, bitorder="little")
    bits <<= 4
    return bits


def decode_q5_0(blocks: np.ndarray, out: np.ndarray) -> None:
    """scale f16; 32 high bits; 16 bytes of nibbles; stored plus 16."""
    integers = nibbles(blocks[:, 6:], 16)
    integers |= _fifth_bits(blocks[:, 2:6])
    integers = integers.view(np.int8)
    integers -= 16
    scaled(integers, half(blocks, 0), out)


def decode_q5_1(blocks: np.ndarray, out: np.ndarray) -> None:
    """scale f16; offset f16; 32 high bits; 16 bytes of nibbles."""
    integers = nibbles(blocks[:, 8:], 16)
    integers |= _fifth_bits(blocks[:, 4:8])
    scaled(integers, half(blocks, 0), out)
    out += half(blocks, 2)


def decode_q8_0(blocks: np.ndarray, out: np.ndarray) -> None:
    """scale f16; 32 signed bytes."""
    scaled(blocks[:, 2:].view(np.int8), half(blocks, 0), out)
