"""Mixture of experts with packed weights on device cuda.

Up to eight positions are two launches of the decode kernels. With more, the choices are put in the
order of experts, and each expert's weights are multiplied with its positions in tiles. The ids stay
on the device either way.
"""

from dataclasses import dataclass

import mlx.core as mx

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.gpu.grouping import grouped
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.moe import check_choice
from mlx_kernels.gpu.planar_launches import MAX_DECODE_ROWS, down, fits, gate_up
from mlx_kernels.gpu.planar_weight import PlanarWeight, kernel_type
from mlx_kernels.gpu.tile_launches import halves, tile_gate_up, tile_product, tile_rows
from mlx_kernels.gpu.weight_scaling import with_scaling


@dataclass(frozen=True, slots=True)
class PlanarExperts:
    """The weights of one layer's E experts: gate and up [E * F, C], down [E * C, F]."""

    gate: PlanarWeight
    up: PlanarWeight
    down: PlanarWeight
    n_experts: int
    gate_up_scaling: mx.array  # [4] float32: ``scaling`` of gate and of up


def planar_experts(
    gate: PackedMatrix, up: PackedMatrix, down: PackedMatrix, n_experts: int
) -> PlanarExperts | None:
    """Take over experts, checked before; None if a type has no kernel."""
    parts = (gate, up, down)
    if any(kernel_type(part.type_id, part.shape[1]) is None for part in parts):
        return None
    held = [with_scaling(PlanarWeight.of([part])) for part in parts]
    both = mx.concatenate([part.scaling for part in held[:2]])
    mx.eval(both)
    return PlanarExperts(*held, n_experts, both)


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
        return _in_tiles(kernels, x, experts, expert_ids, expert_weights, clamp)
    hidden = gate_up(
        *(kernels, x, experts.gate, experts.up, n_hidden, expert_ids, expert_weights), clamp=clamp
    )
    return down(kernels, hidden, experts.down, n_in, expert_ids)


def _in_tiles(
    kernels: CudaKernels,
    x: mx.array,
    experts: PlanarExperts,
    expert_ids: mx.array,
    expert_weights: mx.array,
    clamp: float | None,
) -> mx.array:
    n_positions, n_chosen = expert_ids.shape
    n_rows = tile_rows(n_positions * n_chosen, experts.n_experts)
    groups = grouped(expert_ids, experts.n_experts, n_rows)
    hidden = tile_gate_up(
        *(kernels, halves(kernels, x), experts.gate, experts.up, experts.gate_up_scaling),
        *(groups, expert_weights, clamp),
    )
    by_choice = tile_product(kernels, halves(kernels, hidden), experts.down, groups)
    return by_choice.reshape(n_positions, n_chosen, -1).sum(axis=1)
