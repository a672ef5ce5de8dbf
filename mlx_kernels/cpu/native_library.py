"""The compiled kernels: where the shared library is, and its functions as ctypes sees them.

The library is an optional extension of the package: an install without a C compiler succeeds and
has no library. It holds no Python code, so ctypes loads it, and calls release the interpreter.
The structures mirror ``csrc/ds4_native.h``.
"""

import ctypes
import os
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_INTERFACE = 3  # DS4_INTERFACE of csrc/ds4_native.h

MAX_MATRICES = 64  # DS4_MAX_MATRICES
MAX_GROUP = 64  # DS4_MAX_GROUP

OK, NOT_FINITE, NO_MEMORY, NO_PATH = range(4)


class Matrix(ctypes.Structure):
    """``ds4_matrix``."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("cols", ctypes.c_int64),
        ("first_output", ctypes.c_int64),
        ("type", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
    ]


class LinearArgs(ctypes.Structure):
    """``ds4_linear_args``."""

    _fields_ = [
        ("x", ctypes.c_void_p),
        ("norm", ctypes.c_void_p),
        ("bias", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("m", ctypes.c_int64),
        ("x_stride", ctypes.c_int64),
        ("outputs", ctypes.c_int64),
        ("eps", ctypes.c_float),
        ("gated", ctypes.c_int32),
        ("n_matrices", ctypes.c_int32),
        ("method", ctypes.c_int32),
    ]


class AttentionArgs(ctypes.Structure):
    """``ds4_attention_args``."""

    _fields_ = [
        ("q", ctypes.c_void_p),
        ("keys", ctypes.c_void_p),
        ("values", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("m", ctypes.c_int64),
        ("n_heads", ctypes.c_int64),
        ("n_kv_heads", ctypes.c_int64),
        ("dim", ctypes.c_int64),
        ("n_kv", ctypes.c_int64),
        ("position_stride", ctypes.c_int64),
        ("head_stride", ctypes.c_int64),
        ("sinks", ctypes.c_void_p),
        ("window", ctypes.c_int64),
        ("scale", ctypes.c_float),
        ("half", ctypes.c_int32),
    ]


@cache
def load_library() -> ctypes.CDLL | None:
    """Load the library that was built with the package, or return None where there is none.

    A library of another version of the interface counts as none: it is left over from an older
    build, and the next install replaces it.
    """
    folder = Path(__file__).parent
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"_native{suffix}"
        if path.exists():
            library = ctypes.CDLL(str(path))
            if library.ds4_interface() != _INTERFACE:
                return None
            library.ds4_linear.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
            library.ds4_attention.argtypes = [ctypes.c_void_p]
            library.ds4_set_threads.argtypes = [ctypes.c_int]
            library.ds4_set_threads.restype = None
            library.ds4_set_path.argtypes = [ctypes.c_char_p]
            library.ds4_path_name.restype = ctypes.c_char_p
            library.ds4_set_threads(default_threads())
            return library
    return None


def default_threads() -> int:
    """Return the number of physical cores that this process may use.

    Two hyperthreads of one core share its multipliers and its path to memory, so a second one
    only adds waiting. A container's share of the processor counts as well.
    """
    if hasattr(os, "sched_getaffinity"):
        allowed = os.sched_getaffinity(0)
    else:
        allowed = set(range(os.cpu_count() or 1))
    cores = {_siblings(cpu) for cpu in allowed}
    return max(1, min(len(cores), _quota()))


def _siblings(cpu: int) -> str:
    """The hyperthreads of a processor's core as the kernel names them, "0,64"; else itself."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return path.read_text(encoding="ascii").strip()
    except OSError:
        return str(cpu)


def _quota() -> int:
    """Whole processors that a Linux control group grants; many where it sets no limit."""
    unlimited = 1 << 16
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return unlimited
    return unlimited if quota == "max" else max(1, int(quota) // int(period))
