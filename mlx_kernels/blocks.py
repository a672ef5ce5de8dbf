"""GGUF block formats: how quantised weights lie in a file, and their exact float32 values.

A quantised row is a sequence of blocks. A block holds 32 or 256 values as small integers and one
or two float16 scales; the "K" formats split their 256 values into sub-blocks whose scales are
small integers themselves. Every format here decodes to

    value = scale * integer            (Q4_0, Q5_0, Q8_0, Q3_K, Q6_K)
    value = scale * integer + offset   (Q4_1, Q5_1; the K formats Q2_K, Q4_K, Q5_K subtract it)

The products are exact in float32 (at most 11 + 6 + 6 bits), so there is one right answer, and
these functions give it bit by bit. Integers of less than 8 bits are spread over several planes
of a block (low bits, high bits); each decoder gathers them into one byte per value first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

import numpy as np

from mlx_kernels.errors import TensorError


class BlockFormat(NamedTuple):
    """Name and size of one block format."""

    name: str
    n_values: int  # values per block
    n_bytes: int  # bytes per block


# Every tensor type of the public GGUF specification, so that a reader can size any file. Those
# that can be computed with are the keys of _DECODERS below.
BLOCK: dict[int, BlockFormat] = {
    0: BlockFormat("F32", 1, 4),
    1: BlockFormat("F16", 1, 2),
    2: BlockFormat("Q4_0", 32, 18),
    3: BlockFormat("Q4_1", 32, 20),
    6: BlockFormat("Q5_0", 32, 22),
    7: BlockFormat("Q5_1", 32, 24),
    8: BlockFormat("Q8_0", 32, 34),
    9: BlockFormat("Q8_1", 32, 36),
    10: BlockFormat("Q2_K", 256, 84),
    11: BlockFormat("Q3_K", 256, 110),
    12: BlockFormat("Q4_K", 256, 144),
    13: BlockFormat("Q5_K", 256, 176),
    14: BlockFormat("Q6_K", 256, 210),
    15: BlockFormat("Q8_K", 256, 292),
    16: BlockFormat("IQ2_XXS", 256, 66),
    17: BlockFormat("IQ2_XS", 256, 74),
    18: BlockFormat("IQ3_XXS", 256, 98),
    19: BlockFormat("IQ1_S", 256, 50),
    20: BlockFormat("IQ4_NL", 32, 18),
    21: BlockFormat("IQ3_S", 256, 110),
    22: BlockFormat("IQ2_S", 256, 82),
    23: BlockFormat("IQ4_XS", 256, 136),
    24: BlockFormat("I8", 1, 1),
    25: BlockFormat("I16", 1, 2),
    26: BlockFormat("I32", 1, 4),
    27: BlockFormat("I64", 1, 8),
    28: BlockFormat("F64", 1, 8),
    29: BlockFormat("IQ1_M", 256, 56),
    30: BlockFormat("BF16", 1, 2),
    34: BlockFormat("TQ1_0", 256, 54),
    35: BlockFormat("TQ2_0", 256, 66),
    39: BlockFormat("MXFP4", 32, 17),
    40: BlockFormat("NVFP4", 64, 36),
    41: BlockFormat("Q1_0", 128, 18),
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
    for start in range(0, n_blocks, step):
        decode(blocks[start : start + step], values[start : start + step])
    return out


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix in its packed form, rows first. ``raw`` may be a view of a mapped file."""

    type_id: int
    raw: np.ndarray  # [R * bytes per row] uint8
    shape: tuple[int, int]  # [R, C]

    def rows(self, row_idx: np.ndarray) -> np.ndarray:
        """Decode the rows ``row_idx`` [T] -> [T, C] float32."""
        row_bytes = self.raw.reshape(self.shape[0], -1)
        return dequantize(
            self.type_id, row_bytes[row_idx].reshape(-1), (len(row_idx), self.shape[1])
        )


# --- decoders: blocks [n, bytes] uint8 -> out [n, values] float32 -------------------------------


