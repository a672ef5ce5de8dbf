"""The kernels of one decoded position, as data, and the making of launchable objects from them.

Each text serves Metal and CUDA: it is Metal text, and ``cuda_prelude.h`` gives CUDA the names.
A kernel's text is a few files of ``bodies/`` in a row.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import resources
from math import prod
from typing import Any, NamedTuple

import mlx.core as mx

from mlx_kernels.gpu.kernel_text import compact
from mlx_kernels.gpu.kernels import CudaKernels
from mlx_kernels.gpu.metal_kernels import MetalKernels

THREADS = 256  # of a group, where nothing else is said


class DecodeKernel(NamedTuple):
    """One kernel: its files in ``bodies/`` and the names that they use."""

    name: str
    header: tuple[str, ...]  # functions
    files: tuple[str, ...]  # the body
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    template: tuple[str, ...]


_ROWS = ("quants", "factors", "halves", "sizes")
_ROW_SHAPE = ("N_COLUMNS", "PARTS", "SIMDS", "RW", "UN")
_SWIGLU_ROWS = ("v4_rows_begin", "v4_stage_swiglu", "v4_rows")

DECODE_KERNELS = {
    kernel.name: kernel
    for kernel in (
        DecodeKernel(
            "v4_rows",
            ("v4_words",),
            ("v4_group", "v4_rows_begin", "v4_stage_plain", "v4_rows"),
            ("x", *_ROWS),
            ("out",),
            _ROW_SHAPE,
        ),
        DecodeKernel(
            "v4_store_queries",
            ("v4_words", "v4_rounding", "v4_pooling"),
            ("v4_store", "v4_rows_begin", "v4_stage_norm", "v4_rows"),
            (
                *("x", "norm", "kv_norm", "turns", "row_turns", "window", "frontier", "ape"),
                *("row_norm", "index_frontier", "index_ape", "index_norm", "numbers"),
                *("now", "capacities", *_ROWS),
            ),
            ("out", "new_window", "new_frontier", "row", "new_index_frontier", "index_row"),
            ("STORE_GROUPS", "R", "D", "DI", "KV_AT", *_ROW_SHAPE),
        ),
        DecodeKernel(
            "v4_route_swiglu_rows",
            ("v4_words", "v4_gates"),
            ("v4_group_after_first", "v4_route", *_SWIGLU_ROWS),
            ("x", "bias", "table", "token", "numbers", *_ROWS),
            ("out", "ids", "weights"),
            ("AT", "E", "K", "HAS_TABLE", *_ROW_SHAPE),
        ),
        DecodeKernel(
            "v4_hyper_rows",
            ("v4_words", "v4_gates"),
            ("v4_group_after_first", "v4_rows_begin", "v4_stage_hyper", "v4_rows"),
            ("x", "norm", "partials", "scale", "base", "numbers", *_ROWS),
            ("out", "normed", "mix"),
            _ROW_SHAPE,
        ),
        DecodeKernel(
            "v4_post",
            (),
            ("v4_post",),
            ("streams", "y", "z", "mix", "sizes"),
            ("out",),
            ("HAS_SECOND",),
        ),
        DecodeKernel(
            "v4_post_partials",
            ("v4_words",),
            ("v4_partials_begin", "v4_post", "v4_partials"),
            ("streams", "y", "z", "mix", "fn", "sizes"),
            ("out", "partials"),
            ("HAS_SECOND", "N_ROWS"),
        ),
        DecodeKernel(
            "v4_partials",
            ("v4_words",),
            ("v4_partials_begin", "v4_read_streams", "v4_partials"),
            ("streams", "fn", "sizes"),
            ("partials",),
            ("N_ROWS",),
        ),
        DecodeKernel(
            "v4_index_scores",
            ("v4_words", "v4_rounding"),
            ("v4_index_scores",),
            ("heads", "turns", "products", "rows", "numbers", "now"),
            ("scores",),
            ("HEADS", "AT", "WEIGHTS_AT"),
        ),
        DecodeKernel(
            "v4_top_k", ("v4_order",), ("v4_top_k",), ("scores", "now"), ("index",), ("K",)
        ),
        DecodeKernel(
            "v4_attention",
            ("v4_words",),
            ("v4_attention",),
            ("heads", "turns", "window", "rows", "index", "numbers", "now", "sizes"),
            ("mixed", "shares"),
            ("D", "HAS_INDEX"),
        ),
        DecodeKernel(
            "v4_combine",
            (),
            ("v4_combine",),
            ("mixed", "shares", "sinks", "turns", "now", "sizes"),
            ("out",),
            ("D",),
        ),
        DecodeKernel(
            "v4_head_mix",
            ("v4_gates",),
            ("v4_head_mix",),
            ("streams", "partials", "scale", "base", "numbers", "sizes"),
            ("out",),
            (),
        ),
    )
}


@cache
def _text(file: str) -> str:
    return resources.files("mlx_kernels.gpu").joinpath("bodies", file).read_text(encoding="utf-8")


def decode_source(kernel: DecodeKernel, language: str) -> tuple[str, str]:
    """Return the header and the body of a kernel; language is "metal" or "cuda"."""
    header, body = (
        "".join(_text(f"{file}.metal") for file in files) for files in (kernel.header, kernel.files)
    )
    if language == "metal":
        return header, body
    return compact(_text("cuda_prelude.h") + header), compact(body)


def decode_kernels_of(kernels: CudaKernels | MetalKernels | None) -> "DecodeKernels | None":
    """Those of the device that the kernels for packed weights are of; None without such."""
    if kernels is None:
        return None
    language = "metal" if isinstance(kernels, MetalKernels) else "cuda"
    return DecodeKernels(kernels._make, language, kernels.are_lazy)


class Launch(NamedTuple):
    """A kernel with everything but its inputs."""

    call: Callable[..., list[Any]]
    settings: Mapping[str, Any]

    def __call__(self, *inputs: mx.array) -> list[mx.array]:
        """Launch on inputs in the order of the kernel's list."""
        return self.call(inputs=list(inputs), **self.settings)


