"""Runs the body of an ``mx.fast.metal_kernel`` on the CPU and reports what it did.

``MetalKernel`` has the call signature of MLX's kernels and takes and returns NumPy arrays.
bfloat16, which NumPy lacks, is uint16 with the dtype named: inputs through ``bfloat16_inputs``,
outputs by ``output_dtypes``.
"""

import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np

from tests.metal import compiler, text
from tests.metal.process import Worker

THREADGROUP_LIMIT_BYTES = 32 * 1024  # of every Apple GPU (Metal feature set tables)
MAX_THREADS = 1024

_of_thread = threading.local()  # each thread has a child process of its own


class KernelFault(Exception):
    """A kernel did something wrong; the text says what and where in the body."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of one buffer (checked build).

    read, written: by all lanes together. fetched: read, but a byte that the same simdgroup read
    last counts once, as if it came from its cache. unwritten: of an output, never written.
    """

    read: int
    fetched: int
    written: int
    unwritten: int


@dataclass
class Report:
    """What one launch did."""

    error: str | None
    threadgroup_bytes: int = 0
    traffic: dict[str, Traffic] = field(default_factory=dict)
    lines: dict[tuple[str, int], int] = field(default_factory=dict)  # "counted": how often each ran


class MetalKernel:
    """``mx.fast.metal_kernel`` on the CPU.

    Args: as MLX's, and
        build: "fast", "checked" or "clang" (see ``compiler``); "counted" counts lines.
        keep: Keep the compiled library for the next time.
        order: Of lanes, simdgroups and groups: "ascending", "descending" or "random" (by ``seed``).
        allow_return: Lanes may return before a collective of the others.
        bfloat16_inputs: Names of the uint16 inputs that hold bfloat16.
    """

    def __init__(
        self,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        ensure_row_contiguous: bool = True,
        atomic_outputs: bool = False,
        *,
        build: str = "fast",
        order: str = "ascending",
        seed: int = 1,
        allow_return: bool = False,
        bfloat16_inputs: Sequence[str] = (),
        timeout_s: float = 60.0,
        keep: bool = True,
    ) -> None:
        self.name = name
        self.input_names, self.output_names = list(input_names), list(output_names)
        self.source, self.header = source, header
        self.ensure_row_contiguous = ensure_row_contiguous
        self.atomic_outputs = atomic_outputs
        self.build, self.order, self.seed = build, order, seed
        self.allow_return = allow_return
        self.bfloat16_inputs = set(bfloat16_inputs)
        self.timeout_s, self.keep = timeout_s, keep
        self.last_report: Report | None = None

    def __call__(self, *, inputs: Sequence, **launch: object) -> list[np.ndarray]:
        """Run, and return the outputs. Raises KernelFault, CompileError or MissingCompiler."""
        outputs, report = self.run(inputs=inputs, **launch)
        if report.error:
            raise KernelFault(f"{self.name} ({self.build}): {report.error}")
        return outputs

    def kernel_text(
        self,
        inputs: Sequence,
        output_dtypes: Sequence,
        template: Sequence[tuple[str, object]] | None = None,
    ) -> text.KernelText:
        """The text of the variant that these inputs and template values select."""
        shapes = []
        for name, array in zip(self.input_names, inputs, strict=True):
            array = np.asarray(array)
            dtype = "bfloat16" if name in self.bfloat16_inputs else array.dtype.name
            shapes.append((name, text.InputShape(dtype, array.ndim, array.size)))
        outputs = list(zip(self.output_names, output_dtypes, strict=True))
        return text.kernel_text(
            self.name,
            shapes,
            outputs,
            self.source,
            self.header,
            list(template or ()),
            self.atomic_outputs,
        )

    def run(
        self,
        *,
        inputs: Sequence,
        grid: Sequence[int],
        threadgroup: Sequence[int],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence,
        template: Sequence[tuple[str, object]] | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: object = None,
        build: str | None = None,
        order: str | None = None,
        seed: int | None = None,
    ) -> tuple[list[np.ndarray], Report]:
        """Run without raising for what the kernel does: the report's ``error`` is the finding."""
        arrays = [np.asarray(array) for array in inputs]
        if self.ensure_row_contiguous:
            arrays = [np.ascontiguousarray(a).reshape(a.shape) for a in arrays]
        kernel = self.kernel_text(arrays, output_dtypes, template)
        if len(kernel.arguments) > text.MAX_ARGUMENTS:
            raise ValueError(f"{self.name}: {len(kernel.arguments)} buffers, Metal has 31")
        if verbose:
            print(kernel.metal())
        group = [min(t, g) for t, g in zip(threadgroup, grid, strict=True)]
        if prod(group) > MAX_THREADS or min(group) < 1:
            raise ValueError(f"{self.name}: a group of {group} threads, Metal has at most 1024")
        build = build or self.build
        buffers = self._buffers(kernel, arrays, output_shapes, output_dtypes, init_value)
        answer = launch_text(
            text.harness_text(kernel),
            buffers,
            grid,
            group,
            build=build,
            order=order or self.order,
            seed=self.seed if seed is None else seed,
            allow_return=self.allow_return,
            timeout_s=self.timeout_s,
            keep=self.keep,
        )
        return self._results(answer, output_shapes, output_dtypes)

    def _buffers(
        self,
        kernel: text.KernelText,
        arrays: list[np.ndarray],
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence,
        init_value: float | None,
    ) -> list[tuple[str, str, object]]:
        """(name, kind, content) of each argument, in order; see ``worker``."""
        by_name = dict(zip(self.input_names, arrays, strict=True))
        shape_of = dict(zip(self.output_names, output_shapes, strict=True))
        dtype_of = dict(zip(self.output_names, output_dtypes, strict=True))
        buffers: list[tuple[str, str, object]] = []
        for argument in kernel.arguments:
            name, _, part = argument.bound.partition(":")
            if part:
                buffers.append((argument.name, "input", _facts(by_name[name], part)))
            elif name in by_name:
                buffers.append((name, "input", _memory_of(by_name[name])))
            else:
                dtype = storage_dtype(dtype_of[name])
                shape = tuple(shape_of[name])
                if init_value is None:
                    buffers.append((name, "empty", prod(shape) * dtype.itemsize))
                else:
                    is_bfloat = text.dtype_name(dtype_of[name]) == "bfloat16"
                    start = float_to_bfloat16(init_value) if is_bfloat else init_value
                    buffers.append((name, "output", np.full(shape, start, dtype)))
        return buffers

    def _results(
        self, answer: dict, output_shapes: Sequence[Sequence[int]], output_dtypes: Sequence
    ) -> tuple[list[np.ndarray], Report]:
        report = Report(
            answer["error"],
            answer.get("threadgroup_bytes", 0),
            {name: Traffic(*counts) for name, counts in answer.get("traffic", {}).items()},
            answer.get("lines", {}),
        )
        if report.error is None and report.threadgroup_bytes > THREADGROUP_LIMIT_BYTES:
            report.error = (
                f"{report.threadgroup_bytes} bytes of threadgroup memory, Metal has 32768"
            )
        self.last_report = report
        outputs = []
        for name, shape, dtype in zip(self.output_names, output_shapes, output_dtypes, strict=True):
            kind = storage_dtype(dtype)
            data = answer.get("outputs", {}).get(name)
            if data is None:  # the process died
                data = b"\xff" * (prod(shape) * kind.itemsize)
            outputs.append(np.frombuffer(data, kind).reshape(shape).copy())
        return outputs, report


