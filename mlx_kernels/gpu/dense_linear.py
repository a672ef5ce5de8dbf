"""Matrix products with dense weights: device mlx-cpu, and types without a kernel on a GPU.

Weights are float32 on mlx-cpu, where half precision is slow, and float16 on a GPU, where the
bytes of the weights are the time of a token. The input and the result of a matrix product are then
float16 too, the sum inside it float32. Rounding to 11 bits is some 20 times finer than the steps
of the 4- to 6-bit integers that weights are decoded from: with Qwen2.5-1.5B the mean divergence of
the next token's distribution from the float32 one is 2e-5, and the best token is the same.

Results can exceed the largest float16, 65504 (SmolLM2 comes to 25,000), so weights are stored
divided by 32 and results multiplied by it. Rows of activations are brought to a largest value of 1
to 2, by a power of two: whatever their size, they keep 11 bits.
"""

from collections.abc import Sequence

import mlx.core as mx

from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.dense import decode_stacked
from mlx_kernels.gpu.fusion import fused

HALF_SCALE = 32.0  # a power of two: exact; weights of 0.02 stay far from the smallest float16


def dense_matrix(parts: Sequence[PackedMatrix], is_half: bool) -> mx.array:
    """Decode matrices of equal width to one [out, in]: float32, or float16 divided by 32.

    Evaluated: a lazy array would be bound to this thread.
    """
    dense = decode_stacked(parts)
    if is_half:
        dense /= HALF_SCALE
    weight = mx.array(dense).astype(mx.float16 if is_half else mx.float32)
    mx.eval(weight)
    return weight


def dense_linear(x: mx.array, weight: mx.array) -> mx.array:
    """x [T, in] float32 times weight [out, in] (of ``dense_matrix``) transposed -> float32."""
    if weight.dtype != mx.float16:
        return x @ weight.T
    halves, sizes = _halves(x)
    return (halves @ weight.T).astype(mx.float32) * (sizes * HALF_SCALE)


@fused
def _halves(x: mx.array) -> tuple[mx.array, mx.array]:
    """x as float16 with a largest value of 1 to 2 in a row, and the powers of two [T, 1] for it."""
    largest = mx.abs(x).max(axis=-1, keepdims=True).view(mx.uint32)
    # As far as a factor's inverse is a normal float, too.
    power = mx.clip(largest >> 23, 2, 252)
    inverse = ((254 - power) << 23).view(mx.float32)
    return (x * inverse).astype(mx.float16), (power << 23).view(mx.float32)