class DecodeKernels:
    """Makes launches; each kernel is made when it is first used.

    Attributes:
        are_lazy: A launch only adds to a graph, which can be kept. What stands in for MLX's
            kernels on a CPU computes at once.
    """

    def __init__(
        self, make: Callable[..., Callable[..., Any]], language: str, are_lazy: bool = False
    ) -> None:
        """``make``: ``mx.fast.metal_kernel``, ``CompiledKernel`` or what stands in for it."""
        self.are_lazy = are_lazy
        self._make, self._language = make, language
        self._made: dict[str, Callable[..., Any]] = {}

    def launch(
        self,
        name: str,
        template: Mapping[str, int | bool],
        groups: tuple[int, int],
        shapes: Sequence[tuple[int, ...]],
        dtypes: Sequence[mx.Dtype] | None = None,
        threads: int = THREADS,
    ) -> Launch:
        """Prepare a launch of [x, y] groups of ``threads``; outputs are float32 by default."""
        kernel = DECODE_KERNELS[name]
        assert tuple(template) == kernel.template and len(shapes) == len(kernel.outputs)
        assert all(prod(shape) > 0 for shape in shapes)
        call = self._made.get(name)
        if call is None:
            header, body = decode_source(kernel, self._language)
            call = self._made[name] = self._make(
                name=f"ds4_{name}",
                input_names=list(kernel.inputs),
                output_names=list(kernel.outputs),
                source=body,
                header=header,
            )
        return Launch(
            call,
            {
                "template": list(template.items()),
                "grid": (groups[0] * threads, groups[1], 1),
                "threadgroup": (threads, 1, 1),
                "output_shapes": list(shapes),
                "output_dtypes": list(dtypes or [mx.float32] * len(shapes)),
            },
        )
