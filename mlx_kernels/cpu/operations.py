"""The operations on NumPy arrays, evaluated at once.

Weights are dense float32 [out, in]; every matrix product is one BLAS call on arrays as they lie,
so nothing is copied or transposed. With one position a product reads each weight once, and
memory bandwidth is the limit; with many positions arithmetic is.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.dense import decode_stacked
from mlx_kernels.ops import RopeSpec

_GROW_ROWS = 256  # a buffer at least doubles, and starts with this many positions
# Query rows whose scores exist at once: [G * 128, T] floats, 25 MB at 8192 positions and G = 6.
_QUERY_TILE = 128


class CpuKvBuffer:
    """Keys and values as float32 that hold float16 values: exact to save, and no conversion in
    the attention of every token. Head-major, so that each head's rows are one BLAS matrix."""

    def __init__(self, n_kv_heads: int, head_dim: int, max_rows: int) -> None:
        self.n_rows = 0
        self._max_rows = max_rows
        self._keys = np.empty((n_kv_heads, 0, head_dim), np.float32)
        self._values = np.empty((n_kv_heads, 0, head_dim), np.float32)

    @property
    def keys(self) -> np.ndarray:
        """[Hkv, n_rows, D] float32, a view."""
        return self._keys[:, : self.n_rows]

    @property
    def values(self) -> np.ndarray:
        """[Hkv, n_rows, D] float32, a view."""
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

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """See ``KvBuffer``."""
        keys, values = (
            np.ascontiguousarray(rows.swapaxes(0, 1), np.float16)
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
            grown = np.empty((heads, capacity, width), np.float32)
            grown[:, : self.n_rows] = rows
            setattr(self, name, grown)


class CpuOps:
    """``mlx_kernels.ops.Ops`` for NumPy arrays."""

    device = "cpu"

    def __init__(self) -> None:
        # The turns of the last positions asked for: every layer asks for the same ones.
        self._turn_key: tuple[int, int, RopeSpec | None] = (0, 0, None)
        self._turns = (np.empty(0), np.empty(0))

    def free_bytes(self) -> int | None:
        """See ``Ops``."""
        return None

    def matrix(self, parts: Sequence[PackedMatrix]) -> np.ndarray:
        """See ``Ops``. Dense float32 [out, in]."""
        return decode_stacked(parts)

    def matrix_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """See ``Ops``."""
        return 4 * prod(shape)

    def vector(self, values: np.ndarray) -> np.ndarray:
        """See ``Ops``."""
        return values

    def embedding(self, table: PackedMatrix, token_ids: np.ndarray) -> np.ndarray:
        """See ``Ops``."""
        return table.rows(token_ids)

    def linear(
        self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None
    ) -> np.ndarray:
        """See ``Ops``."""
        product = x @ weight.T
        if bias is not None:
            product += bias
        return product

    def rms_norm(self, x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
        """See ``Ops``."""
        mean_square = np.einsum("...i,...i->...", x, x)[..., None] / np.float32(x.shape[-1])
        normed = x / np.sqrt(mean_square + np.float32(eps))
        normed *= weight
        return normed

    def rope(self, x: np.ndarray, first_position: int, spec: RopeSpec) -> np.ndarray:
        """See ``Ops``."""
        cos, sin = self._turns_of(first_position, len(x), spec)  # [T, 1, D / 2]
        half = x.shape[-1] // 2
        if spec.interleaved:
            first, second = np.s_[..., 0::2], np.s_[..., 1::2]
        else:
            first, second = np.s_[..., :half], np.s_[..., half:]
        turned = np.empty_like(x)
        turned[first] = x[first] * cos - x[second] * sin
        turned[second] = x[first] * sin + x[second] * cos
        return turned

    def _turns_of(
        self, first_position: int, n_positions: int, spec: RopeSpec
    ) -> tuple[np.ndarray, np.ndarray]:
        if (first_position, n_positions) != self._turn_key[:2] or spec is not self._turn_key[2]:
            positions = np.arange(first_position, first_position + n_positions)
            # float64: at position 8000 a float32 angle would be wrong by 5e-4 radians.
            angles = positions[:, None, None] * spec.frequencies
            cos, sin = np.cos(angles) * spec.magnitude, np.sin(angles) * spec.magnitude
            self._turns = (cos.astype(np.float32), sin.astype(np.float32))
            self._turn_key = (first_position, n_positions, spec)
        return self._turns

    def swiglu(self, gate_up: np.ndarray) -> np.ndarray:
        """See ``Ops``."""
        width = gate_up.shape[-1] // 2
        gate, up = gate_up[:, :width], gate_up[:, width:]
        # silu(g) = g / (1 + exp(-g)); exp may overflow to infinity, which gives the right 0.
        with np.errstate(over="ignore"):
            divisor = np.exp(-gate)
        divisor += 1
        hidden = np.divide(gate, divisor, out=divisor)
        hidden *= up
        return hidden

    def kv_buffer(self, n_kv_heads: int, head_dim: int, max_rows: int) -> CpuKvBuffer:
        """See ``Ops``."""
        return CpuKvBuffer(n_kv_heads, head_dim, max_rows)

    def attention(self, queries: np.ndarray, buffer: CpuKvBuffer) -> np.ndarray:
        """See ``Ops``."""
        n_new, n_heads, width = queries.shape
        keys, values = buffer.keys, buffer.values  # [Hkv, N, D]
        n_kv_heads = len(keys)
        group = n_heads // n_kv_heads
        n_old = buffer.n_rows - n_new
        grouped = queries.reshape(n_new, n_kv_heads, group, width)
        result = np.empty((n_new, n_kv_heads, group, width), np.float32)
        for start in range(0, n_new, _QUERY_TILE):
            tile = grouped[start : start + _QUERY_TILE]
            n_tile = len(tile)
            n_seen = n_old + start + n_tile  # rows that the last query of the tile sees
            hidden = _hidden_from(n_tile) if n_tile > 1 else None
            for head in range(n_kv_heads):
                scaled = tile[:, head].reshape(n_tile * group, width) * np.float32(width**-0.5)
                scores = scaled @ keys[head, :n_seen].T  # [T G, N]
                if hidden is not None:
                    recent = scores.reshape(n_tile, group, n_seen)[:, :, n_seen - n_tile :]
                    recent += hidden
                scores -= scores.max(axis=1, keepdims=True)
                np.exp(scores, out=scores)
                mixed = scores @ values[head, :n_seen]  # [T G, D]
                mixed /= scores.sum(axis=1, keepdims=True)
                result[start : start + n_tile, head] = mixed.reshape(n_tile, group, width)
        return result.reshape(n_new, n_heads * width)

    def to_host(self, x: np.ndarray) -> np.ndarray:
        """See ``Ops``."""
        return x


def _hidden_from(n_positions: int) -> np.ndarray:
    """[T, 1, T] float32: minus infinity where a key is later than the query, else 0."""
    mask = np.full((n_positions, n_positions), -np.inf, np.float32)
    return np.triu(mask, k=1)[:, None]
