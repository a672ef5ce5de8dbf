"""The Metal kernels as data, and the making of launchable objects from them.

A body is the inside of a function, whose head MLX writes from the names of the list. Helpers stand
before it, in header files, and can't see the template's values. MLX finds no files of ours when it
compiles a text, so the header files are put one after the other. The block format is a file and an
alias after them, ``Format``: MLX copies and hashes the whole text at every launch, so a text has no
other formats in it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple

import mlx.core as mx

from mlx_kernels.blocks import BLOCK
from mlx_kernels.gpu.planar import PLANES

METAL_THREADS = 128  # of a group, of every kernel here: four simdgroups
# Types that the kernels on packed weights read, and the file of each.
METAL_FORMATS: Mapping[int, str] = {
    1: "packed_f16.metal",
    2: "packed_nibbles.metal",
    3: "packed_nibbles.metal",
    6: "packed_nibbles.metal",
    7: "packed_nibbles.metal",
    8: "packed_q8_0.metal",
    10: "packed_q2_k.metal",
    11: "packed_q3_k.metal",
    12: "packed_four_bits.metal",
    13: "packed_four_bits.metal",
    14: "packed_q6_k.metal",
    16: "packed_iq2_xxs.metal",
    39: "packed_mxfp4.metal",
}


class MetalKernel(NamedTuple):
    """One kernel: its files in ``bodies/`` and the names that its body uses."""

    name: str
    header: tuple[str, ...]
    body: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    template: tuple[str, ...]


def _planes(prefix: str) -> tuple[str, ...]:
    return tuple(prefix + plane for plane in PLANES)


_PACKED = ("packed_formats.metal", "packed_product.metal")

METAL_KERNELS = {
    kernel.name: kernel
    for kernel in (
        MetalKernel(
            "matvec",
            _PACKED,
            "packed_matvec.metal",
            ("x", *PLANES, "table", "sizes", "norm", "eps", "bias", "residual"),
            ("out",),
            ("T", "RW", "HAS_NORM", "HAS_BIAS", "HAS_RESIDUAL"),
        ),
        MetalKernel(
            "gate_up",
            _PACKED,
            "packed_gate_up.metal",
            (
                *("x", *_planes("gate_"), *_planes("up_"), "table", "sizes"),
                *("ids", "weights", "norm", "eps", "clamp"),
            ),
            ("out",),
            ("K", "RW", "HAS_NORM", "HAS_CLAMP"),
        ),
        MetalKernel(
            "down",
            _PACKED,
            "packed_down.metal",
            ("hidden", *PLANES, "table", "sizes", "ids"),
            ("out",),
            ("K", "RW"),
        ),
        MetalKernel(
            "dequantize",
            _PACKED,
            "packed_dequantize.metal",
            (*PLANES, "table", "sizes"),
            ("out",),
            (),
        ),
        MetalKernel(
            "tile_product",
            (*_PACKED, "packed_tile.metal"),
            "packed_tile_product.metal",
            ("x", *PLANES, "table", "sizes", "order", "tiles"),
            ("out",),
            ("HAS_EXPERTS",),
        ),
        MetalKernel(
            "tile_gate_up",
            (*_PACKED, "packed_tile.metal"),
            "packed_tile_gate_up.metal",
            (
                *("x", *_planes("gate_"), *_planes("up_"), "table", "sizes"),
                *("order", "tiles", "weights", "clamp"),
            ),
            ("out",),
            ("K", "HAS_CLAMP"),
        ),
    )
}


@cache
def _text(file: str) -> str:
    return resources.files("mlx_kernels.gpu").joinpath("bodies", file).read_text(encoding="utf-8")


def metal_source_of(kernel: MetalKernel, type_id: int | None) -> tuple[str, str]:
    """Return the header and the body of a kernel, for a block format or without one."""
    header = "".join(f"{_text(file)}\n" for file in kernel.header)
    if type_id is not None:
        header += f"{_text(METAL_FORMATS[type_id])}\ntypedef {BLOCK[type_id].name} Format;\n"
    return header, _text(kernel.body)


class MetalKernels:
    """Launches kernels; each is made when it is first used."""

    def __init__(self, make: Callable[..., Callable[..., Any]] | None = None) -> None:
        """``make``: in place of ``mx.fast.metal_kernel``, whose objects only run with Metal."""
        self._make = make or mx.fast.metal_kernel
        self.are_lazy = make is None  # MLX's own: a launch only adds to a graph
        self._made: dict[tuple[str, int | None], Callable[..., Any]] = {}

    def launch(
        self,
        name: str,
        type_id: int | None,
        inputs: Sequence[mx.array],
        template: Mapping[str, int | bool],
        n_groups: tuple[int, int],
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[mx.Dtype] = (mx.float32,),
        n_threads: int = METAL_THREADS,
    ) -> list[mx.array]:
        """Launch [x, y] groups of threads, and return the outputs.

        Args:
            type_id: The block format, one of ``METAL_FORMATS``; None for a kernel without.
            inputs: In the order of the kernel's list. None of them 0-d.
            template: A value for each name of the kernel's list.
            shapes, dtypes: Of the outputs, in the order of the kernel's list.
        """
        kernel = METAL_KERNELS[name]
        assert len(inputs) == len(kernel.inputs) and tuple(template) == kernel.template
        call = self._made.get((name, type_id))
        if call is None:
            call = self._made[name, type_id] = self._new(kernel, type_id)
        return call(
            inputs=list(inputs),
            template=list(template.items()),
            grid=(n_groups[0] * n_threads, n_groups[1], 1),
            threadgroup=(n_threads, 1, 1),
            output_shapes=list(shapes),
            output_dtypes=list(dtypes),
        )

    def _new(self, kernel: MetalKernel, type_id: int | None) -> Callable[..., Any]:
        header, body = metal_source_of(kernel, type_id)
        return self._make(
            name=metal_name(kernel.name, type_id),
            input_names=list(kernel.inputs),
            output_names=list(kernel.outputs),
            source=body,
            header=header,
        )


def metal_name(name: str, type_id: int | None) -> str:
    """The name of a kernel for a block format, as MLX gets it: it keeps compiled texts by name."""
    suffix = "" if type_id is None else f"_{BLOCK[type_id].name.lower()}"
    return f"ds4_{name}{suffix}"
