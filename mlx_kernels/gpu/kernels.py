"""The CUDA kernels as data, and the making of launchable objects from them.

NVRTC compiles one text and finds no files of ours, so the files of a kernel's header are put one
after the other. MLX sets the header at global scope and the template's values as constants inside
the function; the block format is an alias at the end of the header. A body therefore names its
format ``Format`` and its numbers by the names listed here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import mlx.core as mx

from mlx_kernels.blocks import BLOCK
from mlx_kernels.gpu.compiled_kernel import CompiledKernel
from mlx_kernels.gpu.kernel_text import body_text, compact, only_format
from mlx_kernels.gpu.planar import PLANES

THREADS = 256  # of a block, of every kernel here
# Blocks of a launch that strides over its rows: four for each of the 132 multiprocessors of an
# H100 or H200. On another GPU only the speed differs.
MAX_BLOCKS = 4 * 132
# A kernel gets more than 48,000 bytes of shared memory by an attribute that is set when its text
# is compiled, so those kernels are told apart by the amount, in steps.
_PLAIN_SHARED_BYTES, _SHARED_STEP = 48_000, 16 << 10


class Kernel(NamedTuple):
    """One kernel: its files in ``bodies/`` and the names that its body uses."""

    name: str
    header: tuple[str, ...]
    body: str
    inputs: tuple[str, ...]
    output: str
    template: tuple[str, ...]
    more_outputs: tuple[str, ...] = ()


def _planes(prefix: str = "") -> tuple[str, ...]:
    return tuple(prefix + plane for plane in PLANES)


_DECODE = ("decode_activations.cu", "decode_formats.cu")
_TILE = ("matmul_unpack.cu", "matmul_ptx.cu", "matmul_tile.cu")

KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            "matvec",
            _DECODE,
            "decode_matvec.cu",
            ("x", *_planes(), "table", "norm", "bias", "residual"),
            "out",
            ("T", "RW", "UN", "HAS_NORM", "EPS", "HAS_BIAS", "HAS_RESIDUAL"),
        ),
        Kernel(
            "gate_up",
            _DECODE,
            "decode_gate_up.cu",
            (
                *("x", *_planes("gate_"), *_planes("up_"), "table"),
                *("ids", "weights", "norm"),
            ),
            "out",
            ("K", "F", "RW", "UN", "HAS_NORM", "EPS", "HAS_CLAMP", "CLAMP"),
        ),
        Kernel(
            "down",
            _DECODE,
            "decode_down.cu",
            ("hidden", *_planes(), "table", "ids"),
            "out",
            ("K", "C", "RW", "UN"),
        ),
        Kernel(
            "tensor_gate_up",
            ("decode_tensor.cu", "launch_bound.cu"),
            "decode_tensor_gate_up.cu",
            ("x", *_planes("gate_"), *_planes("up_"), "table", "ids", "weights"),
            "out",
            ("K", "F", "N", "PER_WARP", "SLOTS", "HAS_CLAMP", "CLAMP"),
        ),
        Kernel(
            "tensor_down",
            ("decode_tensor.cu", "launch_bound.cu"),
            "decode_tensor_down.cu",
            ("hidden", *_planes(), "table", "ids"),
            "out",
            ("K", "C", "N", "PER_WARP", "SLOTS"),
        ),
        Kernel(
            "dequantize",
            ("decode_activations.cu", "dequantize_formats.cu"),
            "dequantize.cu",
            (*_planes(), "table", "sizes"),
            "out",
            (),
        ),
        Kernel(
            "tile_gate_up",
            _TILE,
            "matmul_gate_up.cu",
            (
                *("x", "x_scales", *_planes("gate_"), *_planes("up_"), "table"),
                *("gate_scaling", "up_scaling", "sizes", "order", "tiles", "weights", "clamp"),
            ),
            "out",
            ("K", "NT", "WARPS"),
        ),
        Kernel(
            "tile_product",
            _TILE,
            "matmul_product.cu",
            (
                *("x", "x_scales", *_planes(), "table", "scaling", "sizes"),
                *("order", "tiles"),
            ),
            "out",
            ("NT", "WARPS", "HAS_EXPERTS"),
        ),
        Kernel("copy", (), "copy.cu", ("x",), "out", ()),
        Kernel("halves", (), "halves.cu", ("x", "sizes"), "out", (), more_outputs=("scales",)),
        # Many positions of DeepSeek V4.
        Kernel(
            "hyper_read",
            ("block_sums.cu",),
            "prefill_hyper_read.cu",
            ("streams", "products", "scale", "base", "norm", "numbers", "sizes"),
            "out",
            (),
            more_outputs=("mix",),
        ),
        Kernel(
            "hyper_write",
            (),
            "prefill_hyper_write.cu",
            ("y", "z", "streams", "mix", "sizes"),
            "out",
            ("HAS_SECOND",),
        ),
        Kernel(
            "heads",
            ("block_sums.cu",),
            "prefill_heads.cu",
            ("heads", "cosines", "sines", "numbers", "sizes"),
            "out",
            (),
        ),
        Kernel(
            "index_heads",
            ("block_sums.cu",),
            "prefill_index_heads.cu",
            ("heads", "norm", "cosines", "sines", "numbers", "sizes"),
            "out",
            ("HAS_NORM",),
        ),
        Kernel("pool", (), "prefill_pool.cu", ("history", "sizes"), "out", ("R",)),
        Kernel(
            "stored_rows",
            ("block_sums.cu",),
            "prefill_rows.cu",
            ("x", "norm", "cosines", "sines", "numbers", "sizes"),
            "out",
            (),
        ),
        Kernel(
            "index_scores",
            ("matmul_ptx.cu",),
            "prefill_index_scores.cu",
            ("queries", "weights", "rows", "sizes"),
            "out",
            ("HEADS", "GROUP"),
        ),
        Kernel("top_k", ("sortable.cu",), "prefill_top_k.cu", ("scores", "sizes"), "out", ("K",)),
        Kernel(
            "attend",
            ("matmul_ptx.cu",),
            "prefill_attention.cu",
            (
                *("queries", "window", "rows", "index", "sinks", "cosines", "sines"),
                "sizes",
            ),
            "out",
            ("D", "HAS_ROWS", "HAS_INDEX"),
        ),
    )
}

# Types that the kernels read; values: words of the table in shared memory of decode kernels.
FORMATS: Mapping[int, int] = {8: 0, 10: 0, 12: 0, 13: 0, 14: 0, 16: 8 * (256 + 128), 39: 0}


@cache
def source_of(kernel: Kernel, type_id: int | None) -> tuple[str, str]:
    """Return the header and the body of a kernel for a block format, if it reads one."""
    header = "\n".join(map(body_text, kernel.header))
    if type_id is not None:
        name = BLOCK[type_id].name
        header = only_format(header, name) + f"\nusing Format = {name};\n"
    return "#include <cuda_fp16.h>\n" + compact(header), compact(body_text(kernel.body))


class CudaKernels:
    """Launches kernels; each is made when it is first used."""

    def __init__(
        self, make: Callable[..., Callable[..., Any]] | None = None, max_blocks: int = MAX_BLOCKS
    ) -> None:
        """``make``: in place of ``CompiledKernel``, which only runs on a GPU."""
        self._make = make or CompiledKernel
        self.are_lazy = make is None  # on a GPU a launch only adds to a graph
        self._made: dict[tuple[str, int | None, int], Callable[..., Any]] = {}
        self.max_blocks = max_blocks
        self.n_multiprocessors = max(1, max_blocks // 4)

    def launch(
        self,
        name: str,
        type_id: int | None,
        inputs: Sequence[mx.array],
        template: Mapping[str, int | bool],
        n_blocks: tuple[int, int],
        shape: tuple[int, ...],
        dtype: mx.Dtype = mx.float32,
        shared_bytes: int = 0,
        n_threads: int = THREADS,
    ) -> mx.array:
        """Launch a kernel of one output, and return it; see ``launch_all``."""
        outputs = [(shape, dtype)]
        return self.launch_all(
            name, type_id, inputs, template, n_blocks, outputs, shared_bytes, n_threads
        )[0]

    def launch_all(
        self,
        name: str,
        type_id: int | None,
        inputs: Sequence[mx.array],
        template: Mapping[str, int | bool],
        n_blocks: tuple[int, int],
        outputs: Sequence[tuple[tuple[int, ...], mx.Dtype]],
        shared_bytes: int = 0,
        n_threads: int = THREADS,
    ) -> list[mx.array]:
        """Launch [x, y] blocks of ``n_threads`` threads, and return the outputs.

        Args:
            type_id: The block format, a key of ``FORMATS``; None for a kernel without one.
            inputs: In the order of the kernel's list.
            template: A value for each name of the kernel's list.
            outputs: Shape and dtype of each, in the order of the kernel's list.
            shared_bytes: Dynamic shared memory of a block.
        """
        kernel = KERNELS[name]
        assert len(inputs) == len(kernel.inputs) and tuple(template) == kernel.template
        if shared_bytes > _PLAIN_SHARED_BYTES:
            shared_bytes = -(-shared_bytes // _SHARED_STEP) * _SHARED_STEP
        call = self._made.get((name, type_id, shared_bytes))
        if call is None:
            call = self._made[name, type_id, shared_bytes] = self._new(
                kernel, type_id, shared_bytes
            )
        return call(
            inputs=list(inputs),
            template=list(template.items()),
            grid=(n_blocks[0] * n_threads, n_blocks[1], 1),
            threadgroup=(n_threads, 1, 1),
            output_shapes=[shape for shape, _ in outputs],
            output_dtypes=[dtype for _, dtype in outputs],
        )

    def _new(self, kernel: Kernel, type_id: int | None, shared_bytes: int) -> Callable[..., Any]:
        header, body = source_of(kernel, type_id)
        name = f"ds4_{kernel.name}"
        if type_id is not None:
            name += f"_{BLOCK[type_id].name.lower()}"
        if shared_bytes > _PLAIN_SHARED_BYTES:
            name += f"_{shared_bytes}"
        return self._make(
            name=name,
            input_names=list(kernel.inputs),
            output_names=[kernel.output, *kernel.more_outputs],
            source=body,
            header=header,
            shared_memory=shared_bytes,
        )
