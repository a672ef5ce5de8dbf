"""Rows between float16 in memory and float32 in files, several times faster than a plain cast.

A float16 in the upper bits of a float32 has its exponent counted from another point. Multiplying
by 2**112 or 2**-112 moves it, and lets the processor deal with subnormal numbers; the rest is
shifts of whole arrays. (Both powers are exact, and so is every product here.)

From float32 that works where the value is a float16, which rows of this program are. Other
programs keep more bits in some of them: those pieces are cast, which rounds to the nearest.
"""

from typing import NamedTuple

import numpy as np

from sessions.state_digest import StateDigest
from sessions.streams import Aside

_WORTH_A_THREAD = 1 << 14  # values; fewer take less time than handing them over
_UP, _DOWN = np.float32(2.0**112), np.float32(2.0**-112)
_SIGN, _MAGNITUDE, _INFINITE = 0x8000, 0x7FFF, 0x7C00  # of a float16
_BELOW = np.uint32(0x1FFF)  # bits of a float32 that a float16 does not have
_LIMIT = np.float32(2.0**16 * 2.0**-112)  # the first power of two that is too large, moved


class Narrowed(NamedTuple):
    """What became of float32 values."""

    is_finite: bool  # as float16
    is_exact: bool  # each was a float16, bit by bit


def widen(rows: np.ndarray, out: np.ndarray) -> None:
    """Write float16 values into a float32 array of the same size; both contiguous."""
    bits, wide = rows.reshape(-1).view(np.uint16), out.reshape(-1)
    if (bits & _MAGNITUDE).max(initial=0) >= _INFINITE:  # the product would be finite
        wide[:] = rows.reshape(-1)
        return
    shifted = wide.view(np.uint32)
    np.bitwise_and(bits, _MAGNITUDE, out=shifted)
    np.left_shift(shifted, 13, out=shifted)
    np.multiply(wide, _UP, out=wide)
    upper = wide.view(np.uint16)[1::2]
    np.bitwise_or(upper, bits & _SIGN, out=upper)


def narrow(values: np.ndarray, out: np.ndarray, scratch: np.ndarray | None = None) -> Narrowed:
    """Round float32 values into a float16 array of the same size.

    Both are contiguous. What is too large for a float16 counts as infinite. ``scratch``: float32
    of that size to work in.
    """
    values, bits = values.reshape(-1), out.reshape(-1).view(np.uint16)
    if not values.size:
        return Narrowed(True, True)
    scratch = np.empty(values.size, np.float32) if scratch is None else scratch[: values.size]
    with np.errstate(under="ignore", invalid="ignore"):
        scaled = np.multiply(values, _DOWN, out=scratch)
    moved = scaled.view(np.uint32)
    # Two comparisons that NaN fails, and the bits that a float16 does not have.
    is_in_range = scaled.max() < _LIMIT and scaled.min() > -_LIMIT
    if not is_in_range or np.bitwise_or.reduce(moved) & _BELOW:
        with np.errstate(over="ignore", invalid="ignore"):
            out.reshape(-1)[:] = values
        again = out.reshape(-1).astype(np.float32)
        is_exact = np.array_equal(again.view(np.uint32), values.view(np.uint32))
        return Narrowed(bool(np.isfinite(out).all()), is_exact)
    np.right_shift(moved, 13, out=moved)
    np.copyto(bits, moved, casting="unsafe")
    np.bitwise_and(bits, _MAGNITUDE, out=bits)
    np.bitwise_or(bits, values.view(np.uint16)[1::2] & _SIGN, out=bits)
    return Narrowed(True, True)


class Narrower:
    """``narrow`` in a thread of its own, beside whoever reads the next values.

    With a digest it gets the rows too.

    Attributes:
        bad: Names of the arrays with a value that is not finite, after ``settle``.
    """

    def __init__(self, digest: StateDigest | None = None) -> None:
        self._digest = digest
        self.bad: list[str] = []
        self._aside = Aside("ds4-narrow")
        self._scratch = np.empty(0, np.float32)

    def submit(self, name: str, values: np.ndarray, out: np.ndarray) -> None:
        """Narrow now or soon, in order; ``values`` must stay as they are until ``settle``."""
        # In order: who settles all but the last three may use the memory of the fourth again.
        is_short = values.size < _WORTH_A_THREAD
        self._aside.submit(self._narrow, name, values, out, is_short=is_short)

    def settle(self, most_pending: int = 0) -> None:
        """Wait until no more than the last so many are to be done."""
        self._aside.settle(most_pending)

    def close(self) -> None:
        """Finish, and end the thread."""
        self._aside.close()

    def _narrow(self, name: str, values: np.ndarray, out: np.ndarray) -> None:
        if self._scratch.size < values.size:
            self._scratch = np.empty(values.size, np.float32)
        narrowed = narrow(values, out, self._scratch)
        if self._digest is not None and narrowed.is_exact:
            self._digest.update_rows(out)
        elif self._digest is not None:
            self._digest.update_odd_rows(values)
        if not narrowed.is_finite:
            self.bad.append(name)
