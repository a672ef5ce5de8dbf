"""Rows of an embedding table."""

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import PackedMatrix


def embedding(table: PackedMatrix, token_ids: np.ndarray) -> mx.array:
    """Look up rows of a packed [V, C] table: token ids [T] -> [T, C].

    Decoded on the CPU: a few rows, from a table that stays packed.
    """
    return mx.array(table.rows(token_ids))
