"""A CUDA kernel that is compiled once for a computer, not once for a process.

MLX compiles the text of ``mx.fast.cuda_kernel`` anew in each process, 40 seconds for DeepSeek V4's
first token. ``CompiledKernel`` is called like what that returns, compiles with the same compiler
but without MLX's own headers, keeps the programs on the disk and gives them to
``mx.fast.precompiled_cuda_kernel``.
"""

import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

import mlx.core as mx

from mlx_kernels.gpu import nvrtc
from mlx_kernels.gpu.cubin_files import CubinFiles, users_files

_INCLUDES = "#include <cuda_fp16.h>\n#include <cuda/std/cstdint>\n"
_TYPES = {
    mx.uint8: "uint8_t",
    mx.int32: "int32_t",
    mx.uint32: "uint32_t",
    mx.float16: "__half",
    mx.float32: "float",
}
_NAME_DIGITS = 24  # of the hash of all that a program follows from

_FUNCTION = "ds4_kernel"  # until a program has its name

Template = Sequence[tuple[str, int | bool]]


class CompiledKernel:
    """A kernel's text, and the programs made of it."""

    def __init__(
        self,
        *,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        shared_memory: int = 0,
        files: CubinFiles | None = None,
    ) -> None:
        """Take a text.

        Args:
            name: of the kernel.
            input_names, output_names: its parameters, pointers to the arrays' values.
            source: the function's body. Where it names ``x_shape``, that is the shape of input x.
            header: what stands before the function.
            shared_memory: dynamic shared memory of a block, bytes.
            files: where programs are kept; by default in the user's cache.
        """
        self._name, self._source, self._header = name, source, header
        self._inputs, self._outputs = tuple(input_names), tuple(output_names)
        self._shared_memory = shared_memory
        self._files = files or users_files()
        self._shaped = [i for i, each in enumerate(self._inputs) if f"{each}_shape" in source]
        self._programs: dict[Any, tuple[str, bytes]] = {}

    def __call__(
        self,
        *,
        inputs: Sequence[mx.array],
        template: Template,
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        output_shapes: Sequence[tuple[int, ...]],
        output_dtypes: Sequence[mx.Dtype],
    ) -> list[mx.array]:
        """Launch, as what ``mx.fast.cuda_kernel`` returns does. ``grid`` counts threads."""
        dtypes = (*(array.dtype for array in inputs), *output_dtypes)
        shapes = [inputs[i].shape for i in self._shaped]
        key = dtypes, tuple(template), tuple(map(len, shapes))
        program = self._programs.get(key)
        if program is None:
            program = self._programs[key] = self._program(*key)
        name, cubin = program
        return mx.fast.precompiled_cuda_kernel(
            name=name,
            compiled_source=cubin,
            inputs=list(inputs),
            output_shapes=list(output_shapes),
            output_dtypes=list(output_dtypes),
            scalars=[n for shape in shapes for n in shape],
            grid=grid,
            threadgroup=threadgroup,
            shared_memory=self._shared_memory,
            ensure_row_contiguous=True,
        )

    def _program(
        self, dtypes: Sequence[mx.Dtype], template: Template, n_axes: Sequence[int]
    ) -> tuple[str, bytes]:
        architecture = architecture_of_device()
        text = self.text(dtypes, template, n_axes)
        about = f"{architecture} {nvrtc.version()} {self._shared_memory}\n{text}"
        # MLX and the folder both know a program by its name alone.
        name = f"{self._name}_{hashlib.sha256(about.encode()).hexdigest()[:_NAME_DIGITS]}"
        cubin = self._files.read(name)
        if cubin is None:
            cubin = nvrtc.compile_text(text.replace(_FUNCTION, name, 1), name, architecture)
            self._files.write(name, cubin)
        return name, cubin

    def text(self, dtypes: Sequence[mx.Dtype], template: Template, n_axes: Sequence[int]) -> str:
        """The whole text of a program; its function is called ``ds4_kernel``.

        Args:
            dtypes: of inputs and outputs.
            template: constants inside the function.
            n_axes: of the inputs whose shape the body reads.
        """
        n_inputs = len(self._inputs)
        parameters = [
            f"{'const ' if i < n_inputs else ''}{_TYPES[dtype]}* {name}"
            for i, (name, dtype) in enumerate(
                zip((*self._inputs, *self._outputs), dtypes, strict=True)
            )
        ]
        shapes = []
        for i, n in zip(self._shaped, n_axes, strict=True):
            name = f"{self._inputs[i]}_shape"
            sizes = [f"{name}_{axis}" for axis in range(n)]
            parameters += [f"int {size}" for size in sizes]
            shapes.append(f"const int {name}[] = {{{', '.join(sizes)}}};\n")
        constants = [_constant(name, value) for name, value in template]
        return (
            f"{_INCLUDES}{self._header}\n"
            f'extern "C" __global__ void {_FUNCTION}({", ".join(parameters)}) {{\n'
            f"{''.join(shapes)}{''.join(constants)}{self._source}\n}}\n"
        )


def _constant(name: str, value: int | bool) -> str:
    kind = "bool" if isinstance(value, bool) else "int"
    return f"constexpr {kind} {name} = {int(value)};\n"


@cache
def architecture_of_device() -> str:
    """NVRTC's name of the GPU that MLX uses, with what only this kind of GPU has."""
    info = mx.device_info(mx.gpu)
    major, minor = info["compute_capability_major"], info["compute_capability_minor"]
    return f"sm_{major}{minor}{'a' if int(major) >= 9 else ''}"
