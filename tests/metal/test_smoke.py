"""examples/metal_smoke.py: says what it lacks here, and tells right kernels from wrong ones."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

mx = pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from tests.metal.mlx_kernel import Harness  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "metal_smoke.py"


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("metal_smoke", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(mx.metal.is_available(), reason="there is a Metal device here")
def test_without_a_metal_device() -> None:
    done = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == ""
    assert done.stdout.startswith("no Metal device here")


@pytest.mark.parametrize("bug", [None, "wrong", "fault"])
def test_with_the_harness_as_device(
    example: ModuleType,
    bug: str | None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    bugs = {
        None: ("", ""),
        "wrong": ("simd_sum(", "simd_max("),
        "fault": ("step < n_steps", "step < n_steps + 999u"),
    }
    monkeypatch.setattr(mx.metal, "is_available", lambda: True)
    harness = Harness(rewrite=lambda text: text.replace(*bugs[bug]) if bug else text)
    monkeypatch.setattr(mx.fast, "metal_kernel", harness.metal_kernel)
    status = example.main(["matvec Q8_0", "dequantize F16: 5"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and len(harness.launches) == 2
    by_name = {line[7:].split(":")[0]: line for line in lines[:2]}
    assert by_name["dequantize F16"].startswith("ok")
    if bug is None:
        assert status == 0 and lines[1].startswith("ok") and lines[2] == "all cases are right"
    else:
        assert status == 1 and lines[2] == "1 cases failed"
        assert by_name["matvec Q8_0"].startswith("FAILED")
    if bug == "fault":
        assert "KernelFault" in by_name["matvec Q8_0"]
