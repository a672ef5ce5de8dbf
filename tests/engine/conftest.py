"""The ways a network is computed: the tests of whole networks run on each."""

import importlib.util

import pytest

from mlx_kernels.cpu import native, native_library


def _choose(way: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the device of a way: "native" and "dense" are both of the device ``cpu``."""
    if way == "mlx-cpu" and importlib.util.find_spec("mlx") is None:
        pytest.skip("needs mlx (pip install ds4-agent[cpu])")
    if way == "native" and not native.is_available():
        pytest.skip("needs the compiled CPU kernels (a C compiler at install)")
    if way == "dense":  # what an install without a C compiler finds
        monkeypatch.setattr(native_library, "load_library", lambda: None)
    return "mlx-cpu" if way == "mlx-cpu" else "cpu"


@pytest.fixture(params=["native", "dense"])
def cpu_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device ``cpu``, with and without the compiled kernels."""
    return _choose(request.param, monkeypatch)


@pytest.fixture(params=["native", "dense", "mlx-cpu"])
def any_device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The devices that every computer has."""
    return _choose(request.param, monkeypatch)
