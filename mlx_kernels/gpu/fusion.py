"""Chains of elementwise operations as one kernel."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import mlx.core as mx

_P = ParamSpec("_P")
_R = TypeVar("_R")


def fused(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let MLX compile a function of arrays on a GPU.

    On the CPU, where MLX would call a C++ compiler for that, its operations stay as they are.
    """
    compiled = mx.compile(function)

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if mx.default_device() == mx.cpu:
            return function(*args, **kwargs)
        return compiled(*args, **kwargs)

    return call
