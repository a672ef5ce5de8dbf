"""Mixture of experts with packed weights on device cuda.

Up to eight positions are two launches, which read the ids on the device. With more, the ids are
brought to the host, and each expert that is used is decoded and multiplied with its positions.
"""

from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.gpu.dense_linear import dense_linear
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.moe import check_choice
from mlx_kernels.gpu.planar_launches import MAX_DECODE_ROWS, dequantized, down, fits, gate_up
from mlx_kernels.gpu.planar_weight import PlanarWeight, kernel_type
from mlx_kernels.gpu.swiglu import swiglu


@dataclass(frozen=True, slots=True)
class PlanarExperts:
    """The weights of one layer's E experts: gate and up [E * F, C], down [E * C, F]."""

    gate: PlanarWeight
    up: PlanarWeight
    down: PlanarWeight
    n_experts: int


def planar_experts(
    gate: PackedMatrix, up: PackedMatrix, down: PackedMatrix, n_experts: int
) -> PlanarExperts | None:
    """Take over experts, checked before; None if a type has no kernel."""
    parts = (gate, up, down)
    if any(kernel_type(part.type_id, part.shape[1]) is None for part in parts):
        return None
    return PlanarExperts(*(PlanarWeight.of([part]) for part in parts), n_experts)


def planar_moe(
    kernels: CudaKernels,
    x: mx.array,
    experts: PlanarExperts,
    expert_ids: mx.array,
    expert_weights: mx.array,
    clamp: float | None = None,
) -> mx.array:
    """Weighted sum of the chosen experts' outputs; see ``Ops.moe``."""
    n_in, n_hidden = experts.gate.shape[1], experts.down.shape[1]
    check_choice(x, n_in, expert_ids, expert_weights)
    n_chosen = expert_ids.shape[1]
    can_stage = fits(experts.gate.type_id, 1, n_in) and fits(
        experts.down.type_id, n_chosen, n_hidden
    )
    if len(x) > MAX_DECODE_ROWS or not can_stage:
        return _expert_by_expert(kernels, x, experts, expert_ids, expert_weights, clamp)
    hidden = gate_up(
        *(kernels, x, experts.gate, experts.up, n_hidden, expert_ids, expert_weights), clamp=clamp
    )
    return down(kernels, hidden, experts.down, n_in, expert_ids)


def _expert_by_expert(
    kernels: CudaKernels,
    x: mx.array,
    experts: PlanarExperts,
    expert_ids: mx.array,
    expert_weights: mx.array,
    clamp: float | None,
) -> mx.array:
    n_positions, n_chosen = expert_ids.shape
    n_in, n_hidden = experts.gate.shape[1], experts.down.shape[1]
    ids = np.array(expert_ids).reshape(-1)
    order = np.argsort(ids, kind="stable")  # choices, expert by expert
    weights = expert_weights.reshape(-1)
    outputs = []
    for chosen in np.split(order, np.flatnonzero(np.diff(ids[order])) + 1):
        e = int(ids[chosen[0]])
        rows = x[mx.array(chosen // n_chosen)]
        both = [
            dense_linear(rows, dequantized(kernels, part.rows(e * n_hidden, (e + 1) * n_hidden)))
            for part in (experts.gate, experts.up)
        ]
        hidden = swiglu(mx.concatenate(both, axis=1), clamp) * weights[mx.array(chosen)][:, None]
        last = dequantized(kernels, experts.down.rows(e * n_in, (e + 1) * n_in))
        outputs.append(dense_linear(hidden, last))
    place = mx.array(np.argsort(order))
    by_choice = mx.concatenate(outputs)[place].reshape(n_positions, n_chosen, n_in)
    return by_choice.sum(axis=1)
