"""The rounding of cached rows: FP8, FP4 and the Hadamard turn, by bit patterns.

The results are those of ``mlx_kernels.cpu.deepseek_v4.rounding`` bit by bit. A GPU may divide
inexactly, so nothing here divides: scales and their inverses are powers of two, made from bits.
"""

import mlx.core as mx

_EXPONENT = 0x7F800000
_SIGN = 0x80000000
_FP8_MAX, _FP8_FLOOR = 448.0, 1e-4
_FP4_MAX, _FP4_FLOOR = 6.0, 6 * 2.0**-126
_HADAMARD_SCALE = 128**-0.5  # rounded to float32 by the product, as in the cpu world


def _scales(largest: mx.array, mantissa: int, exponent: int) -> tuple[mx.array, mx.array]:
    """Return s = 2 ** ceil(log2(largest / m)) and 1 / s.

    m = (1 + mantissa / 2 ** 23) 2 ** exponent. A mantissa above that carries into the exponent.
    """
    carried = largest.view(mx.uint32) + mx.array(0x7FFFFF - mantissa, mx.uint32)
    power = (carried & mx.array(_EXPONENT, mx.uint32)) - mx.array(exponent << 23, mx.uint32)
    inverse = mx.array(254 << 23, mx.uint32) - power
    return power.view(mx.float32), inverse.view(mx.float32)


def _keep_bits(magnitude: mx.array, n_dropped: int) -> mx.array:
    """Round float32 to the mantissa without its last bits, ties to even."""
    bits = magnitude.view(mx.uint32)
    odd = (bits >> n_dropped) & mx.array(1, mx.uint32)
    bits = bits + mx.array((1 << (n_dropped - 1)) - 1, mx.uint32) + odd
    return (bits & mx.array(0xFFFFFFFF << n_dropped & 0xFFFFFFFF, mx.uint32)).view(mx.float32)


def _with_sign_of(magnitude: mx.array, x: mx.array) -> mx.array:
    sign = x.view(mx.uint32) & mx.array(_SIGN, mx.uint32)
    return (magnitude.view(mx.uint32) | sign).view(mx.float32)


def to_e4m3(x: mx.array) -> mx.array:
    """Round float32 of at most 448 to FP8: 3 mantissa bits, below 2 ** -6 multiples of 2 ** -9."""
    a = mx.abs(x)
    small = mx.round(a * 2.0**9) * 2.0**-9  # ties to even
    return _with_sign_of(mx.where(a < 2.0**-6, small, _keep_bits(a, 20)), x)


def to_e2m1(x: mx.array) -> mx.array:
    """Round float32 of at most 6 to FP4: one mantissa bit, below 1 multiples of 1/2."""
    a = mx.abs(x)
    return _with_sign_of(mx.where(a < 1.0, mx.round(a * 2.0) * 0.5, _keep_bits(a, 22)), x)


def fp8_blocks(x: mx.array) -> mx.array:
    """Round trip of x [..., 64 n] through FP8, 64 values to a scale."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // 64, 64)
    largest = mx.maximum(mx.abs(blocks).max(axis=-1, keepdims=True), _FP8_FLOOR)
    scale, inverse = _scales(largest, 0x600000, 8)  # 448 = 1.75 * 2 ** 8
    return (to_e4m3(mx.clip(blocks * inverse, -_FP8_MAX, _FP8_MAX)) * scale).reshape(x.shape)


def fp4_blocks(x: mx.array) -> mx.array:
    """Round trip of x [..., 32 n] through FP4, 32 values to a scale."""
    blocks = x.reshape(*x.shape[:-1], x.shape[-1] // 32, 32)
    largest = mx.maximum(mx.abs(blocks).max(axis=-1, keepdims=True), _FP4_FLOOR)
    scale, inverse = _scales(largest, 0x400000, 2)  # 6 = 1.5 * 2 ** 2
    return (to_e2m1(mx.clip(blocks * inverse, -_FP4_MAX, _FP4_MAX)) * scale).reshape(x.shape)


def hadamard(x: mx.array) -> mx.array:
    """Orthonormal Walsh-Hadamard transform of x [..., 128], Sylvester order, by butterflies.

    Not MLX's own, whose sums may be in another order: a last bit decides which code is nearest.
    """
    stride = 1
    while stride < x.shape[-1]:
        pairs = x.reshape(*x.shape[:-1], x.shape[-1] // (2 * stride), 2, stride)
        a, b = pairs[..., 0, :], pairs[..., 1, :]
        x = mx.stack([a + b, a - b], axis=-2).reshape(x.shape)
        stride *= 2
    return x * _HADAMARD_SCALE


def key_row(x: mx.array, n_rotary: int) -> mx.array:
    """Round turned rows [..., d]: FP8 but for the rotary values, then float16 for all."""
    n = x.shape[-1] - n_rotary
    rounded = mx.concatenate([fp8_blocks(x[..., :n]), x[..., n:]], axis=-1)
    return rounded.astype(mx.float16).astype(mx.float32)


def index_row(x: mx.array) -> mx.array:
    """Turn and round indexer rows and queries [..., 128]. Exact in float16."""
    return fp4_blocks(hadamard(x))