def _half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 at byte ``at`` of every block, as float32 [n, 1]."""
    return blocks[:, at : at + 2].view(np.float16).astype(np.float32)


def _nibbles(packed: np.ndarray, run: int) -> np.ndarray:
    """Unpack 4-bit integers: each ``run`` bytes hold ``run`` low, then ``run`` high nibbles.

    [n, m] uint8 -> [n, 2 m] uint8.
    """
    n, m = packed.shape
    packed = packed.reshape(n, m // run, run)
    integers = np.empty((n, m // run, 2, run), np.uint8)
    np.bitwise_and(packed, 15, out=integers[:, :, 0])
    np.right_shift(packed, 4, out=integers[:, :, 1])
    return integers.reshape(n, 2 * m)


def _scaled(integers: np.ndarray, scales: np.ndarray, out: np.ndarray) -> None:
    """Write integers [n, V] times scales [n, S], each of which covers V / S neighbours."""
    n, n_scales = scales.shape
    out[...] = integers
    grouped = out.reshape(n, n_scales, -1)
    np.multiply(grouped, scales[:, :, None], out=grouped)


def _shifted(offsets: np.ndarray, out: np.ndarray) -> None:
    """Subtract offsets [n, S] from ``out`` [n, V], grouped as in ``_scaled``."""
    grouped = out.reshape(*offsets.shape, -1)
    np.subtract(grouped, offsets[:, :, None], out=grouped)


def _f32(blocks: np.ndarray, out: np.ndarray) -> None:
    out[...] = blocks.view(np.float32)


def _f16(blocks: np.ndarray, out: np.ndarray) -> None:
    out[...] = blocks.view(np.float16)


def _bf16(blocks: np.ndarray, out: np.ndarray) -> None:
    # A bfloat16 is the upper half of a float32.
    np.left_shift(blocks.view(np.uint16), 16, out=out.view(np.uint32), dtype=np.uint32)


def _q4_0(blocks: np.ndarray, out: np.ndarray) -> None:
    """scale f16; 16 bytes of nibbles, stored plus 8."""
    integers = _nibbles(blocks[:, 2:], 16).view(np.int8)
    integers -= 8
    _scaled(integers, _half(blocks, 0), out)


def _q4_1(blocks: np.ndarray, out: np.ndarray) -> None:
    """scale f16; offset f16; 16 bytes of nibbles."""
    _scaled(_nibbles(blocks[:, 4:], 16), _half(blocks, 0), out)
    out += _half(blocks, 2)


def _fifth_bits(packed: np.ndarray) -> np.ndarray:
    """[n, 4] bytes, bit j for value j -> [n, 32] uint8, each 0 or 16."""
    bits = np.unpackbits(packed, axis=1, bitorder="little")
    bits <<= 4
    return bits


def _q5_0(blocks: np.ndarray, out: np.ndarray) -> None:
    """scale f16; 32 high bits; 16 bytes of nibbles; stored plus 16."""
    integers = _nibbles(blocks[:, 6:], 16)
    integers |= _fifth_bits(blocks[:, 2:6])
    integers = integers.view(np.int8)
    integers -= 16
    _scaled(integers, _half(blocks, 0), out)


def _q5_1(blocks: np.ndarray, out: np.ndarray) -> None:
    """scale f16; offset f16; 32 high bits; 16 bytes of nibbles."""
    integers = _nibbles(blocks[:, 8:], 16)
    integers |= _fifth_bits(blocks[:, 4:8])
    _scaled(integers, _half(blocks, 0), out)
    out += _half(blocks, 2)


def _q8_0(blocks: np.ndarray, out: np.ndarray) -> None:
    """scale f16; 32 signed bytes."""
    _scaled(blocks[:, 2:].view(np.int8), _half(blocks, 0), out)


def _crumbs(packed: np.ndarray) -> np.ndarray:
    """Unpack 2-bit integers: each 32 bytes hold four runs of 32, lowest bits first.

    [n, 64] uint8 -> [n, 2, 4, 32] uint8.
    """
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    integers = packed.reshape(-1, 2, 1, 32) >> shifts  # [n, 2, 4, 32]
    integers &= 3
    return integers


def _q2_k(blocks: np.ndarray, out: np.ndarray) -> None:
    """16 bytes (low nibble scale, high nibble offset); 64 bytes of 2 bits; two f16 factors."""
    small = blocks[:, :16]
    _scaled(_crumbs(blocks[:, 16:80]).reshape(-1, 256), _half(blocks, 80) * (small & 15), out)
    _shifted(_half(blocks, 82) * (small >> 4), out)


def _q3_k(blocks: np.ndarray, out: np.ndarray) -> None:
    """256 high bits; 64 bytes of 2 bits; 16 scales of 6 bits, stored plus 32; factor f16.

    Bit b of byte l of the high bits belongs to value 32 b + l; where it is clear, 4 is subtracted.
    """
    integers = _crumbs(blocks[:, 32:96]).reshape(-1, 8, 32)
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
    factors = _half(blocks, 108) * (scales.astype(np.int8) - 32)
    _scaled(integers.reshape(-1, 256), factors, out)


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


def _q4_k(blocks: np.ndarray, out: np.ndarray) -> None:
    """two f16 factors; 8 pairs of 6 bits; 128 bytes of nibbles in runs of 32."""
    scales, offsets = _sub_block_factors(blocks)
    _scaled(_nibbles(blocks[:, 16:], 32), scales, out)
    _shifted(offsets, out)


def _q5_k(blocks: np.ndarray, out: np.ndarray) -> None:
    """As Q4_K, with 32 bytes of high bits before the nibbles: bit b of byte l for 32 b + l."""
    scales, offsets = _sub_block_factors(blocks)
    integers = _nibbles(blocks[:, 48:], 32).reshape(-1, 8, 32)
    high = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]  # [n, 8, 32]
    high &= 1
    high <<= 4
    integers |= high
    _scaled(integers.reshape(-1, 256), scales, out)
    _shifted(offsets, out)


def _q6_k(blocks: np.ndarray, out: np.ndarray) -> None:
    """128 bytes of low nibbles in runs of 64; 64 bytes of 2 high bits; 16 int8 scales; f16.

    Stored plus 32.
    """
    integers = _nibbles(blocks[:, :128], 64).reshape(-1, 2, 4, 32)
    high = _crumbs(blocks[:, 128:192])
    high <<= 4
    integers |= high
    integers = integers.view(np.int8)
    integers -= 32
    factors = _half(blocks, 208) * blocks[:, 192:208].view(np.int8)
    _scaled(integers.reshape(-1, 256), factors, out)


_DECODERS: dict[int, Callable[[np.ndarray, np.ndarray], None]] = {
    0: _f32,
    1: _f16,
    30: _bf16,
    2: _q4_0,
    3: _q4_1,
    6: _q5_0,
    7: _q5_1,
    8: _q8_0,
    10: _q2_k,
    11: _q3_k,
    12: _q4_k,
    13: _q5_k,
    14: _q6_k,
}
