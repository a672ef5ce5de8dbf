"""What one layer of DeepSeek V4 keeps of the past, on arrays of either world.

*Window*: the last W rows of keys that are values too. *Compressed rows*: each R tokens pooled to
one row, all of them, for ever. *Frontier*: values and scores of the tokens that have not been
pooled yet; at R = 4 also of the last pooled group, which has a second share in the next row.

All of it is by absolute position, so going back is a matter of forgetting: the frontier is the last
rows of a ring, and n // R compressed rows exist at n tokens.
"""

from typing import Any

import numpy as np

from mlx_kernels.deepseek_v4_ops import SLACK_TOKENS, NetworkShape
from mlx_kernels.deepseek_v4_ring import Ring

Array = Any

NO_SCORE = np.float32(-1e30)  # of a place without a token, in saved frontiers
_GROW_ROWS = 64  # the buffer of compressed rows at least doubles, with room for this many more


class RowBuffer:
    """Compressed rows [n, width] that grow up to ``max_rows``."""

    def __init__(self, xp: Any, width: int, max_rows: int, dtype: Any) -> None:
        self.n_rows = 0
        self._xp, self._max_rows, self._dtype = xp, max_rows, dtype
        self._rows = xp.zeros((0, width), dtype=dtype)

    @property
    def rows(self) -> Array:
        """[n_rows, width]."""
        return self._rows[: self.n_rows]

    @property
    def raw(self) -> Array:
        """The whole buffer [capacity, width], of which ``n_rows`` are there."""
        return self._rows

    def append(self, rows: Array) -> None:
        """Add rows [n, width], rounded to the buffer's type."""
        stop = self.n_rows + rows.shape[0]
        capacity, width = self._rows.shape
        if stop > capacity:
            assert stop <= self._max_rows
            capacity = min(max(stop + _GROW_ROWS, 2 * capacity), self._max_rows)
            free = self._xp.zeros((capacity - self.n_rows, width), dtype=self._dtype)
            self._rows = self._xp.concatenate([self.rows, free])
        self._rows[self.n_rows : stop] = rows.astype(self._dtype)
        self.n_rows = stop


