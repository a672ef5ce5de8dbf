"""Matrix products of more positions than the decode kernels take, on device cuda.

Two ways, the faster one by the number of positions on an NVIDIA H200 (README.md): the tile product,
which unpacks weights on their way into tensor cores, and MLX's product with weights that were
decoded before. Both round numbers to 11 bits and sum in float32.
"""

import mlx.core as mx

from mlx_kernels.gpu.dense_linear import HALF_SCALE
from mlx_kernels.gpu.fusion import fused
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.planar_launches import dequantized
from mlx_kernels.gpu.planar_weight import PlanarWeight
from mlx_kernels.gpu.tf32 import round_to_tf32
from mlx_kernels.gpu.tile_launches import halves, tile_product

MAX_TILE_ROWS = 512  # positions up to which the tile product is faster
_TILE_ROWS = (16, 32, 64)
_MOST_VALUES = 64 << 20  # of a matrix that are decoded at a time: 256 MB


class ManyRows:
    """x [T, C] float32, and what products make of it, once for all of them."""

    def __init__(self, kernels: CudaKernels, x: mx.array) -> None:
        self._kernels = kernels
        self._x = x
        self._halves: tuple[mx.array, mx.array] | None = None
        self._rounded: mx.array | None = None

    def times(self, weight: PlanarWeight | mx.array) -> mx.array:
        """x times weight [R, C] transposed -> [T, R]. An array is of ``dense_matrix``, float16."""
        if isinstance(weight, mx.array):
            return self._round() @ _widened(weight).T
        if len(self._x) <= MAX_TILE_ROWS:
            if self._halves is None:
                self._halves = halves(self._kernels, self._x)
            n_rows = next((r for r in _TILE_ROWS if len(self._x) <= r), _TILE_ROWS[-1])
            return tile_product(self._kernels, self._halves, weight, rows_a_tile=n_rows)
        step = max(1, _MOST_VALUES // weight.shape[1])
        starts = range(0, weight.shape[0], step)
        parts = [weight.rows(r, min(r + step, weight.shape[0])) for r in starts]
        products = [
            self._round() @ dequantized(self._kernels, part).T
            for part in (parts if len(parts) > 1 else [weight])
        ]
        return products[0] if len(products) == 1 else mx.concatenate(products, axis=1)

    def _round(self) -> mx.array:
        if self._rounded is None:
            self._rounded = round_to_tf32(self._x)
        return self._rounded


@fused
def _widened(weight: mx.array) -> mx.array:
    return weight.astype(mx.float32) * HALF_SCALE
