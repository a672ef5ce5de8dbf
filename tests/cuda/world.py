"""The project's CUDA kernels on MLX arrays, run by the emulation."""

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.cuda.launch import EmulatedKernel

needs_mlx = pytest.mark.skipif(
    importlib.util.find_spec("mlx") is None, reason="needs mlx (pip install ds4-agent[cpu])"
)


def emulated_kernels(max_blocks: int = 3) -> Any:
    """``CudaKernels`` whose launches run on the CPU; few blocks, so that each strides over rows."""
    from mlx_kernels.gpu.kernels import CudaKernels

    return CudaKernels(_make, max_blocks)


def _make(**arguments: Any) -> Callable[..., list[Any]]:
    import mlx.core as mx

    kernel = EmulatedKernel(**arguments)

    def call(*, inputs: list[Any], output_dtypes: list[Any], **rest: Any) -> list[Any]:
        dtypes = {mx.float32: np.float32, mx.float16: np.float16, mx.int32: np.int32}
        outputs = kernel(
            inputs=[np.array(array) for array in inputs],
            output_dtypes=[dtypes[dtype] for dtype in output_dtypes],
            **rest,
        )
        return [mx.array(output) for output in outputs]

    return call
