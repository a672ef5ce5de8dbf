"""The code paths of the compiled CPU kernels."""

from collections.abc import Iterator

import pytest

from mlx_kernels.cpu import native


@pytest.fixture(params=["auto", "portable"])
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """The best path of this processor, and the one that every compiler can build."""
    native.debug_set_path(request.param)
    yield request.param
    native.debug_set_path("auto")
