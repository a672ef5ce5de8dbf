"""The operations on MLX arrays: devices ``metal`` and ``cuda``, and ``mlx-cpu`` for tests.

An operation here only adds to a graph; ``to_host`` evaluates it. Imported only when a device of
this world is asked for. Activations, keys and values, norms and attention are float32 on every
device. Each operation has a file of its own; ``MlxOps`` binds them.

Weights stay packed on ``cuda`` and ``metal``, where kernels of ours read them. On ``mlx-cpu`` they
are decoded once, to float32.
"""

import os
from collections.abc import Sequence
from math import prod

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.errors import TensorError
from mlx_kernels.gpu.attention import attention
from mlx_kernels.gpu.deepseek_v4.decode_kernels import decode_kernels_of
from mlx_kernels.gpu.deepseek_v4.operations import MlxDeepseekV4Ops
from mlx_kernels.gpu.dense_linear import dense_linear, dense_matrix
from mlx_kernels.gpu.embedding import embedding
from mlx_kernels.gpu.exact_launches import exact_table
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.kv_buffer import MlxKvBuffer
from mlx_kernels.gpu.launch_table import launch_table
from mlx_kernels.gpu.metal_kernels import MetalKernels
from mlx_kernels.gpu.moe import DenseExperts, check_experts, dense_experts, dense_moe
from mlx_kernels.gpu.norm import rms_norm
from mlx_kernels.gpu.planar_linear import (
    StackedWeight,
    planar_gated_linear,
    planar_linear,
    stacked_weight,
    weight_bytes,
)
from mlx_kernels.gpu.planar_moe import PlanarExperts, planar_experts, planar_moe
from mlx_kernels.gpu.rope import Rope
from mlx_kernels.gpu.swiglu import swiglu


def available_devices() -> set[str]:
    """Return which of "metal", "cuda" and "mlx-cpu" work here. MLX's CPU backend always does."""
    devices = {"mlx-cpu"}
    if mx.metal.is_available():
        devices.add("metal")
    if mx.cuda.is_available():
        devices.add("cuda")
    return devices


