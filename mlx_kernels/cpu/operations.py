"""The operations on NumPy arrays, evaluated at once.

Matrix products and attention are those of the compiled kernels (``native``) where they are
installed: weights stay packed in the mapped file. Elsewhere weights are dense float32 [out, in],
and every product is one BLAS call on arrays as they lie. With one position a product reads each
weight once, and memory bandwidth is the limit; with many positions arithmetic is.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.cpu import native
from mlx_kernels.dense import decode_stacked
from mlx_kernels.ops import RopeSpec

_GROW_ROWS = 256  # a buffer at least doubles, and starts with this many positions
# Query rows whose scores exist at once: [G * 128, T] floats, 25 MB at 8192 positions and G = 6.
_QUERY_TILE = 128
_PAGE_BYTES = 4096  # the smallest page in use

Weight = np.ndarray | native.StackedWeight


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
            grown = np.empty((heads, capacity, width), rows.dtype)
            grown[:, : self.n_rows] = rows
            setattr(self, name, grown)


class CpuOps:
    """``mlx_kernels.ops.Ops`` for NumPy arrays."""

    device = "cpu"

    def __init__(self, use_native: bool | None = None) -> None:
        """Compute with the compiled kernels, or without; None: where they are installed."""
        self._is_native = native.is_available() if use_native is None else use_native
        self.kv_value_bytes = 2 if self._is_native else 4
        # The turns of the last positions asked for: every layer asks for the same ones.
        self._turn_key: tuple[int, int, RopeSpec | None] = (0, 0, None)
        self._turns = (np.empty(0), np.empty(0))

    def free_bytes(self) -> int | None:
        """See ``Ops``."""
        return None

    def matrix(self, parts: Sequence[PackedMatrix]) -> Weight:
        """See ``Ops``. Packed as it lies in the file, or dense float32 [out, in]."""
        if all(self._stays_packed(part.type_id, part.shape) for part in parts):
            for part in parts:
                _touch(part.raw)
            return native.StackedWeight(parts)
        return decode_stacked(parts)

    def matrix_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """See ``Ops``."""
        if self._stays_packed(type_id, shape):
            return prod(shape) // BLOCK[type_id].n_values * BLOCK[type_id].n_bytes
        return 4 * prod(shape)

    def _stays_packed(self, type_id: int, shape: tuple[int, ...]) -> bool:
        return self._is_native and native.can_multiply(type_id, shape[-1])

    def vector(self, values: np.ndarray) -> np.ndarray:
        """See ``Ops``."""
        return values

    def embedding(self, table: PackedMatrix, token_ids: np.ndarray) -> np.ndarray:
        """See ``Ops``."""
        return table.rows(token_ids)

    def linear(
        self,
        x: np.ndarray,
        weight: Weight,
        bias: np.ndarray | None = None,
        residual: np.ndarray | None = None,
    ) -> np.ndarray:
        """See ``Ops``."""
        if isinstance(weight, native.StackedWeight):
            return native.linear(x, weight, bias=bias, residual=residual)
        product = x @ weight.T
        for addend in (bias, residual):
            if addend is not None:
                product += addend
        return product

    def normed_linear(
        self,
        x: np.ndarray,
        norm: np.ndarray,
        eps: float,
        weight: Weight,
        bias: np.ndarray | None = None,
    ) -> np.ndarray:
        """See ``Ops``."""
        if isinstance(weight, native.StackedWeight):
            return native.linear(x, weight, bias=bias, norm=norm, eps=eps)
        return self.linear(self.rms_norm(x, norm, eps), weight, bias)

    def gated_linear(
        self, x: np.ndarray, norm: np.ndarray, eps: float, gate_up: Weight
    ) -> np.ndarray:
        """See ``Ops``."""
        if isinstance(gate_up, native.StackedWeight) and gate_up.n_parts == 2:
            return native.gated_linear(x, gate_up, norm=norm, eps=eps)
        return self.swiglu(self.normed_linear(x, norm, eps, gate_up))

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
        dtype = np.float16 if self._is_native else np.float32
        return CpuKvBuffer(n_kv_heads, head_dim, max_rows, dtype)

    def attention(self, queries: np.ndarray, buffer: CpuKvBuffer) -> np.ndarray:
        """See ``Ops``."""
        if self._is_native:
            return native.attention(queries, buffer.keys, buffer.values)
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


def _touch(raw: np.ndarray) -> None:
    """Read a byte of every page of a mapped array, so that loading pays for the disk and not the
    first token."""
    raw[::_PAGE_BYTES].max(initial=0)


def _hidden_from(n_positions: int) -> np.ndarray:
    """[T, 1, T] float32: minus infinity where a key is later than the query, else 0."""
    mask = np.full((n_positions, n_positions), -np.inf, np.float32)
    return np.triu(mask, k=1)[:, None]
