"""``mx.fast.metal_kernel`` with the harness behind it: MLX arrays in and out.

``Harness.metal_kernel`` stands in for MLX's own function, so that a whole network's Metal path runs
here. A call evaluates its inputs and runs the kernel at once; what it returns is an array like any
other, and the graph around it stays lazy.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np

from tests.metal.launch import KernelFault, MetalKernel, Report
from tests.metal.text import dtype_name


@dataclass(frozen=True)
class Launch:
    """One launch: the kernel, the arguments of its call as NumPy sees them, and what came out."""

    kernel: MetalKernel
    arguments: dict
    outputs: list[np.ndarray]
    report: Report


class Harness:
    """Makes kernels, and keeps every launch of them, oldest first.

    Args:
        build, order, options: See ``MetalKernel``.
        rewrite: Changes every header and every body, for mutants; what it changed is not kept.
    """

    def __init__(
        self,
        build: str = "fast",
        order: str = "ascending",
        rewrite: Callable[[str], str] = str,
        **options: object,
    ) -> None:
        self.options = {"build": build, "order": order, **options}
        self.rewrite = rewrite
        self.launches: list[Launch] = []

    def metal_kernel(
        self,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        ensure_row_contiguous: bool = True,
        atomic_outputs: bool = False,
        compile_options: dict[str, str] | None = None,
    ) -> "HarnessKernel":
        """In place of ``mx.fast.metal_kernel``. ``compile_options`` change nothing here."""
        texts = self.rewrite(source), self.rewrite(header)
        return HarnessKernel(
            self,
            dict(
                name=name,
                input_names=list(input_names),
                output_names=list(output_names),
                source=texts[0],
                header=texts[1],
                ensure_row_contiguous=ensure_row_contiguous,
                atomic_outputs=atomic_outputs,
                keep=texts == (source, header),
            ),
        )


class HarnessKernel:
    """One kernel, called like the object that ``mx.fast.metal_kernel`` returns."""

    def __init__(self, harness: Harness, made_of: dict) -> None:
        self._harness, self._made_of = harness, made_of

    def __call__(
        self,
        *,
        inputs: Sequence,
        output_shapes: Sequence[Sequence[int]],
        output_dtypes: Sequence[mx.Dtype],
        grid: Sequence[int],
        threadgroup: Sequence[int],
        template: Sequence[tuple[str, object]] | None = None,
        init_value: float | None = None,
        verbose: bool = False,
        stream: object = None,
    ) -> list[mx.array]:
        """As MLX's. Raises KernelFault for what the kernel does wrong."""
        arrays, bfloats = [], []
        for name, value in zip(self._made_of["input_names"], inputs, strict=True):
            array = value if isinstance(value, mx.array) else mx.array(value)
            if array.dtype == mx.bfloat16:
                bfloats.append(name)
                array = array.view(mx.uint16)
            arrays.append(np.asarray(array))  # MLX's own memory, with MLX's strides
        kernel = MetalKernel(**self._made_of, **self._harness.options, bfloat16_inputs=bfloats)
        arguments = dict(
            inputs=arrays,
            output_shapes=[tuple(shape) for shape in output_shapes],
            output_dtypes=[dtype_name(dtype) for dtype in output_dtypes],
            grid=tuple(grid),
            threadgroup=tuple(threadgroup),
            template=[
                (name, value if isinstance(value, int) else dtype_name(value))
                for name, value in template or ()
            ],
            init_value=init_value,
        )
        outputs, report = kernel.run(**arguments, verbose=verbose)
        arguments["inputs"] = [_kept(array) for array in arrays]
        self._harness.launches.append(Launch(kernel, arguments, outputs, report))
        if report.error:
            raise KernelFault(f"{kernel.name} ({kernel.build}): {report.error}")
        return [
            mx.array(output).view(mx.bfloat16) if dtype == mx.bfloat16 else mx.array(output)
            for output, dtype in zip(outputs, output_dtypes, strict=True)
        ]


def _kept(array: np.ndarray) -> np.ndarray:
    """A copy with the same strides: MLX may write to the memory of an array that is not used."""
    if array.size == 0 or min(array.strides, default=0) < 0:
        return array.copy()
    span = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)) // (
        array.itemsize
    )
    items = np.lib.stride_tricks.as_strided(array, (span,), (array.itemsize,))
    return np.lib.stride_tricks.as_strided(items.copy(), array.shape, array.strides)