class MlxOps:
    """``mlx_kernels.ops.Ops`` for MLX arrays."""

    kv_value_bytes = 4

    embedding = staticmethod(embedding)
    rms_norm = staticmethod(rms_norm)
    swiglu = staticmethod(swiglu)
    attention = staticmethod(attention)
    kv_buffer = MlxKvBuffer

    def __init__(
        self,
        device: str,
        kernels: CudaKernels | MetalKernels | None = None,
        exact_products: bool = False,
    ) -> None:
        """Open a device.

        Args:
            device: ``metal``, ``cuda`` or ``mlx-cpu``.
            kernels: Keep weights packed and use these; on a GPU those of MLX by default.
            exact_products: Never round activations to 11 bits, for comparisons with other
                networks; slow. To be opened before anything is computed on the device.
        """
        self.device = device
        if exact_products:
            os.environ["MLX_ENABLE_TF32"] = "0"  # read at MLX's first matrix product
        if device == "cuda":
            # MLX starts a graph's work when it has so many MB of inputs, 1000 on an H200, and
            # counts all experts of a layer though six are read. Read when its first graph begins.
            os.environ.setdefault("MLX_MAX_MB_PER_BUFFER", "16000")
        if kernels is None and device != "mlx-cpu":
            kernels = CudaKernels() if device == "cuda" else MetalKernels()
        self._kernels = kernels
        self._launches = None if kernels is None else launch_table(kernels)
        if self._launches is not None and exact_products:
            self._launches = exact_table(self._launches)
        self._is_half = device != "mlx-cpu" or kernels is not None
        self.rope = Rope().turn
        self._deepseek_v4 = MlxDeepseekV4Ops(
            self,
            decode_kernels_of(kernels),
            kernels if isinstance(kernels, CudaKernels) and not exact_products else None,
        )
        # For the whole process: a process that opens two devices of MLX uses the last one.
        mx.set_default_device(mx.cpu if device == "mlx-cpu" else mx.gpu)

    def _use_half_precision(self) -> None:
        self._is_half = True

    def deepseek_v4(self) -> MlxDeepseekV4Ops:
        """See ``Ops``."""
        return self._deepseek_v4

    def free_bytes(self) -> int | None:
        """See ``Ops``."""
        if self.device != "cuda":
            return None  # Metal and the CPU backend share the computer's memory
        total = mx.device_info().get("total_memory")
        return None if total is None else int(total) - mx.get_active_memory()

    def matrix(self, parts: Sequence[PackedMatrix]) -> mx.array | StackedWeight:
        """See ``Ops``."""
        if self._launches is not None:
            return stacked_weight(self._launches, parts)
        return dense_matrix(parts, self._is_half)

    def matrix_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """See ``Ops``."""
        if self._launches is not None:
            return weight_bytes(self._launches, type_id, shape)
        return (2 if self._is_half else 4) * prod(shape)

    def vector(self, values: np.ndarray) -> mx.array:
        """See ``Ops``."""
        vector = mx.array(values)
        mx.eval(vector)
        return vector

    def linear(
        self,
        x: mx.array,
        weight: mx.array | StackedWeight,
        bias: mx.array | None = None,
        residual: mx.array | None = None,
    ) -> mx.array:
        """See ``Ops``."""
        _check_activations(x, weight)
        if isinstance(weight, StackedWeight):
            return planar_linear(self._launches, x, weight, bias=bias, residual=residual)
        product = dense_linear(x, weight)
        if bias is not None:
            product = product + bias
        return product if residual is None else residual + product

    def normed_linear(
        self,
        x: mx.array,
        norm: mx.array,
        eps: float,
        weight: mx.array | StackedWeight,
        bias: mx.array | None = None,
    ) -> mx.array:
        """See ``Ops``."""
        if isinstance(weight, StackedWeight):
            _check_activations(x, weight)
            return planar_linear(self._launches, x, weight, norm, eps, bias)
        return self.linear(rms_norm(x, norm, eps), weight, bias)

    def gated_linear(
        self,
        x: mx.array,
        norm: mx.array,
        eps: float,
        gate_up: mx.array | StackedWeight,
        clamp: float | None = None,
    ) -> mx.array:
        """See ``Ops``."""
        if isinstance(gate_up, StackedWeight):
            _check_activations(x, gate_up)
            return planar_gated_linear(self._launches, x, norm, eps, gate_up, clamp)
        return swiglu(self.normed_linear(x, norm, eps, gate_up), clamp)

    def experts(
        self, gate: PackedMatrix, up: PackedMatrix, down: PackedMatrix, n_experts: int
    ) -> DenseExperts | PlanarExperts:
        """See ``Ops``."""
        check_experts(gate, up, down, n_experts)
        packed = None if self._launches is None else planar_experts(self._launches, gate, up, down)
        return packed or dense_experts((gate, up, down), n_experts, self._is_half)

    def moe(
        self,
        x: mx.array,
        experts: DenseExperts | PlanarExperts,
        expert_ids: mx.array,
        expert_weights: mx.array,
        clamp: float | None = None,
    ) -> mx.array:
        """See ``Ops``."""
        if isinstance(experts, PlanarExperts):
            return planar_moe(self._launches, x, experts, expert_ids, expert_weights, clamp)
        return dense_moe(x, experts, expert_ids, expert_weights, clamp)

    def evaluate(self, arrays: Sequence[mx.array]) -> None:
        """See ``Ops``."""
        mx.eval(list(arrays))

    def to_host(self, x: mx.array) -> np.ndarray:
        """See ``Ops``."""
        values = np.array(x)
        if not np.isfinite(values).all():
            raise TensorError(
                f"a result {list(values.shape)} holds NaN or infinity",
                "Check that the model file is whole; a damaged tensor gives such values.",
            )
        return values


def _check_activations(x: mx.array, weight: mx.array | StackedWeight) -> None:
    if x.ndim != 2 or x.shape[1] != weight.shape[1] or x.dtype != mx.float32:
        raise TensorError(
            f"activations of a matrix product are {x.dtype} {list(x.shape)}, "
            f"expected float32 [T, {weight.shape[1]}]"
        )
