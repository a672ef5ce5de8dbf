"""NVRTC, NVIDIA's compiler of CUDA texts in the process: the library that MLX itself uses.

Functions, options and status codes: https://docs.nvidia.com/cuda/nvrtc/
"""

import ctypes
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import mlx.core as mx

from mlx_kernels.errors import DeviceError, KernelError

_LIBRARY = "libnvrtc.so.13"  # of the CUDA that MLX was built for; its import has loaded it
_SYSTEM = "/usr/local/cuda"


@cache
def version() -> tuple[int, int]:
    """Of the compiler."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)), "nvrtcVersion")
    return major.value, minor.value


def compile_text(text: str, name: str, architecture: str) -> bytes:
    """Compile a CUDA text for one GPU.

    Args:
        text: whole; it finds the headers of CUDA and no others.
        name: of the text, for messages.
        architecture: such as ``sm_90a``.

    Returns:
        The program, a cubin.

    Raises:
        DeviceError: the compiler or the headers of CUDA are not there.
        KernelError: the text is refused.
    """
    nvrtc, program = _nvrtc(), ctypes.c_void_p()
    options = [f"--gpu-architecture={architecture}", "-default-device"]
    options += [f"--include-path={folder}" for folder in _include_folders()]
    _check(
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), text.encode(), f"{name}.cu".encode(), 0, None, None
        ),
        "nvrtcCreateProgram",
    )
    try:
        given = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        if nvrtc.nvrtcCompileProgram(program, len(options), given):
            log = _output(program, "ProgramLog").decode(errors="replace").rstrip("\0\n")
            raise KernelError(f"CUDA's compiler refuses {name}: {log}")
        return _output(program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def _output(program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _check(getattr(_nvrtc(), f"nvrtcGet{what}Size")(program, ctypes.byref(size)), what)
    output = ctypes.create_string_buffer(size.value)
    _check(getattr(_nvrtc(), f"nvrtcGet{what}")(program, output), what)
    return output.raw


@cache
def _nvrtc() -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(_LIBRARY)
    except OSError as error:
        raise DeviceError(f"CUDA's compiler is not there: {error}", "Reinstall mlx.") from error
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


@cache
def _include_folders() -> tuple[Path, ...]:
    """CUDA's headers, of the packages that come with MLX or of an installed CUDA; MLX's CCCL."""
    packages = find_spec("nvidia")
    found = packages.submodule_search_locations if packages is not None else None
    folders = [Path(folder) / "cu13" for folder in found or ()]
    folders += [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    folders.append(Path(_SYSTEM))
    for folder in folders:
        if (folder / "include" / "cuda_fp16.h").is_file():
            return folder / "include", Path(mx.__file__).parent / "include" / "cccl"
    looked = ", ".join(map(str, folders))
    raise DeviceError(
        f"The headers of CUDA are not in {looked}", "Install CUDA, and set CUDA_HOME to its folder."
    )


def _check(status: int, function: str) -> None:
    if status:
        told = _nvrtc().nvrtcGetErrorString(status).decode()
        raise KernelError(f"{function} fails: {told}")
