"""Chains of elementwise operations as one kernel."""

import threading
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import mlx.core as mx

_P = ParamSpec("_P")
_R = TypeVar("_R")


def fused(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let MLX compile a function of arrays on a GPU.

    On the CPU, where MLX would call a C++ compiler for that, its operations stay as they are.

    MLX keeps the graphs of a compiled function by thread, and frees those of a thread that has
    ended behind Python's back, which aborts a process that ends at the same time. So each thread
    compiles its own function, and Python drops it while the thread still has its state.
    """
    of_thread = threading.local()

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if mx.default_device() == mx.cpu:
            return function(*args, **kwargs)
        if not hasattr(of_thread, "compiled"):
            of_thread.compiled = mx.compile(function)
        return of_thread.compiled(*args, **kwargs)

    return call
