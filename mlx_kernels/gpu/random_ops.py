"""Operations whose weights are random: valid blocks, made on the device in the kernels' own layout.

80 GiB of weights would take minutes to make on the host and to sort into planes. Here only shapes
and types come from the host. Every bit is random except the factors of blocks, which are finite
and small: infinities and subnormal sums would cost time that trained weights do not.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Any

import mlx.core as mx

from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.gpu.constants import pair
from mlx_kernels.gpu.deepseek_v4.decode_kernels import decode_kernels_of
from mlx_kernels.gpu.deepseek_v4.operations import MlxDeepseekV4Ops
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.operations import MlxOps
from mlx_kernels.gpu.planar import LAYOUT, planar_type
from mlx_kernels.gpu.planar_weight import PlanarWeight, weight_table
from mlx_kernels.gpu.weight_scaling import with_scaling

_F16 = 1  # keys of mlx_kernels.blocks.BLOCK
_MXFP4 = 39
_LARGEST_FACTOR = 0.001
_DEVIATION = 0.02  # of float16 weights
_FACTORS = 3  # number of that plane
_POWERS = (115, 120)  # of MXFP4, from and up to: 2 ** -12 to 2 ** -8


def random_planes(type_id: int, shape: tuple[int, int]) -> tuple[mx.array, ...]:
    """The four planes of a matrix [R, C] of a planar type, uint8; 16 zeros for none."""
    n_blocks = prod(shape) // BLOCK[type_id].n_values
    planes = []
    for at, (start, stop) in enumerate(LAYOUT[type_id]):
        n_bytes = n_blocks * (stop - start)
        if not n_bytes:
            plane = mx.zeros(16, mx.uint8)
        elif at == _FACTORS and type_id == _MXFP4:
            plane = mx.random.randint(*_POWERS, (n_bytes,), dtype=mx.uint8)
        elif at == _FACTORS:
            factors = mx.random.uniform(-_LARGEST_FACTOR, _LARGEST_FACTOR, (n_bytes // 2,))
            plane = factors.astype(mx.float16).view(mx.uint8)
        else:
            plane = mx.random.randint(0, 256, (n_bytes,), dtype=mx.uint8)
        n_missing = -n_bytes % 16
        plane = mx.pad(plane, (0, n_missing)) if n_bytes and n_missing else plane
        mx.eval(plane)  # one at a time: it takes several times its bytes while it is made
        planes.append(plane)
    return tuple(planes)


def _random_weight(parts: Sequence[PackedMatrix]) -> PlanarWeight:
    """In place of ``PlanarWeight.of``."""
    type_id = planar_type(parts[0].type_id, parts[0].shape[1])
    shape = sum(part.shape[0] for part in parts), parts[0].shape[1]
    planes = random_planes(type_id, shape)
    weight = PlanarWeight(type_id, shape, planes, weight_table(type_id), pair(*shape))
    return weight.evaluated()


class _RandomDeepseekV4Ops(MlxDeepseekV4Ops):
    def exact_matrix(self, parts: Sequence[PackedMatrix]) -> mx.array:
        """See ``DeepseekV4Ops``."""
        if any(part.type_id != _F16 for part in parts):
            return super().exact_matrix(parts)
        shape = sum(part.shape[0] for part in parts), parts[0].shape[1]
        weight = (_DEVIATION * mx.random.normal(shape)).astype(mx.float16)
        mx.eval(weight)
        return weight


class RandomOps(MlxOps):
    """``MlxOps`` of a device with packed weights, whose matrices are random.

    Values of matrices that it is given are not looked at.
    """

    def __init__(self, device: str, kernels: Any = None) -> None:
        """See ``MlxOps``."""
        super().__init__(device, kernels)
        if self._launches is None:
            raise ValueError(f"device {device} has no packed weights")
        is_cuda = isinstance(self._kernels, CudaKernels)
        hold = (lambda parts: with_scaling(_random_weight(parts))) if is_cuda else _random_weight
        self._launches = replace(self._launches, hold=hold)
        self._deepseek_v4 = _RandomDeepseekV4Ops(
            self, decode_kernels_of(self._kernels), self._kernels if is_cuda else None
        )
