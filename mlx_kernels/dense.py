"""Decoding whole weight matrices to float32, with a few threads."""

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mlx_kernels.blocks import PackedMatrix, check_matrix, dequantize
from mlx_kernels.errors import TensorError

_MAX_THREADS = 8  # decoding is bound by memory beyond that
_SLICE_VALUES = 2 << 20  # a thread's share: small enough to spread evenly, big enough to pay


def decode_stacked(parts: Sequence[PackedMatrix]) -> np.ndarray:
    """Decode matrices of equal width as one, the rows of the first on top.

    Args:
        parts: One or more packed matrices [R_i, C].

    Returns:
        [sum of R_i, C] float32.

    Raises:
        TensorError: the widths differ, or a matrix is not what it says (see ``check_matrix``).
    """
    for part in parts:
        check_matrix(part)
    n_columns = parts[0].shape[1]
    for part in parts:
        if part.shape[1] != n_columns:
            raise TensorError(
                f"{part.name or 'a matrix'} has {part.shape[1]} columns and cannot be stacked with "
                f"{parts[0].name or 'one'} of {n_columns}, expected equal widths"
            )
    dense = np.empty((sum(part.shape[0] for part in parts), n_columns), np.float32)
    slices = []  # type, packed rows, and the place of their values
    slice_rows = max(1, _SLICE_VALUES // n_columns)
    first_row = 0
    for part in parts:
        n_rows = part.shape[0]
        packed_rows = part.raw.reshape(n_rows, -1)
        for start in range(0, n_rows, slice_rows):
            packed = packed_rows[start : start + slice_rows]
            at = first_row + start
            slices.append((part.type_id, packed, dense[at : at + len(packed)]))
        first_row += n_rows
    if dense.size <= _SLICE_VALUES:
        for item in slices:
            _decode(*item)
        return dense
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as pool:
        for _ in pool.map(lambda item: _decode(*item), slices):
            pass
    return dense


def _decode(type_id: int, packed: np.ndarray, out: np.ndarray) -> None:
    dequantize(type_id, packed.reshape(-1), out.shape, out)
