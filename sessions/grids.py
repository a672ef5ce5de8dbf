"""Small encodings of float16 numbers that lie on a coarse grid, exact or not at all.

A network that simulates low precision leaves its cached rows on a grid: every value is a number of
the FP8 format E4M3 (sign, 4 bits of exponent, 3 of mantissa, largest 448) or of the FP4 format
E2M1 (0, 0.5, 1, 1.5, 2, 3, 4, 6), times a power of two for each group of 64 or 32 values
(DeepSeek V4: the simulated quantisation of its cache). Such a value fits into one byte or half a
byte, and the group's exponent into another.

Which power the network took need not be known. The smallest one that reaches the group's largest
value serves: halving it only adds numbers to the grid at the small end.

Encoding is one look into a table of all float16 numbers for each exponent. The table only knows
the numbers that decode to exactly these bits, signs of zeros included. A row with any other number
is a *stray*, to be kept as it is.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np

# Powers for which a float16 can be on a grid: 2**-24 is the smallest number, 65504 the largest.
LEAST_EXPONENT, MOST_EXPONENT = -34, 16
_N_EXPONENTS = MOST_EXPONENT - LEAST_EXPONENT + 1
_ROWS_AT_A_TIME = 512  # of some 500 values: the index array stays in the cache of a core


@dataclass(frozen=True)
class Grid:
    """One format.

    Attributes:
        group: Values that share a power of two.
        bits: Of a code.
        numbers: float32 by code.
    """

    name: str
    group: int
    bits: int
    numbers: tuple[float, ...]

    def fits(self, width: int) -> bool:
        """Whether rows of ``width`` values can be packed."""
        return width > 0 and width % self.group == 0

    def code_bytes(self, width: int) -> int:
        """Bytes of the codes of a row."""
        return width * self.bits // 8


@dataclass(frozen=True, slots=True)
class Packed:
    """Rows on a grid."""

    exponents: np.ndarray  # int8 [n, width / group]
    codes: np.ndarray  # uint8 [n, width] or [n, width / 2], the even value in the low half
    strays: np.ndarray  # int64: rows that are not on the grid; their codes mean nothing


def _e4m3() -> tuple[float, ...]:
    small = [mantissa * 2.0**-9 for mantissa in range(8)]
    large = [(8 + m) * 2.0 ** (e - 10) for e in range(1, 16) for m in range(8)]
    magnitudes = [*small, *large[:-1]]  # the last pattern is no number
    return (*magnitudes, 0.0, *(-m for m in magnitudes))


FP8 = Grid("fp8", 64, 8, _e4m3())
FP4 = Grid("fp4", 32, 4, (0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6))


def pack(rows: np.ndarray, grid: Grid) -> Packed:
    """Encode float16 rows [n, width] of a width that ``fits``."""
    n, width = rows.shape
    bits = np.ascontiguousarray(rows).view(np.uint16).reshape(n, width // grid.group, grid.group)
    exponents = np.empty((n, width // grid.group), np.int8)
    codes = np.empty((n, grid.code_bytes(width)), np.uint8)
    strays = []
    for start in range(0, n, _ROWS_AT_A_TIME):
        piece = slice(start, start + _ROWS_AT_A_TIME)
        part = bits[piece]
        index = _exponent_table(grid)[(part & 0x7FFF).max(axis=2)]
        exponents[piece] = index + LEAST_EXPONENT
        places = part + (index.astype(np.int32) << 16)[:, :, None]
        found = np.take(_code_table(grid), places).reshape(len(part), width)
        bad = (found < 0).any(axis=1)
        if bad.any():
            strays.append(np.flatnonzero(bad) + start)
        one = found.astype(np.uint8)
        codes[piece] = one if grid.bits == 8 else one[:, 0::2] & 15 | one[:, 1::2] << 4
    return Packed(exponents, codes, np.concatenate([np.zeros(0, np.int64), *strays]))


def unpack(exponents: np.ndarray, codes: np.ndarray, grid: Grid) -> np.ndarray:
    """Decode to float16 rows [n, width].

    Raises:
        ValueError: an exponent is not one that ``pack`` gives.
    """
    n, n_groups = exponents.shape
    out = np.empty((n, n_groups, grid.group), np.uint16)
    if exponents.size and not (
        LEAST_EXPONENT <= exponents.min() and exponents.max() <= MOST_EXPONENT
    ):
        raise ValueError(f"exponents outside of {LEAST_EXPONENT} to {MOST_EXPONENT}")
    for start in range(0, n, _ROWS_AT_A_TIME):
        piece = slice(start, start + _ROWS_AT_A_TIME)
        part = codes[piece]
        if grid.bits == 4:
            part = np.stack((part & 15, part >> 4), axis=2)
        index = exponents[piece].astype(np.int32) - LEAST_EXPONENT
        places = part.reshape(len(part), n_groups, grid.group) + (index << grid.bits)[:, :, None]
        np.take(_number_table(grid), places, out=out[piece])
    return out.view(np.float16).reshape(n, n_groups * grid.group)


@cache
def _number_table(grid: Grid) -> np.ndarray:
    """Bits of the float16 for [exponent, code], flat; what overflows is infinite."""
    powers = np.arange(LEAST_EXPONENT, MOST_EXPONENT + 1)
    with np.errstate(over="ignore"):
        table = np.ldexp(np.array(grid.numbers, np.float64), powers[:, None]).astype(np.float16)
    full = np.zeros((_N_EXPONENTS, 1 << grid.bits), np.float16)
    full[:, : len(grid.numbers)] = table
    return full.view(np.uint16).reshape(-1)


@cache
def _code_table(grid: Grid) -> np.ndarray:
    """Code for [exponent, bits of a float16], flat int16; -1 where the grid has no such number."""
    exact = np.ldexp(
        np.array(grid.numbers, np.float64), np.arange(LEAST_EXPONENT, MOST_EXPONENT + 1)[:, None]
    )
    bits = _number_table(grid).reshape(_N_EXPONENTS, -1)[:, : len(grid.numbers)]
    table = np.full((_N_EXPONENTS, 1 << 16), -1, np.int16)
    for row, (numbers, patterns) in enumerate(zip(exact, bits, strict=True)):
        is_exact = patterns.view(np.float16).astype(np.float64) == numbers
        # The pattern of E4M3 that is no number stands for 0 in the list, and must not encode it.
        is_exact[127 if grid.bits == 8 else len(is_exact) :][:1] = False
        table[row, patterns[is_exact]] = np.flatnonzero(is_exact)
    return table.reshape(-1)


@cache
def _exponent_table(grid: Grid) -> np.ndarray:
    """Index of the smallest exponent whose grid reaches a magnitude, by the bits of a float16."""
    magnitudes = np.arange(1 << 15, dtype=np.uint16).view(np.float16).astype(np.float64)
    tops = max(grid.numbers) * 2.0 ** np.arange(LEAST_EXPONENT, MOST_EXPONENT + 1)
    index = np.searchsorted(tops, magnitudes)
    index[~np.isfinite(magnitudes)] = 0  # no grid has it: whatever is chosen, the row is a stray
    return index.astype(np.int8)
