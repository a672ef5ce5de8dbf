"""Arrays in few bytes, bit for bit: grids where values lie on one, then Huffman codes.

A *piece* is some rows of an array, cut so that it never takes more than a few MiB:

    u8              number of parts: column ranges from left to right
    for each part:
      u8            kind: 2 float16, 4 float32 (one block a byte plane, lowest byte first), 8 FP8,
                    5 FP4 (a block of exponents, one of codes, one of strays)
      u32           columns
      blocks        u8 method (0 as it is, 1 deflate), u32 bytes, u32 bytes decoded, the bytes

Strays are rows that are not on the grid: u32 row numbers of the piece, then their float16 values.
See ``grids``. How the columns are cut follows from a sample of the rows, and every row is proved.

Deflate is told to look for no repetitions: there are none in such numbers, it is three times as
fast without, and no byte can stand for more than eight. So a reader knows before it decodes that a
file of n bytes gives ``MOST_EXPANSION`` n at most.
"""

import struct
import zlib
from collections.abc import Iterator
from math import prod

import numpy as np

from sessions import grids
from sessions.errors import CheckpointError

PIECE_BYTES = 4 << 20  # of an array
MOST_EXPANSION = 32  # Huffman codes: 8, FP4: 4

_FLOAT16, _FLOAT32, _FP4, _FP8 = 2, 4, 5, 8
_GRIDS = {_FP4: grids.FP4, _FP8: grids.FP8}
_STORED, _DEFLATED = 0, 1
_PART = struct.Struct("<BI")
_BLOCK = struct.Struct("<BII")
_SAMPLE_ROWS = 64
_WORTH = 0.98  # share of the bytes below which codes are worth decoding
_DAMAGED = "The file is damaged: export the session again."


def pieces(array: np.ndarray) -> Iterator[np.ndarray]:
    """Cut a float16 or float32 array [rows, ...] into parts [some rows, columns]."""
    start = 0
    for n_rows, width in piece_shapes(array.shape, array.dtype):
        yield array.reshape(len(array), width)[start : start + n_rows]
        start += n_rows


