"""Loading weights: which tensors a network needs, and their way from the file to the device.

Everything is checked before the first weight is decoded, so a wrong file fails at once.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from threading import Event

import numpy as np

from engine.errors import LoadCancelled, ModelFileError
from engine.families.base import Array, LoadProgress
from engine.gguf_file import GgufFile
from mlx_kernels.blocks import BLOCK, PackedMatrix, can_dequantize, dequantize
from mlx_kernels.ops import Ops


@dataclass(frozen=True, slots=True)
class TensorNeed:
    """A tensor that a network has, and its shape, rows first."""

    name: str
    shape: tuple[int, ...]


def check_tensors(gguf: GgufFile, needs: Iterable[TensorNeed]) -> None:
    """Check that the file holds exactly the needed tensors, in formats that can be decoded.

    Raises:
        ModelFileError: one is missing, has another shape or an unknown format, or the file has
            one more: a network with a part that is not computed would be silently wrong.
    """
    names = set()
    for need in needs:
        info = gguf.require(need.name, need.shape)
        if not can_dequantize(info.type_id):
            raise ModelFileError(
                f"tensor {need.name} of {gguf.path.name} has type {BLOCK[info.type_id].name}, "
                "which is not computed with",
                "Get a Q4_K_M, Q5_K_M, Q6_K or Q8_0 file of the model.",
            )
        names.add(need.name)
    unknown = sorted(gguf.tensors.keys() - names)
    if unknown:
        raise ModelFileError(
            f"{gguf.path.name} has {len(unknown)} tensors that its architecture "
            f"{gguf.metadata.get('general.architecture')} does not have, such as {unknown[0]}",
            "Get another conversion of the model.",
        )


class WeightLoader:
    """Hands tensors to a device, and counts. Used by the thread that owns the device."""

    def __init__(
        self,
        gguf: GgufFile,
        ops: Ops,
        total_bytes: int,
        progress: LoadProgress | None,
        cancel: Event | None,
    ) -> None:
        self._gguf = gguf
        self.ops = ops
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._progress = progress
        self._cancel = cancel
        gguf.read_ahead()

    def matrix(self, *names: str) -> Array:
        """Load matrices of equal width as one, the rows of the first on top.

        Raises:
            LoadCancelled: the cancel event was set.
        """
        self._check_cancel()
        matrix = self.ops.matrix([self.packed(name) for name in names])
        self._count(names)
        return matrix

    def take(self, make: Callable[[list[PackedMatrix]], Array], *names: str) -> Array:
        """Load matrices with ``make``, an operation that takes packed ones.

        Raises:
            LoadCancelled: the cancel event was set.
        """
        self._check_cancel()
        made = make([self.packed(name) for name in names])
        self._count(names)
        return made

    def raw(self, name: str) -> np.ndarray:
        """Load the bytes of a tensor that is no matrix of weights."""
        self._check_cancel()
        self._count([name])
        return self._gguf.data(name)

    def vector(self, *names: str) -> Array:
        """Load vectors as one, end to end."""
        self._check_cancel()
        values = np.concatenate([read_vector(self._gguf, name) for name in names])
        self._count(names)
        return self.ops.vector(values)

    def packed(self, name: str) -> PackedMatrix:
        """Return a matrix as it lies in the mapped file."""
        info = self._gguf.tensors[name]
        # Tensors of three axes lie as matrices on top of each other.
        shape = (prod(info.shape[:-1]), info.shape[-1])
        return PackedMatrix(info.type_id, self._gguf.data(name), shape, name)

    def _count(self, names: Iterable[str]) -> None:
        self._done_bytes += sum(self._gguf.tensors[name].n_bytes for name in names)
        if self._progress is not None:
            self._progress(self._done_bytes, self._total_bytes)

    def _check_cancel(self) -> None:
        if self._cancel is not None and self._cancel.is_set():
            raise LoadCancelled(
                f"loading {self._gguf.path.name} was cancelled", "Open the model again."
            )


def read_vector(gguf: GgufFile, name: str) -> np.ndarray:
    """Decode a small tensor -> float32."""
    info = gguf.tensors[name]
    return dequantize(info.type_id, gguf.data(name), info.shape)
