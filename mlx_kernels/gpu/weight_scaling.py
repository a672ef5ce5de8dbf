"""The power of two that brings the weights of a packed matrix into the range of float16.

A bound of a block's largest value follows from its factors alone: d times the largest scale and
integer that the format can hold.
"""

from dataclasses import replace
from math import frexp, isfinite

import mlx.core as mx

from mlx_kernels.gpu.constants import on_device
from mlx_kernels.gpu.planar_weight import PlanarWeight

_MXFP4 = 39
# Of d and, where there is one, of the offsets' factor.
_LARGEST = {
    8: (128.0,),  # Q8_0
    10: (15.0 * 3, 15.0),  # Q2_K
    12: (63.0 * 15, 63.0),  # Q4_K
    13: (63.0 * 31, 63.0),  # Q5_K
    14: (128.0 * 32,),  # Q6_K
    16: (3.875 * 43,),  # IQ2_XXS
}
_TARGET = 15  # weights come below 2^15: half of the largest float16
# MXFP4 values lie 2^14 below their scale on the way (see matmul_unpack.cu), so the scale itself,
# up to 2^14 times the power of a block, is what has to fit.
_TARGET_OF_POWERS = 1
_MOST = 100  # of the exponent, both ways: normal floats


def with_scaling(weight: PlanarWeight) -> PlanarWeight:
    """The same weight with ``scaling``: the factor s of the weights, and 1 / s."""
    factors = weight.planes[3]
    if weight.type_id == _MXFP4:
        exponent = _TARGET_OF_POWERS - (int(factors.max().item()) - 127)
    else:
        # Magnitudes of float16 sort like their bits.
        bits = factors.view(mx.uint16) & 0x7FFF
        largest = _LARGEST[weight.type_id]
        if len(largest) == 2:
            bits = bits.reshape(-1, 2).max(axis=0)
        else:
            bits = bits.max(keepdims=True)
        bound = sum(
            float(d) * most for d, most in zip(bits.view(mx.float16).tolist(), largest, strict=True)
        )
        # 2^(e - 1) <= bound < 2^e.
        exponent = _TARGET - _exponent(bound)
    exponent = max(-_MOST, min(_MOST, exponent))
    scaling = on_device([2.0**exponent, 2.0**-exponent], mx.float32)
    return replace(weight, scaling=scaling)


def _exponent(bound: float) -> int:
    return frexp(bound)[1] if isfinite(bound) else 0
