"""Matrix products whose activations are never rounded, and whose order of sums is always the same.

The compiled tiles of floats give a row the same result however many rows come with it. So a prompt
read in any pieces stores the same rows, bit by bit, as far as these products decide.
"""

from collections.abc import Sequence

import numpy as np

from mlx_kernels.blocks import PackedMatrix, dequantize
from mlx_kernels.cpu import native
from mlx_kernels.cpu.linear import Weight, matrix
from mlx_kernels.cpu.moe import CpuExperts, check_choice
from mlx_kernels.cpu.swiglu import swiglu

_F32 = 0  # key of mlx_kernels.blocks.BLOCK


def exact_linear(x: np.ndarray, weight: Weight) -> np.ndarray:
    """x [T, in] times weight [out, in] transposed -> [T, out]."""
    if isinstance(weight, native.StackedWeight):
        return native.linear(x, weight, debug_method="floats")
    return x @ weight.T


def grouped_matrix(packed: PackedMatrix, n_groups: int, is_native: bool) -> list[Weight]:
    """Cut [G Ro, in] into G matrices [Ro, in]."""
    rows = packed.shape[0] // n_groups
    raw = packed.raw.reshape(n_groups, -1)
    parts = [
        PackedMatrix(packed.type_id, raw[g], (rows, packed.shape[1]), packed.name)
        for g in range(n_groups)
    ]
    return [matrix([part], is_native) for part in parts]


def exact_matrix(parts: Sequence[PackedMatrix], is_native: bool) -> Weight:
    """Stack matrices, packed where the kernels know their types."""
    return matrix(parts, is_native)


def exact_moe(
    x: np.ndarray,
    experts: CpuExperts,
    expert_ids: np.ndarray,
    expert_weights: np.ndarray,
    clamp: float | None = None,
) -> np.ndarray:
    """``Ops.moe`` by exact products: each chosen expert is decoded to float32."""
    check_choice(x, experts, expert_ids, expert_weights)
    out = np.zeros(x.shape, np.float32)
    for expert in np.unique(expert_ids):
        position, slot = np.nonzero(expert_ids == expert)
        gate, up, down = (
            _decoded(part, int(expert), experts.n_experts)
            for part in (experts.gate, experts.up, experts.down)
        )
        chosen = x[position]
        both = np.concatenate([exact_linear(chosen, gate), exact_linear(chosen, up)], axis=1)
        hidden = swiglu(both, clamp) * expert_weights[position, slot][:, None]
        out[position] += exact_linear(hidden, down)
    return out


def _decoded(part: PackedMatrix, expert: int, n_experts: int) -> Weight:
    shape = (part.shape[0] // n_experts, part.shape[1])
    dense = dequantize(part.type_id, part.raw.reshape(n_experts, -1)[expert], shape)
    if not native.is_available() or not native.can_multiply(_F32, shape[1]):
        return dense
    raw = dense.reshape(-1).view(np.uint8)
    return native.StackedWeight([PackedMatrix(_F32, raw, shape, part.name)])
