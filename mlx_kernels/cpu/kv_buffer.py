"""Keys and values of one layer in a NumPy buffer that grows."""

import numpy as np

_GROW_ROWS = 256  # a buffer at least doubles, and starts with this many positions


class CpuKvBuffer:
    """Keys and values rounded to float16: exact to save.

    The compiled attention reads float16. For BLAS they are widened to float32 when they are
    written. Head-major, so that each head's rows are one BLAS matrix.
    """

    def __init__(self, n_kv_heads: int, head_dim: int, max_rows: int, dtype: type) -> None:
        self.n_rows = 0
        self._max_rows = max_rows
        self._keys = np.empty((n_kv_heads, 0, head_dim), dtype)
        self._values = np.empty((n_kv_heads, 0, head_dim), dtype)

    @property
    def keys(self) -> np.ndarray:
        """[Hkv, n_rows, D], a view."""
        return self._keys[:, : self.n_rows]

    @property
    def values(self) -> np.ndarray:
        """[Hkv, n_rows, D], a view."""
        return self._values[:, : self.n_rows]

    def append(self, keys: np.ndarray, values: np.ndarray) -> None:
        """See ``KvBuffer``."""
        stop = self.n_rows + len(keys)
        self._reserve(stop)
        # Assigning float16 to float32 widens it: the rounding is in astype.
        self._keys[:, self.n_rows : stop] = keys.astype(np.float16).swapaxes(0, 1)
        self._values[:, self.n_rows : stop] = values.astype(np.float16).swapaxes(0, 1)
        self.n_rows = stop

    def truncate(self, n_rows: int) -> None:
        """See ``KvBuffer``."""
        self.n_rows = min(self.n_rows, n_rows)

    def read(self, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """See ``KvBuffer``."""
        keys, values = (
            np.array(rows[:, first:].swapaxes(0, 1), np.float16, order="C")
            for rows in (self.keys, self.values)
        )
        return keys, values

    def write(self, keys: np.ndarray, values: np.ndarray) -> None:
        """See ``KvBuffer``."""
        self.n_rows = 0
        self.append(keys, values)

    def _reserve(self, n_rows: int) -> None:
        heads, capacity, width = self._keys.shape
        if n_rows <= capacity:
            return
        assert n_rows <= self._max_rows
        capacity = min(max(n_rows, 2 * capacity, _GROW_ROWS), self._max_rows)
        for name, rows in (("_keys", self.keys), ("_values", self.values)):
            grown = np.empty((heads, capacity, width), rows.dtype)
            grown[:, : self.n_rows] = rows
            setattr(self, name, grown)
