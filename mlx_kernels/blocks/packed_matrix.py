"""A weight matrix as it lies in a file."""

from dataclasses import dataclass

import numpy as np

from mlx_kernels.blocks.decoding import can_dequantize, dequantize
from mlx_kernels.blocks.formats import BLOCK
from mlx_kernels.errors import TensorError


@dataclass(frozen=True, slots=True)
class PackedMatrix:
    """A matrix in its packed form, rows first. ``raw`` may be a view of a mapped file."""

    type_id: int
    raw: np.ndarray  # [R * bytes per row] uint8
    shape: tuple[int, int]  # [R, C]
    name: str = ""  # of the tensor in its file; errors tell it

    def rows(self, row_idx: np.ndarray) -> np.ndarray:
        """Decode the rows ``row_idx`` [T] -> [T, C] float32.

        Raises:
            TensorError: an index is not a row of the matrix.
        """
        n_rows = self.shape[0]
        if len(row_idx) and not 0 <= row_idx.min() <= row_idx.max() < n_rows:
            raise TensorError(
                f"{self.name or 'a table'} has rows 0 to {n_rows - 1}, "
                f"asked for {row_idx.min()} to {row_idx.max()}"
            )
        row_bytes = self.raw.reshape(self.shape[0], -1)
        return dequantize(
            self.type_id, row_bytes[row_idx].reshape(-1), (len(row_idx), self.shape[1])
        )


def type_name(type_id: int) -> str:
    """Return the name of a tensor type, or its number where it has none."""
    return BLOCK[type_id].name if type_id in BLOCK else f"number {type_id}"


def check_matrix(matrix: PackedMatrix) -> None:
    """Check that a matrix is what it says, before anything computes with it.

    Raises:
        TensorError: its type has no decoder, its shape is not two positive numbers with rows of
            whole blocks, or its bytes are not exactly those of the shape. Names the tensor.
    """
    name, shape = matrix.name or "a matrix", matrix.shape
    if not can_dequantize(matrix.type_id):
        raise TensorError(
            f"{name} is of type {type_name(matrix.type_id)}, which has no decoder here",
            "Get a file with other quantisation.",
        )
    block = BLOCK[matrix.type_id]
    if len(shape) != 2 or min(shape) < 1 or shape[1] % block.n_values:
        raise TensorError(
            f"{name} has shape {list(shape)}, expected [rows, columns] with at least one row "
            f"and columns a multiple of {block.n_values} ({block.name})"
        )
    n_bytes = shape[0] * (shape[1] // block.n_values) * block.n_bytes
    raw = matrix.raw
    if raw.dtype != np.uint8 or not raw.flags.c_contiguous or raw.size != n_bytes:
        raise TensorError(
            f"{name}: {block.name} {list(shape)} lies in {raw.size} {raw.dtype}, "
            f"expected {n_bytes} contiguous uint8"
        )
