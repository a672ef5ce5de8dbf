"""GGUF block formats: how quantised weights lie in a file, and their exact float32 values.

A quantised row is a sequence of blocks. A block holds 32 or 256 values as small integers and one
or two float16 scales; the "K" formats split their 256 values into sub-blocks whose scales are
small integers themselves. Every format here decodes to

    value = scale * integer            (Q4_0, Q5_0, Q8_0, Q3_K, Q6_K, IQ2_XXS, MXFP4)
    value = scale * integer + offset   (Q4_1, Q5_1; the K formats Q2_K, Q4_K, Q5_K subtract it)

The products are exact in float32 (at most 11 + 6 + 6 bits), so there is one right answer, and
these functions give it bit by bit. Integers of less than 8 bits are spread over several planes
of a block (low bits, high bits); each decoder gathers them into one byte per value first.

Scales are taken as they are: subnormal and negative ones are numbers like others, and an infinite
or NaN scale gives infinite or NaN values (an infinite one NaN where the integer is 0). Decoding is
not the place to refuse them: whoever multiplies with such a matrix sees it in the result.

Reading order: ``formats`` (names and sizes), ``unpacking`` (steps that decoders share),
``float_types``, ``q_types``, ``k_types``, ``iq2_xxs``, ``mxfp4`` (one group of types each),
``decoding`` (``dequantize``), ``packed_matrix`` (``PackedMatrix``).
"""

from mlx_kernels.blocks.decoding import can_dequantize, dequantize
from mlx_kernels.blocks.formats import BLOCK, BlockFormat
from mlx_kernels.blocks.packed_matrix import PackedMatrix, check_matrix, type_name

__all__ = [
    "BLOCK",
    "BlockFormat",
    "PackedMatrix",
    "can_dequantize",
    "check_matrix",
    "dequantize",
    "type_name",
]
