"""Products of float32 matrices on tensor cores: TF32, 8 bits of exponent and 11 of significand.

On CUDA MLX multiplies float32 matrices in TF32. The hardware cuts the last 13 bits off, so numbers
are rounded to what it keeps beforehand; sums are float32. The range is that of float32: nothing
is too small or too large. Devices without TF32 compute the same product of the rounded numbers.
"""

import mlx.core as mx

from mlx_kernels.gpu.fusion import fused


@fused
def round_to_tf32(x: mx.array) -> mx.array:
    """Round float32 to 11 bits of significand, ties to even."""
    bits = x.view(mx.uint32)
    odd = (bits >> 13) & mx.array(1, mx.uint32)
    bits = (bits + mx.array(0xFFF, mx.uint32) + odd) & mx.array(0xFFFFE000, mx.uint32)
    return bits.view(mx.float32)


@fused
def _split(x: mx.array) -> mx.array:
    """x [T, C] -> [2 T, C]: numbers that TF32 holds, and what is left of x, rounded to them."""
    high = round_to_tf32(x)
    return mx.concatenate([high, round_to_tf32(x - high)])


def exact_product(x: mx.array, weight: mx.array) -> mx.array:
    """x [T, C] float32 times weight [R, C] transposed, to 21 bits or more -> [T, R] float32.

    A float16 weight is as good as a float32 one, and cheaper: TF32 holds its numbers.
    """
    if x.shape[0] == 1 or mx.default_device() == mx.cpu or not mx.cuda.is_available():
        return x @ weight.T  # one row is no matter for tensor cores
    return split_product(x, weight)


def split_product(x: mx.array, weight: mx.array) -> mx.array:
    """``exact_product`` by products of TF32."""
    n = x.shape[0]
    parts = _split(x)
    is_held = weight.dtype == mx.float16
    high = weight.astype(mx.float32) if is_held else round_to_tf32(weight)
    both = parts @ high.T
    product = both[:n] + both[n:]
    return product if is_held else product + parts[:n] @ round_to_tf32(weight - high).T
