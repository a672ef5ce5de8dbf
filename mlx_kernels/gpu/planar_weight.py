"""Packed weights in planar form on the device."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import mlx.core as mx
import numpy as np

from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.blocks.iq2_xxs import iq2_xxs_grid, iq2_xxs_signs
from mlx_kernels.gpu.constants import pair
from mlx_kernels.gpu.kernels import FORMATS
from mlx_kernels.gpu.planar import LAYOUT, PLANES, planar_type, to_planar

_IQ2_XXS = 16
_IQ2_LEVELS = (8, 25, 43)
# MLX hands inputs of fewer elements to Metal in another address space; no plane is that small.
_MIN_ELEMENTS = 8
_MIN_COLUMNS = 16  # kernels take columns in runs of that many; blocks have a multiple of it


@dataclass(frozen=True, slots=True)
class PlanarWeight:
    """A matrix [R, C] of one block format."""

    type_id: int  # what ``kernel_type`` returns
    shape: tuple[int, int]  # [R, C]
    planes: tuple[mx.array, mx.array, mx.array, mx.array]  # uint8, flat; 16 zeros for none
    table: mx.array  # uint32
    sizes: mx.array  # int32: R, C (see ``pair``)
    scaling: mx.array | None = (
        None  # begins with [2] float32, of the tile product; see ``with_scaling``
    )

    @classmethod
    def of(
        cls, parts: Sequence[PackedMatrix], formats: Collection[int] = FORMATS.keys()
    ) -> "PlanarWeight":
        """Take over matrices that have a kernel and stack; see ``to_planar``."""
        planar = to_planar(parts, formats)
        planes = [mx.array(_or_zeros(getattr(planar, name))) for name in PLANES]
        table, sizes = weight_table(planar.type_id), pair(*planar.shape)
        return cls(planar.type_id, planar.shape, tuple(planes), table, sizes).evaluated()

    def rows(self, start: int, stop: int) -> "PlanarWeight":
        """The rows from ``start`` to ``stop``, in the same memory; not evaluated."""
        planes = []
        for plane, span in zip(self.planes, LAYOUT[self.type_id], strict=True):
            per_row = (span[1] - span[0]) * self.shape[1] // BLOCK[self.type_id].n_values
            if not per_row:
                planes.append(plane)
                continue
            part = plane[start * per_row : stop * per_row]
            n_missing = max(0, _MIN_ELEMENTS - part.size)
            planes.append(mx.pad(part, (0, n_missing)) if n_missing else part)
        shape = stop - start, self.shape[1]
        sizes = pair(*shape)
        return PlanarWeight(self.type_id, shape, tuple(planes), self.table, sizes, self.scaling)

    def evaluated(self) -> "PlanarWeight":
        """Self, usable by any thread: a lazy array belongs to the one that made it."""
        mx.eval(*self.planes, self.table, self.sizes)
        return self


def kernel_type(
    type_id: int, n_columns: int, formats: Collection[int] = FORMATS.keys()
) -> int | None:
    """Return the block format in which kernels read a matrix; None where there is none.

    ``formats``: what the device's kernels read, by default those of CUDA.
    """
    planar = planar_type(type_id, n_columns, formats)
    return planar if planar in formats and n_columns % _MIN_COLUMNS == 0 else None


def _or_zeros(plane: np.ndarray) -> np.ndarray:
    return plane if plane.size else np.zeros(16, np.uint8)


@cache
def iq2_xxs_table() -> np.ndarray:
    """Return 256 grid entries, then 128 sign patterns, uint32: a nibble for each of eight values.

    A nibble of the grid is the level 0 to 2, one of the signs 4 where the value is negative.
    """
    at = 4 * np.arange(8, dtype=np.uint32)
    levels = np.searchsorted(_IQ2_LEVELS, iq2_xxs_grid()).astype(np.uint32)
    bits = np.unpackbits(iq2_xxs_signs()[:, None], axis=1, bitorder="little").astype(np.uint32)
    words = [(part << at).sum(axis=1, dtype=np.uint32) for part in (levels, 4 * bits)]
    return np.concatenate(words)


def weight_table(type_id: int) -> mx.array:
    """What kernels look up while they unpack a type; 16 zeros for nothing."""
    return mx.array(iq2_xxs_table() if type_id == _IQ2_XXS else np.zeros(16, np.uint32))
