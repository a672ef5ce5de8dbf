"""Slow, obvious versions of the operations, in float64. The tests compare both worlds with them.

One file an operation. Axes and meaning as in ``mlx_kernels.ops``; weights are dense arrays, and
keys and values come without a buffer. Nothing here is used to run a model. What dequantises a
matrix is ``mlx_kernels.blocks.dequantize`` in every world.
"""

from mlx_kernels.reference.attention import attention
from mlx_kernels.reference.embedding import embedding
from mlx_kernels.reference.linear import gated_linear, linear, normed_linear
from mlx_kernels.reference.moe import moe
from mlx_kernels.reference.rms_norm import rms_norm
from mlx_kernels.reference.rope import rope
from mlx_kernels.reference.swiglu import swiglu

__all__ = [
    "attention",
    "embedding",
    "gated_linear",
    "linear",
    "moe",
    "normed_linear",
    "rms_norm",
    "rope",
    "swiglu",
]
