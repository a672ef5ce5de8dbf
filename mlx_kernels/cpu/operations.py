"""The operations on NumPy arrays, evaluated at once. Each has a file of its own.

Matrix products and attention are those of the compiled kernels (``native``) where they are
installed: weights stay packed in the mapped file. Elsewhere weights are dense float32 [out, in],
and every product is one BLAS call on arrays as they lie. With one position a product reads each
weight once, and memory bandwidth is the limit; with many positions arithmetic is.
"""

from collections.abc import Sequence

import numpy as np

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.cpu import native
from mlx_kernels.cpu.attention import attention
from mlx_kernels.cpu.deepseek_v4.operations import CpuDeepseekV4Ops
from mlx_kernels.cpu.embedding import embedding
from mlx_kernels.cpu.kv_buffer import CpuKvBuffer
from mlx_kernels.cpu.linear import (
    Weight,
    gated_linear,
    linear,
    matrix,
    matrix_bytes,
    normed_linear,
)
from mlx_kernels.cpu.moe import CpuExperts, experts, moe
from mlx_kernels.cpu.norm import rms_norm
from mlx_kernels.cpu.rope import Rope
from mlx_kernels.cpu.swiglu import swiglu


class CpuOps:
    """``mlx_kernels.ops.Ops`` for NumPy arrays; binds the functions of this folder."""

    device = "cpu"

    embedding = staticmethod(embedding)
    linear = staticmethod(linear)
    normed_linear = staticmethod(normed_linear)
    gated_linear = staticmethod(gated_linear)
    rms_norm = staticmethod(rms_norm)
    swiglu = staticmethod(swiglu)
    moe = staticmethod(moe)

    def __init__(self, use_native: bool | None = None, exact_products: bool = False) -> None:
        """Choose how to compute.

        Args:
            use_native: With the compiled kernels, or without; None: where they are installed.
            exact_products: Never round activations to 8 bits, in DeepSeek V4: for comparisons
                with float32 networks. Off, up to 16 positions at a time may be rounded.
        """
        self._is_native = native.is_available() if use_native is None else use_native
        self._exact_products = exact_products
        self.kv_value_bytes = 2 if self._is_native else 4
        self.rope = Rope().turn

    def deepseek_v4(self) -> CpuDeepseekV4Ops:
        """See ``Ops``."""
        return CpuDeepseekV4Ops(self, self._is_native, self._exact_products)

    def free_bytes(self) -> int | None:
        """See ``Ops``."""
        return None

    def matrix(self, parts: Sequence[PackedMatrix]) -> Weight:
        """See ``Ops``."""
        return matrix(parts, self._is_native)

    def matrix_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """See ``Ops``."""
        return matrix_bytes(type_id, shape, self._is_native)

    def vector(self, values: np.ndarray) -> np.ndarray:
        """See ``Ops``."""
        return values

    def experts(
        self, gate: PackedMatrix, up: PackedMatrix, down: PackedMatrix, n_experts: int
    ) -> CpuExperts:
        """See ``Ops``."""
        return experts(gate, up, down, n_experts, self._is_native)

    def kv_buffer(self, n_kv_heads: int, head_dim: int, max_rows: int) -> CpuKvBuffer:
        """See ``Ops``."""
        dtype = np.float16 if self._is_native else np.float32
        return CpuKvBuffer(n_kv_heads, head_dim, max_rows, dtype)

    def attention(
        self,
        queries: np.ndarray,
        buffer: CpuKvBuffer,
        window: int | None = None,
        sinks: np.ndarray | None = None,
    ) -> np.ndarray:
        """See ``Ops``."""
        return attention(queries, buffer, window, sinks, self._is_native)

    def evaluate(self, arrays: Sequence[np.ndarray]) -> None:
        """See ``Ops``."""

    def to_host(self, x: np.ndarray) -> np.ndarray:
        """See ``Ops``."""
        return x
