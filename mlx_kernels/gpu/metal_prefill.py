"""Matrix products of more positions than the decode kernels take, on device metal.

Two ways: the tile product, which unpacks weights to float32 on their way into simdgroup matrices,
and MLX's product with weights decoded to float16 (see ``dense_linear`` for its rounding).
"""

import mlx.core as mx

from mlx_kernels.gpu.dense_linear import dense_linear
from mlx_kernels.gpu.metal_kernels import MetalKernels
from mlx_kernels.gpu.metal_launches import dequantized
from mlx_kernels.gpu.metal_tile_launches import tile_product
from mlx_kernels.gpu.planar_weight import PlanarWeight

# Positions up to which weights are unpacked in the product: they are read once for every 32. A
# guess, not measured: MLX's product needs the decoded weights written and read again, but is tuned.
MAX_TILE_ROWS = 64
_MOST_VALUES = 64 << 20  # of a matrix that are decoded at a time: 128 MB


class MetalManyRows:
    """x [T, C] float32, to be multiplied by several weights."""

    def __init__(self, kernels: MetalKernels, x: mx.array) -> None:
        self._kernels = kernels
        self._x = x

    def times(self, weight: PlanarWeight | mx.array) -> mx.array:
        """x times weight [R, C] transposed -> [T, R]. An array is of ``dense_matrix``, float16."""
        if isinstance(weight, mx.array):
            return dense_linear(self._x, weight)
        if len(self._x) <= MAX_TILE_ROWS:
            return tile_product(self._kernels, self._x, weight)
        n_rows, step = weight.shape[0], max(1, _MOST_VALUES // weight.shape[1])
        if step >= n_rows:
            return dense_linear(self._x, dequantized(self._kernels, weight))
        parts = [weight.rows(r, min(r + step, n_rows)) for r in range(0, n_rows, step)]
        products = [dense_linear(self._x, dequantized(self._kernels, part)) for part in parts]
        return mx.concatenate(products, axis=1)
