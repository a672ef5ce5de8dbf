"""Launches and bytes of a graph without running it, on a computer without a GPU.

MLX lists the nodes of a function that it exports, and there a Metal kernel may be called where
there is no Metal. Weights are placeholders: arrays of the right shape whose values take no memory.
Device cuda launches the same kernels but for the products with packed weights, which correspond one
to one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import mlx.core as mx

from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.gpu.deepseek_v4.decode_kernels import DecodeKernels, decode_kernels_of
from mlx_kernels.gpu.deepseek_v4.operations import MlxDeepseekV4Ops
from mlx_kernels.gpu.metal_kernels import MetalKernels
from mlx_kernels.gpu.operations import MlxOps
from mlx_kernels.gpu.planar import LAYOUT, planar_type
from mlx_kernels.gpu.planar_weight import PlanarWeight

_PREFIX = "custom_kernel_ds4_"
# Nodes that only describe memory differently.
_VIEWS = {
    *("AsStrided", "Broadcast", "ExpandDims", "Flatten", "Reshape", "Slice", "Split", "Squeeze"),
    *("Transpose", "Unflatten", "View"),
}
_DTYPES = {"float", "float16", "uint8", "int32", "uint32"}
_F16 = 1  # key of mlx_kernels.blocks.BLOCK


def placeholder(shape: tuple[int, ...], dtype: mx.Dtype) -> mx.array:
    """Zeros that take the memory of one."""
    array = mx.broadcast_to(mx.zeros(1, dtype), shape)
    mx.eval(array)
    return array


def _hold(parts: Sequence[PackedMatrix]) -> PlanarWeight:
    """In place of ``PlanarWeight.of``."""
    type_id = planar_type(parts[0].type_id, parts[0].shape[1])
    shape = sum(part.shape[0] for part in parts), parts[0].shape[1]
    n_blocks = prod(shape) // BLOCK[type_id].n_values
    sizes = [max(16, (stop - start) * n_blocks) for start, stop in LAYOUT[type_id]]
    planes = tuple(placeholder((size,), mx.uint8) for size in sizes)
    table = placeholder((384,), mx.uint32)
    return PlanarWeight(type_id, shape, planes, table, mx.array(shape, mx.int32))


class _TracedDeepseekV4Ops(MlxDeepseekV4Ops):
    def __init__(self, ops: Any, kernels: DecodeKernels) -> None:
        super().__init__(ops, kernels)
        self._decoder.evaluate_every = 0

    def exact_matrix(self, parts: Sequence[PackedMatrix]) -> mx.array:
        """See ``DeepseekV4Ops``."""
        dtype = mx.float16 if all(part.type_id == _F16 for part in parts) else mx.float32
        return placeholder((sum(part.shape[0] for part in parts), parts[0].shape[1]), dtype)


class TracedOps(MlxOps):
    """The operations of device metal on placeholders; graphs of them are for ``trace`` only."""

    def __init__(self) -> None:
        kernels = MetalKernels()
        super().__init__("mlx-cpu", kernels)
        self._launches = replace(self._launches, hold=_hold)
        self._deepseek_v4 = _TracedDeepseekV4Ops(self, decode_kernels_of(kernels))


@dataclass(frozen=True, slots=True)
class Launched:
    """One launch: a kernel of ours or a node of MLX that computes.

    Attributes:
        name: of the kernel without what MLX adds, or of the node.
        inputs, outputs: bytes of each.
    """

    name: str
    is_ours: bool
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def trace(function: Callable[..., Any], *arguments: mx.array) -> list[Launched]:
    """What a function of arrays launches, in the order of its graph."""
    launched: list[Launched] = []

    def take(entry: dict[str, Any]) -> None:
        if entry["type"] != "primitive" or entry["name"] in _VIEWS:
            return
        name = entry["name"]
        is_ours = name == "CustomKernel"
        if is_ours:
            name = _short(entry["arguments"][0].removeprefix(_PREFIX))
        sizes = [
            tuple(prod(shape) * dtype.size for _, shape, dtype in entry[side])
            for side in ("inputs", "outputs")
        ]
        launched.append(Launched(name, is_ours, *sizes))

    mx.export_function(take, function, *arguments)
    return launched


def _short(name: str) -> str:
    """A kernel's name without template values and dtypes, which MLX adds."""
    words = name.split("_")
    n = next((i for i, word in enumerate(words) if not word or word in _DTYPES), len(words))
    return "_".join(words[:n])
