"""What a device does with packed weights: the launches of its kernels, under one set of names.

``planar_linear.py`` and ``planar_moe.py`` are written with these, so CUDA and Metal share the way
from an operation to a launch, and the planes. Shapes are those of the functions that are bound.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import mlx.core as mx

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.gpu import metal_launches, metal_tile_launches, planar_launches, tile_launches
from mlx_kernels.gpu.dense_linear import dense_linear
from mlx_kernels.gpu.kernels import FORMATS, CudaKernels
from mlx_kernels.gpu.metal_kernels import METAL_FORMATS, MetalKernels
from mlx_kernels.gpu.metal_prefill import MetalManyRows
from mlx_kernels.gpu.planar_weight import PlanarWeight
from mlx_kernels.gpu.prefill_linear import ManyRows
from mlx_kernels.gpu.weight_scaling import with_scaling


class RowsTimes(Protocol):
    """Many positions, to be multiplied by several weights."""

    def times(self, weight: PlanarWeight | mx.array) -> mx.array:
        """x [T, C] times weight [R, C] transposed -> [T, R] float32."""


@dataclass(frozen=True, slots=True)
class LaunchTable:
    """The launches of one device."""

    formats: Collection[int]  # block formats that its kernels read
    hold: Callable[[Sequence[PackedMatrix]], PlanarWeight]  # take over, with what kernels need
    fits: Callable[[int, int, int], bool]
    matvec: Callable[..., mx.array]
    dense: Callable[[mx.array, mx.array], mx.array]  # few rows times a matrix of ``dense_matrix``
    gate_up: Callable[..., mx.array]
    down: Callable[..., mx.array]
    many_rows: Callable[[mx.array], RowsTimes]
    experts_in_tiles: Callable[..., mx.array]


def launch_table(kernels: CudaKernels | MetalKernels) -> LaunchTable:
    """Bind the launches of a device to its kernels."""
    if isinstance(kernels, MetalKernels):
        return LaunchTable(
            METAL_FORMATS,
            partial(PlanarWeight.of, formats=METAL_FORMATS),
            metal_launches.fits,
            partial(metal_launches.matvec, kernels),
            dense_linear,
            partial(metal_launches.gate_up, kernels),
            partial(metal_launches.down, kernels),
            partial(MetalManyRows, kernels),
            partial(metal_tile_launches.experts_in_tiles, kernels),
        )
    return LaunchTable(
        FORMATS,
        lambda parts: with_scaling(PlanarWeight.of(parts)),
        planar_launches.fits,
        partial(planar_launches.matvec, kernels),
        partial(planar_launches.dense_matvec, kernels),
        partial(planar_launches.gate_up, kernels),
        partial(planar_launches.down, kernels),
        partial(ManyRows, kernels),
        partial(tile_launches.experts_in_tiles, kernels),
    )
