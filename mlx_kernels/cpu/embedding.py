"""Rows of a packed table."""

import numpy as np

from mlx_kernels.blocks import PackedMatrix


def embedding(table: PackedMatrix, token_ids: np.ndarray) -> np.ndarray:
    """Decode the rows of a packed [V, C] table: token ids [T] -> [T, C] float32."""
    return table.rows(token_ids)
