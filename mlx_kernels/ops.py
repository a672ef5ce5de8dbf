"""The list of operations a model is written with.

A model file computes only with these operations, with ``+`` and with basic slicing and reshaping,
so one text serves two array worlds: *cpu* (NumPy arrays, evaluated at once, BLAS) and *gpu* (MLX
arrays, evaluated lazily; devices ``metal`` and ``cuda``). Device ``mlx-cpu`` runs the gpu world
on MLX's own CPU backend. It is slow, and there to prove both worlds equal where no GPU is.

Axes: T positions, C channels of the residual stream, H query heads, Hkv key and value heads, D
values of a head, V vocabulary, E experts, F hidden values of one expert, K experts a position uses.
All activations are float32.

Bad input. A weight of an unknown type, with no rows, with a shape or bytes that do not fit, is a
``TensorError`` of ``matrix`` and ``experts`` that names the tensor. Activations of a wrong shape
or dtype are one of the operation. NaN and infinity in activations are one of the first matrix
product in the cpu world, and of ``to_host`` in the gpu world, where nothing is known earlier: no
operation hands them to a sampler.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.deepseek_v4_ops import DeepseekV4Ops

Array = Any  # numpy.ndarray in the cpu world, mlx.core.array in the gpu world
Experts = Any  # what ``Ops.experts`` returns, for ``Ops.moe`` only


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """How positions turn queries and keys.

    Pair j of a head turns by ``position * frequencies[j]`` radians and is scaled by
    ``magnitude`` (1 except for YaRN). Interleaved pairs are values (2 j, 2 j + 1) of a head; the
    others are values (j, j + D / 2).
    """

    frequencies: np.ndarray  # [D / 2] float64, radians a position
    interleaved: bool
    magnitude: float = 1.0


class KvBuffer(Protocol):
    """Keys and values of one layer, oldest first. Rows are rounded to float16 when written, in
    both worlds, so that a saved state restores bit by bit."""

    n_rows: int

    def append(self, keys: Array, values: Array) -> None:
        """Add rows [T, Hkv, D]; keys are already rotated."""

    def truncate(self, n_rows: int) -> None:
        """Forget the rows from ``n_rows`` on. A number not below the present one does nothing."""

    def read(self, first: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return copies of keys and values from row ``first`` on, float16 [n_rows, Hkv, D]."""

    def write(self, keys: np.ndarray, values: np.ndarray) -> None:
        """Replace all rows by float16 [n_rows, Hkv, D]."""


class Ops(Protocol):
    """The operations of one device, whose concrete name is ``device``."""

    device: str
    kv_value_bytes: int  # bytes that a key-value buffer takes for each value

    def free_bytes(self) -> int | None:
        """Memory of its own that the device has left; None where it shares the computer's."""

    def matrix(self, parts: Sequence[PackedMatrix]) -> Array:
        """Take over weights: packed [out_i, in] matrices, used as one [out, in] with the first on
        top. How they are held is the device's choice; ``linear`` understands the result.

        Raises:
            TensorError: see above; or the widths of the parts differ.
        """

    def matrix_bytes(self, type_id: int, shape: tuple[int, ...]) -> int:
        """Memory that ``matrix`` takes for a packed matrix of that block format and shape."""

    def vector(self, values: np.ndarray) -> Array:
        """Hand over norm weights or a bias, float32 [N]."""

    def embedding(self, table: PackedMatrix, token_ids: np.ndarray) -> Array:
        """Look up rows of a packed [V, C] table: token ids [T] -> [T, C]."""

    def linear(
        self, x: Array, weight: Array, bias: Array | None = None, residual: Array | None = None
    ) -> Array:
        """x [T, in] times weight [out, in] transposed, plus bias [out] and residual [T, out].

        Returns [T, out].
        """

    def normed_linear(
        self, x: Array, norm: Array, eps: float, weight: Array, bias: Array | None = None
    ) -> Array:
        """``linear`` of ``rms_norm(x, norm, eps)``."""

    def gated_linear(
        self, x: Array, norm: Array, eps: float, gate_up: Array, clamp: float | None = None
    ) -> Array:
        """``swiglu`` of ``normed_linear``: x [T, in], gate_up [2 F, in] -> [T, F]."""

    def rms_norm(self, x: Array, weight: Array, eps: float) -> Array:
        """Divide x [..., N] by the root of its mean square (plus eps), times weight [N]."""

    def rope(self, x: Array, first_position: int, spec: RopeSpec) -> Array:
        """Rotate x [T, H, D], whose rows are positions ``first_position``, +1, ..."""

    def swiglu(self, gate_up: Array, clamp: float | None = None) -> Array:
        """silu(gate) * up, the first and the second half of [T, 2 F] -> [T, F].

        With ``clamp``, gate becomes min(gate, clamp) and up is limited to -clamp .. clamp before.
        """

    def experts(
        self, gate: PackedMatrix, up: PackedMatrix, down: PackedMatrix, n_experts: int
    ) -> Experts:
        """Take over the weights of E experts, for ``moe``.

        Args:
            gate: [E * F, C]; expert e is the contiguous slice of F rows number e.
            up: [E * F, C], of the same type as ``gate``.
            down: [E * C, F]; expert e is the slice of C rows number e.
            n_experts: E.

        Raises:
            TensorError: see above; or the shapes do not belong together.
        """

    def moe(
        self,
        x: Array,
        experts: Experts,
        expert_ids: Array,
        expert_weights: Array,
        clamp: float | None = None,
    ) -> Array:
        """Weighted sum of the experts that each position uses.

        out[t] = sum over k of down[e] @ (w[t, k] * swiglu(gate[e] @ x[t], up[e] @ x[t], clamp))
        with e = expert_ids[t, k] and w = expert_weights.

        Args:
            x: [T, C] float32.
            experts: What ``experts`` returned.
            expert_ids: [T, K] int32 from 0 to E - 1, an array of this world. A GPU does not look
                at them before it uses them: whoever computes them there guarantees the range.
            expert_weights: [T, K] float32, an array of this world.
            clamp: See ``swiglu``.

        Returns:
            [T, C] float32.

        Raises:
            TensorError: a shape or dtype does not fit; in the cpu world also an id out of range.
        """

    def kv_buffer(self, n_kv_heads: int, head_dim: int, max_rows: int) -> KvBuffer:
        """Make an empty buffer that grows up to ``max_rows`` positions."""

    def attention(
        self,
        queries: Array,
        buffer: KvBuffer,
        window: int | None = None,
        sinks: Array | None = None,
    ) -> Array:
        """Causal attention of the last T positions over the rows of the buffer.

        Query head h reads key and value head h * Hkv // H. Scores are scaled by D ** -0.5. The
        rows of the T positions are already in the buffer.

        Args:
            queries: [T, H, D] float32.
            buffer: Holds at least T rows.
            window: The query at position p sees positions p - window + 1 to p; at least 1. None:
                all positions up to p.
            sinks: [H] float32, a logit of each head that joins the maximum and the denominator of
                its softmax as it is (not scaled) and contributes no value.

        Returns:
            [T, H * D] float32.
        """

    def deepseek_v4(self) -> DeepseekV4Ops:
        """Return the operations that only DeepSeek V4 needs."""

    def evaluate(self, arrays: Sequence[Array]) -> None:
        """Compute arrays that are only noted down yet, as one graph; nothing to do on the cpu."""

    def to_host(self, x: Array) -> np.ndarray:
        """Evaluate and return a float32 NumPy array.

        Raises:
            TensorError: it holds NaN or infinity (gpu world; see above).
        """