class CompressorState:
    """Frontier and rows of one compressor of ``width`` values at ratio R."""

    def __init__(self, xp: Any, ratio: int, width: int, max_tokens: int, row_dtype: Any) -> None:
        self.ratio, self.width = ratio, width
        self.n_before = ratio if ratio == 4 else 0  # tokens of the group before that count again
        self.score_at = 2 * width if ratio == 4 else width  # w: values before, scores behind
        self.frontier = Ring(xp, self.n_before + ratio, 2 * self.score_at)
        self.rows = RowBuffer(xp, width, max_tokens // ratio, row_dtype)

    def first_needed(self, n_tokens: int) -> int:
        """Lowest position whose value and score the row after ``n_tokens`` may need."""
        return max(0, n_tokens // self.ratio * self.ratio - self.n_before)

    def truncate(self, n_tokens: int) -> None:
        """Forget, after the frontier was asked whether it can."""
        self.frontier.truncate(n_tokens)
        self.rows.n_rows = min(self.rows.n_rows, n_tokens // self.ratio)

    def read_frontier(self) -> tuple[np.ndarray, np.ndarray]:
        """Return values and scores [R or 2 R, w], places without a token cleared."""
        n, w = self.frontier.end, self.score_at
        start = self.first_needed(n)
        live = np.array(self.frontier.rows(start, n))
        at = start - (n // self.ratio * self.ratio - self.n_before)
        kv = np.zeros((self.n_before + self.ratio, w), np.float32)
        score = np.full_like(kv, NO_SCORE)
        kv[at : at + len(live)], score[at : at + len(live)] = live[:, :w], live[:, w:]
        # The group before has only its first half left: what it gave to its own row is past.
        kv[: self.n_before, self.width :] = 0.0
        score[: self.n_before, self.width :] = NO_SCORE
        return kv, score

    def write(self, rows: Array, kv: np.ndarray, score: np.ndarray, n_tokens: int, xp: Any) -> None:
        """Replace rows and frontier by those of a state of ``n_tokens``."""
        self.rows.n_rows = 0
        self.rows.append(rows)
        start = self.first_needed(n_tokens)
        at = start - (n_tokens // self.ratio * self.ratio - self.n_before)
        live = slice(at, at + n_tokens - start)
        self.frontier.replace(xp.array(np.concatenate([kv[live], score[live]], 1)), n_tokens)


class PlainLayerState:
    """``LayerState`` of one layer; ``xp`` is ``numpy`` or ``mlx.core``."""

    def __init__(
        self, xp: Any, shape: NetworkShape, ratio: int, max_tokens: int, rounds: bool
    ) -> None:
        self.shape, self.ratio, self.rounds = shape, ratio, rounds
        self._xp = xp
        self._block: Array | None = None
        dtype = xp.float16 if rounds else xp.float32
        self._host_dtype = np.float16 if rounds else np.float32
        self.window = Ring(xp, shape.window, shape.head_dim)
        self.compressor = self.indexer = None
        if ratio:
            self.compressor = CompressorState(xp, ratio, shape.head_dim, max_tokens, dtype)
        if ratio == 4:
            self.indexer = CompressorState(xp, ratio, shape.index_dim, max_tokens, dtype)

    @property
    def n_tokens(self) -> int:
        """Positions stored."""
        return self.window.end

    def append_window(self, rows: Array) -> None:
        """Add the rows [T, d] of T positions.

        The ring drops what the first of many queries still see: a long block stays as a whole
        until ``window_of_block`` has handed it out.
        """
        if rows.shape[0] > SLACK_TOKENS:
            end = self.n_tokens
            old = self.window.rows(max(0, end - self.shape.window + 1), end)
            self._block = self._xp.concatenate([old, rows])
        self.window.append(rows)

    def window_of_block(self, n_new: int) -> Array:
        """Return the rows that the last ``n_new`` positions see, oldest first.

        [min(first, W - 1) + n_new, d], first = the first of these positions. Once a block.
        """
        block, self._block = self._block, None
        if block is None:
            first = self.n_tokens - n_new
            block = self.window.rows(max(0, first - self.shape.window + 1), self.n_tokens)
        return block

    def can_truncate(self, n_tokens: int) -> bool:
        """See ``LayerState``."""
        first = max(0, n_tokens - self.shape.window)
        return self.window.can_truncate(n_tokens, first) and all(
            part.frontier.can_truncate(n_tokens, part.first_needed(n_tokens))
            for _, part in self._parts()
        )

    def truncate(self, n_tokens: int) -> None:
        """See ``LayerState``."""
        self._block = None
        self.window.truncate(n_tokens)
        for _, part in self._parts():
            part.truncate(n_tokens)

    def settled(self, n_tokens: int) -> dict[str, int]:
        """See ``LayerState``."""
        return {f"{name}compressed": n_tokens // part.ratio for name, part in self._parts()}

    def arrays(self, kept: int = 0) -> dict[str, np.ndarray]:
        """See ``LayerState``."""
        n, dtype = self.n_tokens, self._host_dtype
        start = max(0, n - self.shape.window)
        arrays = {"window": np.array(self.window.rows(start, n)).astype(dtype)}
        for name, part in self._parts():
            rows = part.rows.rows[kept // part.ratio :]
            arrays[f"{name}compressed"] = np.array(rows).astype(dtype)
            kv, score = part.read_frontier()
            arrays[f"{name}compressor.kv"], arrays[f"{name}compressor.score"] = kv, score
        return arrays

    def expected(self, n_tokens: int) -> dict[str, tuple[tuple[int, ...], type]]:
        """Return shape and type of each array of a state of ``n_tokens``."""
        dtype = self._host_dtype
        window = (min(n_tokens, self.shape.window), self.shape.head_dim)
        expected: dict[str, tuple[tuple[int, ...], type]] = {"window": (window, dtype)}
        for name, part in self._parts():
            expected[f"{name}compressed"] = ((n_tokens // part.ratio, part.width), dtype)
            frontier = (part.n_before + part.ratio, part.score_at)
            expected[f"{name}compressor.kv"] = (frontier, np.float32)
            expected[f"{name}compressor.score"] = (frontier, np.float32)
        return expected

    def load(self, arrays: dict[str, np.ndarray], n_tokens: int) -> None:
        """See ``LayerState``."""
        xp, self._block = self._xp, None
        self.window.replace(xp.array(arrays["window"].astype(np.float32)), n_tokens)
        for name, part in self._parts():
            part.write(
                xp.array(arrays[f"{name}compressed"]),
                arrays[f"{name}compressor.kv"],
                arrays[f"{name}compressor.score"],
                n_tokens,
                xp,
            )

    def _parts(self) -> list[tuple[str, CompressorState]]:
        parts = (("", self.compressor), ("indexer.", self.indexer))
        return [(name, part) for name, part in parts if part is not None]


def state_bytes(shape: NetworkShape, ratio: int, n_tokens: int) -> int:
    """Return the memory of a layer's state: rings in float32, compressed rows in float16."""
    n_bytes = 4 * (shape.window + SLACK_TOKENS) * shape.head_dim
    if ratio == 4:
        width = shape.head_dim + shape.index_dim
        n_bytes += 4 * (8 + SLACK_TOKENS) * 4 * width + 2 * width * (n_tokens // 4)
    elif ratio:
        n_bytes += 4 * (ratio + SLACK_TOKENS) * 2 * shape.head_dim
        n_bytes += 2 * shape.head_dim * (n_tokens // ratio)
    return n_bytes
