"""``mx.fast.metal_kernel`` with the harness behind it: MLX arrays in and out, evaluated at once.

``metal_kernel`` can stand in for MLX's own function, so that a network's Metal path runs here.
"""

from collections.abc import Sequence

import mlx.core as mx
import numpy as np

from tests.metal.launch import KernelFault, MetalKernel, Report


class HarnessKernel:
    """One kernel; ``reports`` keeps (name, report) of every launch, oldest first."""

    def __init__(
        self,
        name: str,
        input_names: Sequence[str],
        output_names: Sequence[str],
        source: str,
        header: str = "",
        ensure_row_contiguous: bool = True,
        atomic_outputs: bool = False,
        compile_options: dict[str, str] | None = None,
        *,
        build: str = "fast",
        order: str = "ascending",
    ) -> None:
        self._make = dict(
            name=name,
            input_names=input_names,
            output_names=output_names,
            source=source,
            header=header,
            ensure_row_contiguous=ensure_row_contiguous,
            atomic_outputs=atomic_outputs,
            build=build,
            order=order,
        )
        self.reports: list[tuple[str, Report]] = []

    def __call__(
        self, *, inputs: Sequence, output_dtypes: Sequence, **launch: object
    ) -> list[mx.array]:
        """As MLX's; raises KernelFault."""
        names = self._make["input_names"]
        arrays, bfloats = [], []
        for name, value in zip(names, inputs, strict=True):
            array = value if isinstance(value, mx.array) else mx.array(value)
            if array.dtype == mx.bfloat16:
                bfloats.append(name)
                array = array.view(mx.uint16)
            arrays.append(np.array(array))
        kernel = MetalKernel(**self._make, bfloat16_inputs=bfloats)
        outputs, report = kernel.run(inputs=arrays, output_dtypes=output_dtypes, **launch)
        self.reports.append((kernel.name, report))
        if report.error:
            raise KernelFault(f"{kernel.name} ({kernel.build}): {report.error}")
        return [
            mx.array(output).view(mx.bfloat16) if dtype == mx.bfloat16 else mx.array(output)
            for output, dtype in zip(outputs, output_dtypes, strict=True)
        ]


def metal_kernel(**arguments: object) -> HarnessKernel:
    """Stand-in for ``mx.fast.metal_kernel``."""
    return HarnessKernel(**arguments)