def piece_shapes(shape: tuple[int, ...], dtype: np.dtype) -> Iterator[tuple[int, int]]:
    """Say how ``pieces`` cuts an array: rows and columns of each part."""
    if 0 in shape:
        return
    width = prod(shape[1:])
    step = max(1, PIECE_BYTES // (width * dtype.itemsize))
    for start in range(0, shape[0], step):
        yield min(step, shape[0] - start), width


def most_bytes(n_rows: int, width: int, dtype: np.dtype) -> int:
    """Return what a piece of this shape can take when it is encoded."""
    # Grids: every row may be a stray, beside codes and exponents.
    return 2 * n_rows * (width * dtype.itemsize + 4) + 1024


def encode(rows: np.ndarray) -> bytes:
    """Encode one piece."""
    parts = _cut(rows)
    out = [bytes([len(parts)])]
    start = 0
    for kind, width in parts:
        columns = np.ascontiguousarray(rows[:, start : start + width])
        start += width
        out.append(_PART.pack(kind, width))
        if kind in _GRIDS:
            packed = grids.pack(columns, _GRIDS[kind])
            strays = packed.strays.astype("<u4").tobytes() + columns[packed.strays].tobytes()
            blocks = [packed.exponents.tobytes(), packed.codes.tobytes(), strays]
        else:
            blocks = _planes(columns)
        out.extend(map(_block, blocks))
    return b"".join(out)


def decode(data: bytes, n_rows: int, width: int, dtype: np.dtype) -> np.ndarray:
    """Decode one piece [n_rows, width].

    Raises:
        CheckpointError: the bytes are no such piece.
    """
    try:
        return _decode(memoryview(data), n_rows, width, dtype)
    except (struct.error, zlib.error, ValueError, IndexError) as error:
        raise CheckpointError(f"numbers that cannot be decoded: {error}", _DAMAGED) from error


def _decode(data: memoryview, n_rows: int, width: int, dtype: np.dtype) -> np.ndarray:
    rows = np.empty((n_rows, width), dtype)
    at, start = 1, 0
    for _ in range(data[0]):
        kind, n_columns = _PART.unpack_from(data, at)
        at += _PART.size
        if n_columns > width - start:
            raise ValueError(f"{n_columns} columns, {width - start} are left")
        if kind in _GRIDS:
            part, at = _grid_part(data, at, n_rows, n_columns, _GRIDS[kind])
        elif kind == dtype.itemsize:
            sizes = [n_rows * n_columns] * kind
            planes, at = _blocks(data, at, sizes)
            stacked = np.stack([np.frombuffer(plane, np.uint8) for plane in planes], axis=1)
            part = stacked.view(dtype).reshape(n_rows, n_columns)
        else:
            raise ValueError(f"kind {kind} of numbers")
        if part.dtype != dtype:
            raise ValueError(f"{part.dtype} numbers, expected {dtype}")
        rows[:, start : start + n_columns] = part
        start += n_columns
    if (start, at) != (width, len(data)):
        raise ValueError(f"{start} columns of {width} in {at} bytes of {len(data)}")
    return rows


def _grid_part(
    data: memoryview, at: int, n_rows: int, width: int, grid: grids.Grid
) -> tuple[np.ndarray, int]:
    if not grid.fits(width):
        raise ValueError(f"{width} columns of {grid.name}")
    sizes = [n_rows * (width // grid.group), n_rows * grid.code_bytes(width), None]
    (exponents, codes, strays), at = _blocks(data, at, sizes)
    stray_bytes = 4 + 2 * width
    if len(strays) % stray_bytes or len(strays) > n_rows * stray_bytes:
        raise ValueError(f"{len(strays)} bytes of strays")
    rows = grids.unpack(
        np.frombuffer(exponents, np.int8).reshape(n_rows, -1),
        np.frombuffer(codes, np.uint8).reshape(n_rows, -1),
        grid,
    )
    n_strays = len(strays) // stray_bytes
    where = np.frombuffer(strays, "<u4", n_strays)
    if n_strays:
        if where.max() >= n_rows:
            raise ValueError(f"stray row {where.max()} of {n_rows}")
        rows[where] = np.frombuffer(strays, "<f2", offset=4 * n_strays).reshape(n_strays, width)
    return rows, at


def _blocks(
    data: memoryview, at: int, sizes: list[int | None]
) -> tuple[list[bytes | memoryview], int]:
    """Read blocks that must decode to these sizes; ``None``: to any that a piece can have."""
    found = []
    for size in sizes:
        method, n_bytes, n_decoded = _BLOCK.unpack_from(data, at)
        at += _BLOCK.size
        most = 8 * n_bytes + 64 if size is None else size
        if n_bytes > len(data) - at or n_decoded > most or n_decoded < (size or 0):
            raise ValueError(f"a block of {n_bytes} bytes for {n_decoded}")
        block = data[at : at + n_bytes]
        at += n_bytes
        if method == _DEFLATED:
            decoder = zlib.decompressobj(-zlib.MAX_WBITS)
            block = decoder.decompress(block, n_decoded + 1)
            if not decoder.eof or decoder.unused_data:
                raise ValueError("a block that does not end where it should")
        elif method != _STORED:
            raise ValueError(f"method {method}")
        if len(block) != n_decoded:
            raise ValueError(f"a block of {len(block)} bytes, expected {n_decoded}")
        found.append(block)
    return found, at


def _block(data: bytes) -> bytes:
    coder = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS, 9, zlib.Z_HUFFMAN_ONLY)
    coded = coder.compress(data) + coder.flush()
    if len(coded) < _WORTH * len(data):
        return _BLOCK.pack(_DEFLATED, len(coded), len(data)) + coded
    return _BLOCK.pack(_STORED, len(data), len(data)) + data


def _planes(columns: np.ndarray) -> list[bytes]:
    """Return byte 0 of all values, byte 1 of all values, ...: signs and exponents meet."""
    values = columns.reshape(-1, 1).view(np.uint8)
    return [values[:, i].tobytes() for i in range(columns.itemsize)]


def _cut(rows: np.ndarray) -> list[tuple[int, int]]:
    """Choose kinds and widths of the parts from a sample of the rows."""
    width = rows.shape[1]
    plain = rows.dtype.itemsize
    if plain != _FLOAT16:
        return [(plain, width)]
    step = max(1, len(rows) // _SAMPLE_ROWS)
    sample = rows[::step]
    if grids.FP4.fits(width) and _is_on(sample, grids.FP4):
        return [(_FP4, width)]
    n = 0  # columns on the FP8 grid; the rotated ones behind them are not
    while n + grids.FP8.group <= width and _is_on(sample[:, n : n + grids.FP8.group], grids.FP8):
        n += grids.FP8.group
    return [part for part in ((_FP8, n), (plain, width - n)) if part[1]]


def _is_on(sample: np.ndarray, grid: grids.Grid) -> bool:
    return 8 * len(grids.pack(sample, grid).strays) <= len(sample)
