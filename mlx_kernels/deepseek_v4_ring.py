"""A ring of the last rows of a layer, by position, that can go back a little.

The row of position p lies at p mod capacity. The ring keeps ``SLACK_TOKENS`` positions more than
the network looks back to, so a short step back needs no copy. A longer block of new rows makes a
new array and leaves the old one for ``undo``: a block that failed, or that the conversation drops
again, is taken back as a whole.

Written once for both array worlds; ``xp`` is ``numpy`` or ``mlx.core``.
"""

from typing import Any

import numpy as np

from mlx_kernels.deepseek_v4_ops import SLACK_TOKENS

Array = Any


class Ring:
    """Rows [capacity, width] float32.

    Attributes:
        oldest: Lowest position whose row is still there.
        end: One more than the highest position.
    """

    def __init__(self, xp: Any, n_needed: int, width: int) -> None:
        self.oldest = self.end = 0
        self.capacity = n_needed + SLACK_TOKENS
        self._xp = xp
        self._rows = xp.zeros((self.capacity, width), dtype=xp.float32)
        self._undo: tuple[Array, int, int] | None = None

    @property
    def raw(self) -> Array:
        """All rows in their physical order."""
        return self._rows

    def rows(self, start: int, stop: int) -> Array:
        """Return the rows of positions ``start`` to ``stop``, oldest first."""
        assert self.oldest <= start <= stop <= self.end
        first, last = start % self.capacity, stop % self.capacity
        if start == stop:
            return self._rows[:0]
        if first < last:
            return self._rows[first:last]
        return self._xp.concatenate([self._rows[first:], self._rows[:last]])

    def append(self, rows: Array) -> None:
        """Add rows [T, width] for the next T positions."""
        n_new = rows.shape[0]
        stop = self.end + n_new
        if n_new > SLACK_TOKENS:
            self._undo = (self._rows, self.oldest, self.end)
            old = self.rows(self.oldest, self.end)
            self._place(self._xp.concatenate([old, rows])[-self.capacity :], stop)
        else:
            places = np.arange(self.end, stop) % self.capacity
            self._rows[int(places[0]) if n_new == 1 else self._xp.array(places)] = (
                rows[0] if n_new == 1 else rows
            )
        self.oldest = max(self.oldest, stop - self.capacity)
        self.end = stop

    def advance(self, raw: Array) -> None:
        """Take over all rows in their physical order, with that of one more position in place."""
        self._rows = raw
        self.end += 1
        self.oldest = max(self.oldest, self.end - self.capacity)

    def can_truncate(self, end: int, first_needed: int) -> bool:
        """Whether the state at ``end``, which looks back to ``first_needed``, is still there."""
        if end >= self.end or (self._undo is not None and end == self._undo[2]):
            return True
        return self.oldest <= first_needed or end == 0

    def truncate(self, end: int) -> None:
        """Forget the positions from ``end`` on, if there are any, after ``can_truncate``."""
        if end >= self.end:
            return
        if self._undo is not None and end <= self._undo[2]:
            if end == self._undo[2]:
                self._rows, self.oldest, _ = self._undo
            self._undo = None
        self.end = end
        self.oldest = min(self.oldest, end)

    def replace(self, rows: Array, end: int) -> None:
        """Replace everything by rows [n, width] of the positions before ``end``."""
        self._undo = None
        self.oldest = end - rows.shape[0]
        self._place(rows, end)
        self.end = end

    def _place(self, rows: Array, stop: int) -> None:
        """Make a new array that holds rows of the positions before ``stop``."""
        xp, n = self._xp, rows.shape[0]
        free = xp.zeros((self.capacity - n, rows.shape[1]), dtype=xp.float32)
        linear = xp.concatenate([rows, free])  # position stop - n at 0
        self._rows = xp.roll(linear, (stop - n) % self.capacity, axis=0)
