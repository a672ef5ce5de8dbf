"""Runs CUDA texts on the CPU: the signature of ``CompiledKernel``, NumPy arrays in and out."""

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import pytest

import mlx_kernels

BODIES = Path(mlx_kernels.__file__).parent / "gpu" / "bodies"
_SHIM = Path(__file__).parent / "cuda_shim.h"
_FLAGS = ["-std=c++17", "-O1", "-fPIC", "-fno-strict-aliasing", "-w"]
_GUARD = 64  # bytes behind every array; of outputs they are checked
_ALIGN = 256  # what an allocator of a GPU gives at least

_TYPES = {
    "uint8": "uint8_t",
    "int32": "int32_t",
    "uint32": "uint32_t",
    "float16": "__half",
    "float32": "float",
}
_ASM = re.compile(r"asm\s*(?:volatile)?\s*\(((?:[^;\"]|\"[^\"]*\")*)\);")
_OPERAND = re.compile(r'"[=+]?[rlf]"\s*\(([^()]*)\)')
_SHARED = re.compile(r"extern\s+__shared__\s+(\w+)\s+(\w+)\[\];")

needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the CUDA emulation needs g++ (Debian: apt install g++)"
)


class EmulationError(Exception):
    """A text does what a GPU forbids, or a compiler refused it."""


class EmulatedKernel:
    """A CUDA text, called like a ``CompiledKernel``."""

    def __init__(
        self,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        ensure_row_contiguous: bool = True,
        shared_memory: int = 0,
    ) -> None:
        self._name = name
        self._names = (*input_names, *output_names)
        self._source = source
        self._header = header
        self._shared_memory = shared_memory
        # A text gets the shapes of those inputs whose name_shape it uses.
        self._shapes = [i for i, each in enumerate(input_names) if f"{each}_shape" in source]

    def __call__(
        self,
        *,
        inputs: Sequence[np.ndarray],
        grid: tuple[int, int, int],
        threadgroup: tuple[int, int, int],
        output_shapes: Sequence[tuple[int, ...]],
        output_dtypes: Sequence[np.dtype | type],
        template: Sequence[tuple[str, int | bool]] = (),
    ) -> list[np.ndarray]:
        """Run every block. ``grid`` counts threads, and is rounded up to whole blocks."""
        assert threadgroup[1:] == (1, 1)
        arrays = [_placed(np.ascontiguousarray(array)) for array in inputs]
        for shape, dtype in zip(output_shapes, output_dtypes, strict=True):
            arrays.append(_placed(np.full(prod(shape) * np.dtype(dtype).itemsize, 255, np.uint8)))
        dtypes = [array.dtype for array in inputs] + [np.dtype(d) for d in output_dtypes]
        outputs = arrays[len(inputs) :]
        arrays += [_placed(np.array(inputs[i].shape, np.int32)) for i in self._shapes]
        run = ctypes.CDLL(str(_library(self._text(dtypes, template)))).launch
        run.restype = ctypes.c_char_p
        pointers = (ctypes.c_void_p * len(arrays))(*(view.ctypes.data for view, _ in arrays))
        blocks = (-(-grid[0] // threadgroup[0]), grid[1], grid[2])
        error = run(pointers, (ctypes.c_int * 3)(*blocks), threadgroup[0], self._shared_memory)
        if error:
            raise EmulationError(f"{self._name}: {error.decode()}")
        for name, (_, guard) in zip(self._names, arrays[: len(self._names)], strict=True):
            if not (guard == 255).all():
                raise EmulationError(f"{self._name} writes past the end of {name}")
        return [
            view.view(np.dtype(dtype)).reshape(shape).copy()
            for (view, _), shape, dtype in zip(outputs, output_shapes, output_dtypes, strict=True)
        ]

    def _text(self, dtypes: Sequence[np.dtype], template: Sequence[tuple[str, int | bool]]) -> str:
        """The text as a C++ file: template values inside the function."""
        values = "".join(
            f"constexpr {'bool' if isinstance(value, bool) else 'int'} {name} = {int(value)};\n"
            for name, value in template
        )
        parameters = ", ".join(
            f"{_TYPES[dtype.name]}* {name}" for name, dtype in zip(self._names, dtypes, strict=True)
        )
        arguments = ", ".join(
            f"({_TYPES[dtype.name]}*)buffers[{i}]" for i, dtype in enumerate(dtypes)
        )
        for i, each in enumerate(self._shapes, len(dtypes)):
            parameters += f", const int32_t* {self._names[each]}_shape"
            arguments += f", (const int32_t*)buffers[{i}]"
        return (
            '#include "cuda_shim.h"\n'
            + translated(self._header)
            + f"\nstatic void kernel({parameters}) {{\n{values}{translated(self._source)}\n}}\n"
            + 'extern "C" const char* launch(void** buffers, const int* grid, int n_threads, '
            + "int shared_bytes) {\n  return emulated::run(grid, n_threads, shared_bytes, [=] { "
            + f"kernel({arguments}); }});\n}}\n"
        )


def translated(text: str) -> str:
    """Replace instructions of PTX by calls, and shared memory by that of the emulation."""

    def call(match: re.Match[str]) -> str:
        words = "".join(re.findall(r'"([^"]*)"', match[1].split(":")[0])).split()
        name = re.sub(r"\W", "_", words[0].rstrip(";"))
        return f"ptx_{name}({', '.join(_OPERAND.findall(match[1]))});"

    text = _ASM.sub(call, text.replace("#include <cuda_fp16.h>", ""))
    return _SHARED.sub(r"\1* const \2 = reinterpret_cast<\1*>(emulated::shared_start);", text)


def _placed(array: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Copy to an aligned address; return the copy's bytes and those behind it, all 255."""
    memory = np.full(array.nbytes + _ALIGN + _GUARD, 255, np.uint8)
    start = -memory.ctypes.data % _ALIGN
    view = memory[start : start + array.nbytes]
    view[...] = array.reshape(-1).view(np.uint8)
    return view, memory[start + array.nbytes :]


@cache
def _folder() -> Path:
    """Compiled texts, outside the repository and only ours."""
    folder = Path(tempfile.gettempdir()) / f"ds4-cuda-emulation-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")
    return folder


@cache
def _library(text: str) -> Path:
    """Compile a text, unless that was done before."""
    return _compiled(text, "kernel.cpp", "so", ["-shared", "-I", str(_precompiled())])


@cache
def _precompiled() -> Path:
    """The folder of the compiled shim: reading its headers is most of a text's compile time."""
    text = _SHIM.read_text(encoding="utf-8")
    header = _compiled(text, "cuda_shim.h", "gch", ["-x", "c++-header"])
    folder = header.with_suffix("")
    folder.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        os.link(header, folder / "cuda_shim.h.gch")
    return folder


def _compiled(text: str, name: str, suffix: str, flags: Sequence[str]) -> Path:
    key = hashlib.sha256("\0".join([text, *_FLAGS, *flags]).encode()).hexdigest()[:32]
    result = _folder() / f"{key}.{suffix}"
    if not result.exists():
        with tempfile.TemporaryDirectory(dir=_folder()) as scratch:
            source, target = Path(scratch) / name, Path(scratch) / "result"
            source.write_text(text, encoding="utf-8")
            command = ["g++", *_FLAGS, *flags, str(source), "-o", str(target)]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                raise EmulationError(done.stderr[:4000])
            os.replace(target, result)
    return result
