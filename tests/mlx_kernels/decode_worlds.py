"""The kernels of a decoded position on the CPU: as CUDA text and as Metal text."""

import shutil
from typing import Any

import pytest

WORLDS = ("metal", pytest.param("cuda", marks=pytest.mark.slow))
NEEDS_COMPILER = pytest.mark.skipif(
    shutil.which("g++") is None, reason="kernels run on the CPU by way of g++"
)


def packed_kernels(language: str, build: str = "fast") -> Any:
    """``CudaKernels`` or ``MetalKernels`` whose launches run on the CPU."""
    if language == "cuda":
        from tests.cuda.world import emulated_kernels

        return emulated_kernels()
    from mlx_kernels.gpu.metal_kernels import MetalKernels
    from tests.metal.mlx_kernel import Harness

    return MetalKernels(Harness(build).metal_kernel)


def decode_kernels(language: str, build: str = "fast") -> Any:
    """``DecodeKernels`` whose launches run on the CPU."""
    from mlx_kernels.gpu.deepseek_v4.decode_kernels import decode_kernels_of

    return decode_kernels_of(packed_kernels(language, build))
