"""Mixture of experts with packed weights on devices cuda and metal.

Up to eight positions are two launches of the decode kernels. With more, the choices are put in the
order of experts, and each expert's weights are multiplied with its positions in tiles. The ids stay
on the device either way.
"""

from dataclasses import dataclass

import mlx.core as mx

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.gpu.launch_table import LaunchTable
from mlx_kernels.gpu.moe import check_choice
from mlx_kernels.gpu.planar_launches import MAX_DECODE_ROWS
from mlx_kernels.gpu.planar_weight import PlanarWeight, kernel_type


@dataclass(frozen=True, slots=True)
class PlanarExperts:
    """The weights of one layer's E experts: gate and up [E * F, C], down [E * C, F]."""

    gate: PlanarWeight
    up: PlanarWeight
    down: PlanarWeight


def planar_experts(
    launches: LaunchTable, gate: PackedMatrix, up: PackedMatrix, down: PackedMatrix
) -> PlanarExperts | None:
    """Take over experts, checked before; None if a type has no kernel."""
    parts = (gate, up, down)
    if any(kernel_type(part.type_id, part.shape[1], launches.formats) is None for part in parts):
        return None
    return PlanarExperts(*(launches.hold([part]) for part in parts))


def planar_moe(
    launches: LaunchTable,
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
    can_stage = launches.fits(experts.gate.type_id, 1, n_in) and launches.fits(
        experts.down.type_id, n_chosen, n_hidden
    )
    if len(x) > MAX_DECODE_ROWS or not can_stage:
        return launches.experts_in_tiles(
            x, experts.gate, experts.up, experts.down, expert_ids, expert_weights, clamp
        )
    hidden = launches.gate_up(
        x, experts.gate, experts.up, n_hidden, expert_ids, expert_weights, clamp=clamp
    )
    return launches.down(hidden, experts.down, n_in, expert_ids)
