"""The code paths of the compiled CPU kernels."""

import platform
from collections.abc import Iterator

import pytest

from mlx_kernels.cpu import native
from mlx_kernels.errors import DeviceError

_NEEDS = {
    "avx512": "a processor with AVX-512 (F, BW, VL, DQ, VNNI)",
    "avx2": "a processor with AVX2 and FMA",
    "neon": "a 64-bit ARM processor",
}
_IS_ARM = platform.machine() in ("aarch64", "arm64")


@pytest.fixture(params=["neon", "portable"] if _IS_ARM else ["avx512", "avx2", "portable"])
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """Every code path that this architecture may have."""
    try:
        native.debug_set_path(request.param)
    except DeviceError:
        pytest.skip(f"needs {_NEEDS[request.param]}")
    yield request.param
    native.debug_set_path("auto")
