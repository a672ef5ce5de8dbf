"""Decoders of the types with 256 values in sub-blocks: Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.

Each takes blocks [n, bytes] uint8 and fills out [n, 256] float32.
"""

import numpy as np

from mlx_kernels.blocks.unpacking import crumbs, half, nibbles, scaled, shifted


def decode_q2_k(blocks: np.ndarray, out: np.ndarray) -> None:
    """16 bytes (low nibble scale, high nibble offset); 64 bytes of 2 bits; two f16 factors."""
    small = blocks[:, :16]
    scaled(crumbs(blocks[:, 16:80]).reshape(-1, 256), half(blocks, 80) * (small & 15), out)
    shifted(half(blocks, 82) * (small >> 4), out)


def decode_q3_k(blocks: np.ndarray, out: np.ndarray) -> None:
    """256 high bits; 64 bytes of 2 bits; 16 scales of 6 bits, stored plus 32; factor f16.

    Bit b of byte l of the high bits belongs to value 32 b + l; where it is clear, 4 is subtracted.
    """
    integers = crumbs(blocks[:, 32:96]).reshape(-1, 8, 32)
    bit = np.arange(8, dtype=np.uint8)[:, None]
    high = blocks[:, None, :32] >> bit  # [n, 8, 32]
    high &= 1
    high <<= 2
    integers |= high
    integers = integers.view(np.int8)
    integers -= 4
    low, top = blocks[:, 96:104], blocks[:, 104:108]
    scales = np.concatenate([low & 15, low >> 4], axis=1)  # [n, 16]
    for quarter in range(4):
        part = scales[:, 4 * quarter : 4 * quarter + 4]
        part |= ((top >> (2 * quarter)) & 3) << 4
    factors = half(blocks, 108) * (scales.astype(np.int8) - 32)
    scaled(integers.reshape(-1, 256), factors, out)


def _sub_block_factors(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Read the first 16 bytes of Q4_K and Q5_K: scales and offsets of 8 sub-blocks [n, 8] float32.

    Two f16 factors, then 12 bytes with eight scales and eight offsets of 6 bits: the first four
    of each have a byte of their own; the last four have their low bits in the third group of four
    bytes and their two high bits on top of the first four.
    """
    factors = blocks[:, :4].copy().view(np.float16).T.astype(np.float32)  # [2, n]
    # Transposed, so that every operation runs over long rows: three times faster.
    packed = np.ascontiguousarray(blocks[:, 4:16].T)  # [12, n]
    scales, offsets = np.empty((2, 8, len(blocks)), np.uint8)
    np.bitwise_and(packed[:4], 63, out=scales[:4])
    np.bitwise_and(packed[4:8], 63, out=offsets[:4])
    np.bitwise_and(packed[8:], 15, out=scales[4:])
    np.right_shift(packed[8:], 4, out=offsets[4:])
    high = packed[:8] >> 6
    high <<= 4
    scales[4:] |= high[:4]
    offsets[4:] |= high[4:]
    return (scales * factors[0]).T, (offsets * factors[1]).T


def decode_q4_k(blocks: np.ndarray, out: np.ndarray) -> None:
    """two f16 factors; 8 pairs of 6 bits; 128 bytes of nibbles in runs of 32."""
    scales, offsets = _sub_block_factors(blocks)
    scaled(nibbles(blocks[:, 16:], 32), scales, out)
    shifted(offsets, out)


def decode_q5_k(blocks: np.ndarray, out: np.ndarray) -> None:
    """As Q4_K, with 32 bytes of high bits before the nibbles: bit b of byte l for 32 b + l."""
    scales, offsets = _sub_block_factors(blocks)
    integers = nibbles(blocks[:, 48:], 32).reshape(-1, 8, 32)
    high = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]  # [n, 8, 32]
    high &= 1
    high <<= 4
    integers |= high
    scaled(integers.reshape(-1, 256), scales, out)
    shifted(offsets, out)


def decode_q6_k(blocks: np.ndarray, out: np.ndarray) -> None:
    """128 bytes of low nibbles in runs of 64; 64 bytes of 2 high bits; 16 int8 scales; f16.

    Stored plus 32.
    """
    integers = nibbles(blocks[:, :128], 64).reshape(-1, 2, 4, 32)
    high = crumbs(blocks[:, 128:192])
    high <<= 4
    integers |= high
    integers = integers.view(np.int8)
    integers -= 32
    factors = half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    scaled(integers.reshape(-1, 256), factors, out)
