"""Planar repacking: the parts of a matrix's blocks, each in a plane of its own.

A block of a file is 34, 66, 84, ... bytes, so its 4-byte words lie across borders and a GPU has to
read it by bytes. Here the same bytes are sorted by what they are, in the order of the file:

    quants   the small integers, 16 to 256 bytes a block (floats for F32, F16, BF16)
    high     their high bits, where the format keeps those apart
    scales   the scales of sub-blocks
    factors  the block's one or two float16 factors, or its exponent byte

Nothing is decoded and nothing is added: a matrix takes the bytes it has in the file. A plane starts
at an address of the allocator (16-byte aligned) and row r of it at r * bytes per row, which is a
multiple of 16 for quants. Three types are widened without loss where a device has no kernel of
their own: Q4_0 and Q5_0 to Q8_0 (integers of 8 bits), Q3_K to Q6_K (integers plus 32).
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mlx_kernels.blocks import BLOCK, PackedMatrix, check_matrix, dequantize
from mlx_kernels.blocks.unpacking import crumbs, nibbles
from mlx_kernels.errors import TensorError

PLANES = ("quants", "high", "scales", "factors")

_Span = tuple[int, int]


class _Layout(NamedTuple):
    """Where the planes' bytes of one block lie in the file's block: start and stop."""

    quants: _Span
    high: _Span = (0, 0)
    scales: _Span = (0, 0)
    factors: _Span = (0, 0)


_F32, _F16, _BF16 = 0, 1, 30
_Q4_0, _Q5_0, _Q8_0, _Q3_K, _Q6_K = 2, 6, 8, 11, 14

LAYOUT: dict[int, _Layout] = {
    _F32: _Layout((0, 4)),
    _F16: _Layout((0, 2)),
    _BF16: _Layout((0, 2)),
    3: _Layout((4, 20), factors=(0, 4)),  # Q4_1
    7: _Layout((8, 24), high=(4, 8), factors=(0, 4)),  # Q5_1
    _Q4_0: _Layout((2, 18), factors=(0, 2)),
    _Q5_0: _Layout((6, 22), high=(2, 6), factors=(0, 2)),
    _Q3_K: _Layout((32, 96), high=(0, 32), scales=(96, 108), factors=(108, 110)),
    _Q8_0: _Layout((2, 34), factors=(0, 2)),
    10: _Layout((16, 80), scales=(0, 16), factors=(80, 84)),  # Q2_K
    12: _Layout((16, 144), scales=(4, 16), factors=(0, 4)),  # Q4_K
    13: _Layout((48, 176), high=(16, 48), scales=(4, 16), factors=(0, 4)),  # Q5_K
    _Q6_K: _Layout((0, 128), high=(128, 192), scales=(192, 208), factors=(208, 210)),
    16: _Layout((2, 66), factors=(0, 2)),  # IQ2_XXS
    39: _Layout((1, 17), factors=(0, 1)),  # MXFP4
}

_WIDENED = {_Q4_0: _Q8_0, _Q5_0: _Q8_0, _Q3_K: _Q6_K}
_FLOAT_TYPES = (_F32, _F16, _BF16)
_CHUNK_BYTES = 4 << 20  # of a widened matrix at a time: no second copy of the whole in memory
_ALIGN = 16


@dataclass(frozen=True, slots=True)
class PlanarMatrix:
    """A matrix in planar form; a plane that the type does not have is empty."""

    type_id: int  # a key of LAYOUT: after widening, if any
    shape: tuple[int, int]  # [R, C]
    quants: np.ndarray  # uint8, flat, padded with zeros to a multiple of 16 bytes; likewise below
    high: np.ndarray
    scales: np.ndarray
    factors: np.ndarray

    @property
    def n_bytes(self) -> int:
        """Bytes of all planes."""
        return sum(getattr(self, name).size for name in PLANES)


def planar_type(type_id: int, n_columns: int, formats: Collection[int] = ()) -> int | None:
    """Return the type that a matrix has in planar form; None where it has none.

    ``formats``: types of these are not widened. Rows of floats need a multiple of 16 bytes; those
    of blocks always have it.
    """
    planar = type_id if type_id in formats else _WIDENED.get(type_id, type_id)
    if planar not in LAYOUT:
        return None
    if planar in _FLOAT_TYPES and n_columns * BLOCK[planar].n_bytes % _ALIGN:
        return None
    return planar


def planar_bytes(type_id: int, shape: tuple[int, ...], formats: Collection[int] = ()) -> int:
    """Bytes that a matrix of that type and shape takes in planar form, padding of planes aside."""
    planar = planar_type(type_id, shape[-1], formats)
    assert planar is not None
    n_values = 1
    for n in shape:
        n_values *= n
    return n_values // BLOCK[planar].n_values * BLOCK[planar].n_bytes


def to_planar(parts: Sequence[PackedMatrix], formats: Collection[int] = ()) -> PlanarMatrix:
    """Sort matrices of equal width and planar type into planes, the rows of the first on top.

    ``formats``: types of these are not widened.

    Raises:
        TensorError: a matrix is not what it says, or the widths or planar types differ.
    """
    for part in parts:
        check_matrix(part)
    n_columns = parts[0].shape[1]
    type_id = planar_type(parts[0].type_id, n_columns, formats)
    for part in parts:
        found = part.shape[1], planar_type(part.type_id, n_columns, formats)
        if type_id is None or found != (n_columns, type_id):
            raise TensorError(
                f"{part.name or 'a matrix'} ({BLOCK[part.type_id].name} {list(part.shape)}) has no "
                f"planar form together with {parts[0].name or 'the first matrix'} "
                f"({BLOCK[parts[0].type_id].name} {list(parts[0].shape)})",
                "Stack matrices of one width and one type only.",
            )
    assert type_id is not None
    n_rows = sum(part.shape[0] for part in parts)
    n_blocks = n_rows * n_columns // BLOCK[type_id].n_values
    spans = [span for span in LAYOUT[type_id] if span[1] > span[0]]
    planes = {span: _empty_plane(n_blocks, span) for span in spans}
    first = 0
    for part in parts:
        for blocks in _blocks(part, type_id):
            for span, plane in planes.items():
                width = span[1] - span[0]
                to = plane[first * width : (first + len(blocks)) * width].reshape(-1, width)
                to[...] = blocks[:, span[0] : span[1]]
            first += len(blocks)
    none = np.zeros(0, np.uint8)
    return PlanarMatrix(
        type_id, (n_rows, n_columns), *(planes.get(span, none) for span in LAYOUT[type_id])
    )


def from_planar(matrix: PlanarMatrix) -> np.ndarray:
    """Decode a planar matrix to [R, C] float32; exactly the values of the blocks it came from."""
    block = BLOCK[matrix.type_id]
    n_blocks = matrix.shape[0] * matrix.shape[1] // block.n_values
    blocks = np.empty((n_blocks, block.n_bytes), np.uint8)
    for name, (start, stop) in zip(PLANES, LAYOUT[matrix.type_id], strict=True):
        plane = getattr(matrix, name)[: n_blocks * (stop - start)]
        blocks[:, start:stop] = plane.reshape(n_blocks, stop - start)
    return dequantize(matrix.type_id, blocks.reshape(-1), matrix.shape)


def _empty_plane(n_blocks: int, span: _Span) -> np.ndarray:
    n_bytes = n_blocks * (span[1] - span[0])
    plane = np.empty(-(-n_bytes // _ALIGN) * _ALIGN, np.uint8)
    plane[n_bytes:] = 0
    return plane


def _blocks(part: PackedMatrix, type_id: int) -> Iterator[np.ndarray]:
    """Yield the blocks [n, bytes] of a matrix in its planar type, whole or in pieces."""
    block = BLOCK[part.type_id]
    blocks = part.raw.reshape(-1, block.n_bytes)
    if part.type_id == type_id:
        yield blocks
        return
    widen = {_Q4_0: _q4_0_as_q8_0, _Q5_0: _q5_0_as_q8_0, _Q3_K: _q3_k_as_q6_k}[part.type_id]
    step = _CHUNK_BYTES // BLOCK[type_id].n_bytes
    for start in range(0, len(blocks), step):
        yield widen(blocks[start : start + step])


def _q4_0_as_q8_0(blocks: np.ndarray) -> np.ndarray:
    """[n, 18] -> [n, 34]."""
    integers = nibbles(blocks[:, 2:], 16).view(np.int8) - np.int8(8)
    return np.concatenate([blocks[:, :2], integers.view(np.uint8)], axis=1)


def _q5_0_as_q8_0(blocks: np.ndarray) -> np.ndarray:
    """[n, 22] -> [n, 34]."""
    fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little") << 4
    integers = (nibbles(blocks[:, 6:], 16) | fifth).view(np.int8) - np.int8(16)
    return np.concatenate([blocks[:, :2], integers.view(np.uint8)], axis=1)


def _q3_k_as_q6_k(blocks: np.ndarray) -> np.ndarray:
    """[n, 110] -> [n, 210]: integers -4 to 3 stored plus 32, scales as signed bytes."""
    n = len(blocks)
    integers = crumbs(blocks[:, 32:96]).reshape(n, 8, 32)
    high = (blocks[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    integers = (integers | high << 2) + np.uint8(28)  # minus 4 plus 32
    runs = integers.reshape(n, 2, 4, 32)  # of 128 values, in the order of the values
    low = runs & 15
    quants = low[:, :, :2] | low[:, :, 2:] << 4
    top = runs >> 4
    crumb = top[:, :, 0] | top[:, :, 1] << 2 | top[:, :, 2] << 4 | top[:, :, 3] << 6
    small = np.concatenate([blocks[:, 96:104] & 15, blocks[:, 96:104] >> 4], axis=1)  # [n, 16]
    for quarter in range(4):
        part = small[:, 4 * quarter : 4 * quarter + 4]
        part |= ((blocks[:, 104:108] >> (2 * quarter)) & 3) << 4
    small -= np.uint8(32)  # wraps to the two's complement of a signed byte
    return np.concatenate(
        [quants.reshape(n, 128), crumb.reshape(n, 64), small, blocks[:, 108:]], axis=1
    )
