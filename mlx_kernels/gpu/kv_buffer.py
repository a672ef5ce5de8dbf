"""Keys and values of one layer in MLX arrays that grow."""

import mlx.core as mx
import numpy as np

_GROW_ROWS = 256  # a buffer at least doubles, and starts with this many positions


class MlxKvBuffer:
    """Keys and values [1, Hkv, capacity, D] float32 that hold float16 values."""

    def __init__(self, n_kv_heads: int, head_dim: int, max_rows: int) -> None:
        self.n_rows = 0
        self._max_rows = max_rows
        self._keys = mx.zeros((1, n_kv_heads, 0, head_dim))
        self._values = mx.zeros((1, n_kv_heads, 0, head_dim))

    @property
    def keys(self) -> mx.array:
        """[1, Hkv, n_rows, D]."""
        return self._keys[:, :, : self.n_rows]

    @property
    def values(self) -> mx.array:
        """[1, Hkv, n_rows, D]."""
        return self._values[:, :, : self.n_rows]

    def append(self, keys: mx.array, values: mx.array) -> None:
        """See ``KvBuffer``."""
        stop = self.n_rows + len(keys)
        self._reserve(stop)
        self._keys[:, :, self.n_rows : stop] = _rounded(keys)
        self._values[:, :, self.n_rows : stop] = _rounded(values)
        self.n_rows = stop

    def truncate(self, n_rows: int) -> None:
        """See ``KvBuffer``."""
        self.n_rows = min(self.n_rows, n_rows)

    def read(self, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """See ``KvBuffer``."""
        keys, values = (
            np.array(mx.swapaxes(rows[0, :, first:], 0, 1).astype(mx.float16))
            for rows in (self.keys, self.values)
        )
        return keys, values

    def write(self, keys: np.ndarray, values: np.ndarray) -> None:
        """See ``KvBuffer``."""
        self.n_rows = 0
        self.append(mx.array(keys), mx.array(values))
        mx.eval(self._keys, self._values)

    def _reserve(self, n_rows: int) -> None:
        _, heads, capacity, width = self._keys.shape
        if n_rows <= capacity:
            return
        assert n_rows <= self._max_rows
        capacity = min(max(n_rows, 2 * capacity, _GROW_ROWS), self._max_rows)
        free = mx.zeros((1, heads, capacity - self.n_rows, width))
        self._keys = mx.concatenate([self.keys, free], axis=2)
        self._values = mx.concatenate([self.values, free], axis=2)


def _rounded(rows: mx.array) -> mx.array:
    """[T, Hkv, D] -> [1, Hkv, T, D] float32, rounded to float16."""
    return mx.swapaxes(rows.astype(mx.float16).astype(mx.float32), 0, 1)[None]
