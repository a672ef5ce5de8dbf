"""Decoders of F32, F16 and BF16: blocks [n, bytes] uint8 -> out [n, 1] float32."""

import numpy as np


def decode_f32(blocks: np.ndarray, out: np.ndarray) -> None:
    out[...] = blocks.view(np.float32)


def decode_f16(blocks: np.ndarray, out: np.ndarray) -> None:
    out[...] = blocks.view(np.float16)


def decode_bf16(blocks: np.ndarray, out: np.ndarray) -> None:
    # A bfloat16 is the upper half of a float32.
    np.left_shift(blocks.view(np.uint16), 16, out=out.view(np.uint32), dtype=np.uint32)
