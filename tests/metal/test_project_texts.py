"""The text of every kernel of the project is the one that MLX gives to Metal's compiler."""

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from mlx_kernels.gpu.metal_cases import all_cases  # noqa: E402
from tests.metal.cases import run_case  # noqa: E402
from tests.metal.test_text import text_of_mlx  # noqa: E402

CASES = {case.name: case for case in all_cases()}


@pytest.mark.parametrize("name", CASES)
def test_text_is_what_mlx_generates(name: str) -> None:
    """The launches of a case, their arguments given to MLX's own function: nothing runs."""
    for launch in run_case(CASES[name])[1]:
        kernel, arguments = launch.kernel, dict(launch.arguments)
        inputs = [mx.array(np.ascontiguousarray(array)) for array in arguments.pop("inputs")]
        arguments["output_dtypes"] = [getattr(mx, d) for d in arguments["output_dtypes"]]
        of_mlx = mx.fast.metal_kernel(
            kernel.name, kernel.input_names, kernel.output_names, kernel.source, kernel.header
        )
        printed = text_of_mlx(of_mlx, inputs, **arguments)
        ours = kernel.kernel_text(
            launch.arguments["inputs"],
            launch.arguments["output_dtypes"],
            launch.arguments["template"],
        )
        assert ours.metal().strip() == printed.strip()
