"""The operations on MLX arrays: devices ``metal`` and ``cuda``, and ``mlx-cpu`` for tests.

An operation here only adds to a graph; ``to_host`` evaluates it. Imported only when a device of
this world is asked for.

Precision. Activations, keys and values, norms and attention are float32 on every device. Weight
matrices are float32 on mlx-cpu, where half precision is slow, and float16 on a GPU, where the
bytes of the weights are the time of a token. The input and the result of a matrix product are then
float16 too, the sum inside it float32. Rounding to 11 bits is some 20 times finer than the steps
of the 4- to 6-bit integers that weights are decoded from: with Qwen2.5-1.5B the mean divergence of
the next token's distribution from the float32 one is 2e-5, and the best token is the same.

Results can exceed the largest float16, 65504 (SmolLM2 comes to 25,000), so weights are stored
divided by 32 and results multiplied by it.
"""

from collections.abc import Sequence
from math import prod

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.dense import decode_stacked
from mlx_kernels.ops import RopeSpec

_HALF_SCALE = 32.0  # a power of two: exact; weights of 0.02 stay far from the smallest float16
_GROW_ROWS = 256  # a buffer at least doubles, and starts with this many positions


def available_devices() -> set[str]:
    """Return which of "metal", "cuda" and "mlx-cpu" work here. MLX's CPU backend always does."""
    devices = {"mlx-cpu"}
    if mx.metal.is_available():
        devices.add("metal")
    if mx.cuda.is_available():
        devices.add("cuda")
    return devices


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

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """See ``KvBuffer``."""
        keys, values = (
            np.array(mx.swapaxes(rows[0], 0, 1).astype(mx.float16))
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


class MlxOps:
    """``mlx_kernels.ops.Ops`` for MLX arrays."""

    kv_value_bytes = 4

    def __init__(self, device: str) -> None:
        self.device = device
        self._weight_type, self._weight_scale = mx.float32, 1.0
        if device != "mlx-cpu":
            self._use_half_precision()
        self._rope: tuple[RopeSpec | None, mx.array | None] = (None, None)
        # For the whole process: a process that opens two devices of MLX uses the last one.
        mx.set_default_device(mx.cpu if device == "mlx-cpu" else mx.gpu)

    def _use_half_precision(self) -> None:
        self._weight_type, self._weight_scale = mx.float16, _HALF_SCALE

    def free_bytes(self) -> int | None:
        """See ``Ops``."""
        if self.device != "cuda":
            return None  # Metal and the CPU backend share the computer's memory
        total = mx.device_info().get("total_memory")
        return None if total is None else int(total) - mx.get_active_memory()

    def matrix(self, parts: Sequence[PackedMatrix]) -> mx.array:
        """See ``Ops``. Evaluated: a lazy array would be bound to this thread."""
        dense = decode_stacked(parts)
        if self._weight_scale != 1.0:
            dense /= self._weight_scale
        weight = mx.array(dense).astype(self._weight_type)
        mx.eval(weight)
        return weight

    def matrix_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """See ``Ops``."""
        return self._weight_type.size * prod(shape)

    def vector(self, values: np.ndarray) -> mx.array:
        """See ``Ops``."""
        vector = mx.array(values)
        mx.eval(vector)
        return vector

    def embedding(self, table: PackedMatrix, token_ids: np.ndarray) -> mx.array:
        """See ``Ops``. Decoded on the CPU: a few rows, from a table that stays packed."""
        return mx.array(table.rows(token_ids))

    def linear(
        self,
        x: mx.array,
        weight: mx.array,
        bias: mx.array | None = None,
        residual: mx.array | None = None,
    ) -> mx.array:
        """See ``Ops``."""
        product = (x.astype(self._weight_type) @ weight.T).astype(mx.float32)
        if self._weight_scale != 1.0:
            product = product * self._weight_scale
        if bias is not None:
            product = product + bias
        return product if residual is None else residual + product

    def normed_linear(
        self,
        x: mx.array,
        norm: mx.array,
        eps: float,
        weight: mx.array,
        bias: mx.array | None = None,
    ) -> mx.array:
        """See ``Ops``."""
        return self.linear(self.rms_norm(x, norm, eps), weight, bias)

    def gated_linear(self, x: mx.array, norm: mx.array, eps: float, gate_up: mx.array) -> mx.array:
        """See ``Ops``."""
        return self.swiglu(self.normed_linear(x, norm, eps, gate_up))

    def rms_norm(self, x: mx.array, weight: mx.array, eps: float) -> mx.array:
        """See ``Ops``."""
        return mx.fast.rms_norm(x, weight, eps)

    def rope(self, x: mx.array, first_position: int, spec: RopeSpec) -> mx.array:
        """See ``Ops``."""
        if self._rope[0] is not spec:
            # MLX wants the reciprocal: positions per radian.
            self._rope = (spec, mx.array((1.0 / spec.frequencies).astype(np.float32)))
        turned = mx.fast.rope(
            mx.swapaxes(x, 0, 1)[None],  # [1, H, T, D]
            x.shape[-1],
            traditional=spec.interleaved,
            base=None,
            scale=1.0,
            offset=first_position,
            freqs=self._rope[1],
        )
        turned = mx.swapaxes(turned[0], 0, 1)  # [T, H, D]
        return turned if spec.magnitude == 1.0 else turned * spec.magnitude

    def swiglu(self, gate_up: mx.array) -> mx.array:
        """See ``Ops``."""
        width = gate_up.shape[-1] // 2
        gate, up = gate_up[:, :width], gate_up[:, width:]
        return gate * mx.sigmoid(gate) * up

    def kv_buffer(self, n_kv_heads: int, head_dim: int, max_rows: int) -> MlxKvBuffer:
        """See ``Ops``."""
        return MlxKvBuffer(n_kv_heads, head_dim, max_rows)

    def attention(self, queries: mx.array, buffer: MlxKvBuffer) -> mx.array:
        """See ``Ops``."""
        n_new, n_heads, width = queries.shape
        mixed = mx.fast.scaled_dot_product_attention(
            mx.swapaxes(queries, 0, 1)[None],  # [1, H, T, D]
            buffer.keys,
            buffer.values,
            scale=width**-0.5,
            # MLX aligns the mask to the last key, which is what a cache needs.
            mask="causal" if n_new > 1 else None,
        )
        return mx.swapaxes(mixed[0], 0, 1).reshape(n_new, n_heads * width)

    def to_host(self, x: mx.array) -> np.ndarray:
        """See ``Ops``."""
        return np.array(x)
