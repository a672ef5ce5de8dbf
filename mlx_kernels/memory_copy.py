"""How fast a device copies memory: what operations bound by memory are compared with."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

_COPIES = 4  # in a run, each of its own memory
_COPY_VALUES = 32 << 20  # float32 values of one copy, 128 MiB: more than caches hold
_RUNS = 7
_MAX_THREADS = 64
# On a GPU every array is copied so often in one evaluation: milliseconds of work, beside which the
# start of an evaluation is little.
_ROUNDS = 8


def copy_bandwidth(device: str) -> float:
    """Measure bytes a second, read plus written, of large copies. The best of several runs.

    On a GPU the best of MLX's elementwise kernel and, on CUDA, of a kernel of ours that moves 16
    bytes a thread: the ceiling is what the memory can do, not what one kernel reaches.

    Args:
        device: "metal", "cuda", "cpu" or "mlx-cpu"; the last two are one memory, copied with one
            thread a processor.
    """
    if device in ("cpu", "mlx-cpu"):
        return _best(_cpu_copy(), 1)
    copies = [_gpu_copy()] + ([_cuda_copy()] if device == "cuda" else [])
    return max(_best(copy, _ROUNDS) for copy in copies)


def _best(copy: Callable[[], None], n_rounds: int) -> float:
    copy()  # pages come into being, kernels are compiled
    seconds = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        copy()
        seconds.append(time.perf_counter() - started)
    return n_rounds * 2 * 4 * _COPIES * _COPY_VALUES / min(seconds)


def _cpu_copy() -> Callable[[], None]:
    source = np.ones(_COPIES * _COPY_VALUES, np.float32)
    target = np.zeros_like(source)
    n_threads = min(os.cpu_count() or 1, _MAX_THREADS)
    pool = ThreadPoolExecutor(n_threads)
    parts = list(
        zip(np.array_split(target, n_threads), np.array_split(source, n_threads), strict=True)
    )

    def copy() -> None:
        for _ in pool.map(lambda part: np.copyto(*part), parts):
            pass

    return copy


def _gpu_copy() -> Callable[[], None]:
    import mlx.core as mx

    # Negation reads and writes every value: a copy that MLX can't avoid by sharing.
    return _chained(mx.negative)


def _cuda_copy() -> Callable[[], None]:
    from mlx_kernels.gpu.kernels import CudaKernels

    kernels = CudaKernels()
    return _chained(
        lambda x: kernels.launch("copy", None, [x], {}, (2 * kernels.max_blocks, 1), x.shape)
    )


def _chained(copied: Callable[[Any], Any]) -> Callable[[], None]:
    """Copies of copies, in one graph: four arrays, each copied ``_ROUNDS`` times."""
    import mlx.core as mx

    sources = [mx.full((_COPY_VALUES,), float(i)) for i in range(_COPIES)]
    mx.eval(sources)

    def copy() -> None:
        targets = sources
        for _ in range(_ROUNDS):
            targets = [copied(target) for target in targets]
        mx.eval(targets)

    return copy