def launch_text(
    cpp: str,
    buffers: list[tuple[str, str, object]],
    grid: Sequence[int],
    threadgroup: Sequence[int],
    *,
    build: str = "fast",
    order: str = "ascending",
    seed: int = 1,
    allow_return: bool = False,
    timeout_s: float = 60.0,
    keep: bool = True,
) -> dict:
    """Compile a text with a ``kernel_entry`` and run it in the child process.

    Args:
        buffers: (name, kind, content) in order; kind "input" or "output" with an array, "empty"
            with a size in bytes.

    Returns:
        error (text or None), outputs (name -> bytes), traffic, threadgroup_bytes; lines.
    """
    job = {
        "runtime": str(compiler.runtime_library()),
        "buffers": buffers,
        "grid": list(grid),
        "threadgroup": list(threadgroup),
        "order": order,
        "seed": seed,
        "build": build,
        "allow_return": allow_return,
        "keep": keep and build != "counted",
    }
    with tempfile.TemporaryDirectory(dir=compiler.cache_folder()) as folder:
        if build == "counted":
            library = compiler.counted_library(cpp, Path(folder))
        else:
            library = compiler.kernel_library(cpp, build)
        if not hasattr(_of_thread, "worker"):
            _of_thread.worker = Worker()
        answer = _of_thread.worker.run({**job, "library": str(library)}, timeout_s)
        if not keep:
            library.unlink(missing_ok=True)
        if build == "counted":
            answer["lines"] = compiler.lines_run(Path(folder))
    if answer.get("harness"):
        raise RuntimeError(answer["error"])
    return answer


def storage_dtype(dtype: object) -> np.dtype:
    """NumPy's dtype of an output; uint16 for bfloat16."""
    name = text.dtype_name(dtype)
    return np.dtype("uint16" if name == "bfloat16" else name)


def float_to_bfloat16(values: np.ndarray | float) -> np.ndarray:
    """float32 -> the bits of bfloat16, rounded to even, as uint16."""
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def bfloat16_to_float(bits: np.ndarray) -> np.ndarray:
    """The bits of bfloat16 as uint16 -> float32."""
    return (np.asarray(bits).astype(np.uint32) << 16).view(np.float32)


def _facts(array: np.ndarray, part: str) -> np.ndarray:
    """What x_shape, x_strides (in elements) and x_ndim point at."""
    if part == "shape":
        return np.array(array.shape, np.int32)
    if part == "strides":
        return np.array([s // array.itemsize for s in array.strides], np.int64)
    return np.array([array.ndim], np.int32)


def _memory_of(array: np.ndarray) -> np.ndarray:
    """The memory from the first to the last element of a possibly strided array, as it lies."""
    if array.flags.c_contiguous:
        return array
    steps = [s // array.itemsize for s in array.strides]
    if min(steps) < 0:
        raise ValueError("an input with a negative stride: the kernel gets its first element only")
    span = 1 + sum((n - 1) * s for n, s in zip(array.shape, steps, strict=True))
    return np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,)).copy()
