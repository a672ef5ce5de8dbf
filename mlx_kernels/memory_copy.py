"""How fast a device copies memory: what operations bound by memory are compared with."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

_COPIES = 4  # in a run, each of its own memory
_COPY_VALUES = 32 << 20  # float32 values of one copy, 128 MiB: more than caches hold
_RUNS = 7
_MAX_THREADS = 64


def copy_bandwidth(device: str) -> float:
    """Measure bytes a second, read plus written, of large copies. The best of several runs.

    Args:
        device: "metal", "cuda", "cpu" or "mlx-cpu"; the last two are one memory, copied with one
            thread a processor.
    """
    copy = _cpu_copy() if device in ("cpu", "mlx-cpu") else _gpu_copy()
    copy()  # pages come into being, kernels are compiled
    seconds = []
    for _ in range(_RUNS):
        started = time.perf_counter()
        copy()
        seconds.append(time.perf_counter() - started)
    return 2 * 4 * _COPIES * _COPY_VALUES / min(seconds)


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

    sources = [mx.full((_COPY_VALUES,), float(i)) for i in range(_COPIES)]
    mx.eval(sources)

    def copy() -> None:
        # Negation reads and writes every value: a copy that MLX can't avoid by sharing.
        mx.eval([mx.negative(source) for source in sources])

    return copy
