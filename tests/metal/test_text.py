"""The generated Metal text is MLX's own, and threadgroup arrays move into the arena."""

import ctypes
import os
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tests.metal import text
from tests.metal.launch import MetalKernel
from tests.metal.sample_kernels import HISTOGRAM, MATMUL, Q8_0_MATVEC, RMS_NORM

mx = pytest.importorskip("mlx.core", reason="needs MLX")


def text_of_mlx(kernel: object, inputs: list, **launch: object) -> str:
    """The text that MLX prints while a function with this call is exported; nothing runs."""

    def call(*arrays: object) -> object:
        return kernel(inputs=list(arrays), verbose=True, stream=mx.gpu, **launch)

    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as captured:
        kept = os.dup(1)
        ctypes.CDLL(None).fflush(None)
        os.dup2(captured.fileno(), 1)
        try:
            mx.export_function(str(Path(folder) / "f.mlxfn"), call, *inputs)
        finally:
            ctypes.CDLL(None).fflush(None)
            os.dup2(kept, 1)
            os.close(kept)
        captured.seek(0)
        printed = captured.read().decode()
    return re.search(r"```\n(.*)\n```", printed, re.DOTALL)[1]


ODD = """
uint i = thread_position_in_grid.x;
if (i < uint(x_shape[0]) && x_ndim == 2 && x_strides[1] == 1) { // dispatch_threads_per_threadgroup
  y[i] = T(x[i]) + T(small[0]) + T(zero);
}
"""
MANY = """
uint i = thread_index_in_threadgroup + simdgroup_index_in_threadgroup + threads_per_simdgroup;
a[i] = x[i]; b[i] = int8_t(x_ndim);
"""
CASES = {
    "q8_0": (
        ("q8_0", ["w", "x", "sizes"], ["y"], Q8_0_MATVEC),
        [np.zeros((4, 340), np.uint8), np.zeros(320, np.float32), np.zeros(2, np.int32)],
        dict(output_shapes=[(4,)], output_dtypes=["float32"]),
    ),
    "rms": (
        ("rms", ["x", "weight", "eps"], ["y"], RMS_NORM, "// a header\n"),
        [np.zeros((3, 64), np.float16), np.zeros(64, np.float32), np.zeros(1, np.float32)],
        dict(
            template=[("T", "float16"), ("N", 64)],
            output_shapes=[(3, 64)],
            output_dtypes=["float16"],
        ),
    ),
    "matmul": (
        ("matmul", ["a", "b", "sizes"], ["y"], MATMUL),
        [np.zeros((32, 32), np.float16), np.zeros((32, 32), np.float16), np.zeros(3, np.int32)],
        dict(output_shapes=[(32, 32)], output_dtypes=["float32"]),
    ),
    "atomics": (
        ("histogram", ["values", "sizes"], ["counts"], HISTOGRAM),
        [np.zeros(300, np.uint8), np.zeros(1, np.int32)],
        dict(output_shapes=[(16,)], output_dtypes=["uint32"], init_value=0),
    ),
    "odd": (
        ("odd", ["x", "small", "zero"], ["y"], ODD, "// header x_shape grid_size\n"),
        [np.zeros((9, 3), np.float32), np.zeros(7, np.int64), np.array(1, np.uint16)],
        dict(
            template=[("T", "float32"), ("N", -3), ("B", True)],
            output_shapes=[(9,)],
            output_dtypes=["float32"],
        ),
    ),
    "two outputs": (
        ("many", ["x"], ["a", "b"], MANY),
        [np.zeros(8, np.int32)],
        dict(output_shapes=[(64,), (64,)], output_dtypes=["int32", "int8"]),
    ),
    "empty input": (
        ("none", ["x"], ["y"], "y[thread_position_in_grid.x] = x_shape[0];"),
        [np.zeros((0, 5), np.float32)],
        dict(output_shapes=[(8,)], output_dtypes=["int32"]),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_text_is_what_mlx_generates(name: str) -> None:
    arguments, arrays, launch = CASES[name]
    atomic = name == "atomics"
    kernel = mx.fast.metal_kernel(*arguments, atomic_outputs=atomic)
    in_mlx = dict(launch)
    in_mlx["output_dtypes"] = [getattr(mx, d) for d in launch["output_dtypes"]]
    in_mlx["template"] = [
        (k, getattr(mx, v) if isinstance(v, str) else v) for k, v in launch.get("template", [])
    ]
    printed = text_of_mlx(
        kernel, [mx.array(a) for a in arrays], grid=(32, 1, 1), threadgroup=(32, 1, 1), **in_mlx
    )
    ours = MetalKernel(*arguments, atomic_outputs=atomic).kernel_text(
        arrays, launch["output_dtypes"], launch.get("template")
    )
    assert ours.metal().strip() == printed.strip()


def test_threadgroup_arrays_move_into_the_arena() -> None:
    placed = text.place_threadgroup_arrays(
        "threadgroup float tile[32 * 40];\nthreadgroup half m[4][8];\n"
        "threadgroup vec<T, 2> v[N];\n// of a threadgroup\n"
        "short s; /* threadgroup\nint i; */\nthreadgroup float* p = tile;\nthreadgroup_barrier(x);"
    )
    assert placed.splitlines() == [
        'auto& tile = *(float(*)[32 * 40])rt_threadgroup(0, sizeof(float[32 * 40]), 64, "tile");',
        'auto& m = *(half(*)[4][8])rt_threadgroup(1, sizeof(half[4][8]), 64, "m");',
        'auto& v = *(vec<T, 2>(*)[N])rt_threadgroup(2, sizeof(vec<T, 2>[N]), 64, "v");',
        "// of a threadgroup",
        "short s; /* threadgroup",
        "int i; */",
        "threadgroup float* p = tile;",
        "threadgroup_barrier(x);",
    ]


def test_unknown_dtype_is_refused() -> None:
    with pytest.raises(ValueError, match="complex64"):
        text.metal_type(np.complex64)
