"""The choice of the device that runs a model, and of the operations that serve it.

MLX is imported only when a device needs it: the cpu device works without it.
"""

import importlib.util
import sys

from mlx_kernels.cpu.operations import CpuOps
from mlx_kernels.errors import DeviceError
from mlx_kernels.ops import Ops

DEVICES = ("auto", "metal", "cuda", "cpu", "mlx-cpu")


def resolve_device(name: str) -> str:
    """Turn a device name of a person into a concrete one.

    ``auto`` is ``metal`` where MLX has it, else ``cuda``, else ``cpu``.

    Raises:
        DeviceError: the device is unknown or does not exist here.
    """
    if name not in DEVICES:
        raise DeviceError(f"unknown device {name!r}", f"Use one of {', '.join(DEVICES)}.")
    if name == "cpu":
        return name
    if importlib.util.find_spec("mlx") is None:
        if name == "auto":
            return "cpu"
        raise DeviceError(f"device {name} needs mlx, which is not installed", _install_hint(name))
    available = _available()
    if name == "auto":
        return next((device for device in ("metal", "cuda") if device in available), "cpu")
    if name not in available:
        raise DeviceError(f"mlx finds no {name} device on this computer", _install_hint(name))
    return name


def open_ops(device: str) -> Ops:
    """Return the operations of a device ("auto" included).

    Work of the gpu world belongs to the thread that called this: MLX streams are thread-local,
    and an array that is not evaluated yet can't be used by another thread.

    Raises:
        DeviceError: the device does not exist here.
    """
    device = resolve_device(device)
    if device == "cpu":
        return CpuOps()
    from mlx_kernels.gpu.operations import MlxOps

    return MlxOps(device)


def open_random_ops(device: str) -> tuple[Ops, bool]:
    """As ``open_ops``, for measurements without a model file: weights are random.

    Returns the operations, and whether they make the weights themselves: a device with packed
    weights looks at no values of matrices that it is given. Others take what they are given.

    Raises:
        DeviceError: the device does not exist here.
    """
    device = resolve_device(device)
    if device not in ("metal", "cuda"):
        return open_ops(device), False
    from mlx_kernels.gpu.random_ops import RandomOps

    return RandomOps(device), True


def _available() -> set[str]:
    try:
        from mlx_kernels.gpu.operations import available_devices

        return available_devices()
    except ImportError as error:  # mlx without its backend: the shared library is missing
        raise DeviceError(
            f"mlx is installed but does not load: {error}", _install_hint("mlx-cpu")
        ) from error


def _install_hint(device: str) -> str:
    if sys.platform == "darwin":
        return "Use an Apple Silicon Mac with the mlx package, or --device cpu."
    extra = "cpu" if device == "mlx-cpu" else "cuda"
    if device == "metal":
        return "Use --device cuda or --device cpu: Metal exists on Macs only."
    return f"Install ds4-agent[{extra}] (exactly one of its mlx extras), or use --device cpu."
