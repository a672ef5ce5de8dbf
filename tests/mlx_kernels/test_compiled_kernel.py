"""CUDA programs kept on the disk: when they are compiled, and what is launched."""

import ctypes
import importlib.util
import os
import time
from pathlib import Path
from typing import Any

import pytest

if importlib.util.find_spec("mlx") is None:
    pytest.skip("needs mlx (pip install ds4-agent[cpu])", allow_module_level=True)

import mlx.core as mx

from mlx_kernels.errors import KernelError
from mlx_kernels.gpu import compiled_kernel, nvrtc
from mlx_kernels.gpu.compiled_kernel import CompiledKernel
from mlx_kernels.gpu.cubin_files import CubinFiles

HALF_YEAR_S = 180 * 24 * 60 * 60


class Gpu:
    """Stands in for the compiler and for the launch, which need NVIDIA's library and a GPU."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.launches: list[dict[str, Any]] = []

    def compile(self, text: str, name: str, architecture: str) -> bytes:
        self.texts.append(text)
        return f"{architecture} {name}".encode()

    def launch(self, **launch: Any) -> list[mx.array]:
        self.launches.append(launch)
        return [mx.zeros(shape) for shape in launch["output_shapes"]]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu()
    monkeypatch.setattr(nvrtc, "compile_text", gpu.compile)
    monkeypatch.setattr(nvrtc, "version", lambda: (13, 0))
    monkeypatch.setattr(compiled_kernel, "architecture_of_device", lambda: "sm_90a")
    monkeypatch.setattr(mx.fast, "precompiled_cuda_kernel", gpu.launch)
    return gpu


def kernel(folder: Path, source: str = "out[0] = x[N] + x_shape[1];") -> CompiledKernel:
    return CompiledKernel(
        name="sum",
        input_names=["x", "y"],
        output_names=["out"],
        source=source,
        header="// a header",
        shared_memory=512,
        files=CubinFiles(folder),
    )


def launch(kernel: CompiledKernel, n: int = 3, dtype: mx.Dtype = mx.float32) -> dict[str, Any]:
    return {
        "inputs": [mx.zeros((4, 7), dtype), mx.zeros(2, mx.uint8)],
        "template": [("N", n), ("IS_ODD", True)],
        "grid": (256, 2, 1),
        "threadgroup": (128, 1, 1),
        "output_shapes": [(5,)],
        "output_dtypes": [mx.float32],
    }


def test_a_text_has_pointers_then_the_sizes_that_the_body_reads(tmp_path: Path) -> None:
    text = kernel(tmp_path).text(
        (mx.float16, mx.uint8, mx.float32), [("N", 3), ("IS_ODD", True)], [2]
    )
    assert text.endswith(
        "// a header\n"
        'extern "C" __global__ void ds4_kernel(const __half* x, const uint8_t* y, float* out, '
        "int x_shape_0, int x_shape_1) {\n"
        "const int x_shape[] = {x_shape_0, x_shape_1};\n"
        "constexpr int N = 3;\n"
        "constexpr bool IS_ODD = 1;\n"
        "out[0] = x[N] + x_shape[1];\n"
        "}\n"
    )


def test_a_launch_hands_over_the_program_and_the_sizes(gpu: Gpu, tmp_path: Path) -> None:
    one = kernel(tmp_path)
    (result,) = one(**launch(one))
    assert result.shape == (5,)
    (seen,) = gpu.launches
    name = seen["name"]
    assert f" {name}(" in gpu.texts[0] and seen["compiled_source"] == f"sm_90a {name}".encode()
    assert seen["scalars"] == [4, 7] and seen["shared_memory"] == 512
    assert (seen["grid"], seen["threadgroup"]) == ((256, 2, 1), (128, 1, 1))


def test_a_program_is_compiled_once_for_all_processes(gpu: Gpu, tmp_path: Path) -> None:
    one = kernel(tmp_path)
    for _ in range(3):
        one(**launch(one))
    other = kernel(tmp_path)  # as another process would make it
    other(**launch(other))
    assert len(gpu.texts) == 1
    assert gpu.launches[0]["compiled_source"] == gpu.launches[-1]["compiled_source"]


def test_another_constant_dtype_text_or_gpu_is_another_program(
    gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = kernel(tmp_path)
    one(**launch(one))
    one(**launch(one, n=4))
    one(**launch(one, dtype=mx.float16))
    other = kernel(tmp_path, source="out[0] = x[N] - x_shape[1];")
    other(**launch(other))
    monkeypatch.setattr(compiled_kernel, "architecture_of_device", lambda: "sm_100a")
    moved = kernel(tmp_path)
    moved(**launch(moved))
    assert len(gpu.texts) == len({seen["name"] for seen in gpu.launches}) == 5


@pytest.mark.parametrize("damage", [lambda old: old[:-1], lambda old: old[:20], lambda old: b""])
def test_a_damaged_file_is_compiled_again(gpu: Gpu, tmp_path: Path, damage: Any) -> None:
    one = kernel(tmp_path)
    one(**launch(one))
    (file,) = tmp_path.glob("*.cubin")
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    other = kernel(tmp_path)
    other(**launch(other))
    assert len(gpu.texts) == 2 and file.read_bytes() == whole


def test_a_folder_that_takes_nothing_is_told_and_does_not_stop(
    gpu: Gpu, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("no folder")
    one = kernel(tmp_path / "file")
    one(**launch(one))
    assert gpu.launches and "cannot be kept" in caplog.text


def test_what_nobody_used_for_long_is_removed(tmp_path: Path) -> None:
    files = CubinFiles(tmp_path)
    files.write("old", b"1")
    files.write("used", b"2")
    long_ago = time.time() - HALF_YEAR_S
    for name in ("old", "used"):
        os.utime(tmp_path / f"{name}.cubin", (long_ago, long_ago))
    later = CubinFiles(tmp_path)
    assert later.read("used") == b"2"
    later.write("new", b"3")
    assert sorted(path.name for path in tmp_path.glob("*.*")) == ["new.cubin", "used.cubin"]


def test_nvrtc_compiles_and_says_what_it_refuses() -> None:
    try:
        ctypes.CDLL("libnvrtc.so.13")
    except OSError:
        pytest.skip("needs NVRTC (pip install ds4-agent[cuda])")
    assert nvrtc.compile_text('extern "C" __global__ void f(int* x) { *x = 1; }', "f", "sm_90a")
    with pytest.raises(KernelError, match="refuses f: .*no_such"):
        nvrtc.compile_text('extern "C" __global__ void f(int* x) { no_such(x); }', "f", "sm_90a")
