"""The operations of device metal, their kernels run by the harness."""

from typing import Any

from tests.metal.mlx_kernel import Harness


def metal_ops(harness: Harness | None = None) -> Any:
    """``MlxOps`` as on device metal, on MLX's CPU backend: kernels of ours run in the harness."""
    from mlx_kernels.gpu.metal_kernels import MetalKernels
    from mlx_kernels.gpu.operations import MlxOps

    return MlxOps("mlx-cpu", MetalKernels((harness or Harness()).metal_kernel))
