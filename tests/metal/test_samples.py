"""The harness runs four kernels of our own, in each build and order, and they equal NumPy."""

import numpy as np
import pytest

from tests.metal import compiler
from tests.metal.launch import MetalKernel
from tests.metal.sample_kernels import (
    HISTOGRAM,
    MATMUL,
    Q8_0_MATVEC,
    RMS_NORM,
    dequantize_q8_0,
    quantize_q8_0,
)

ORDERS = ("ascending", "descending", "random")


@pytest.fixture(params=compiler.BUILDS)
def build(request: pytest.FixtureRequest) -> str:
    """Each build whose compiler is there."""
    try:
        compiler.compiler(request.param)
    except compiler.MissingCompiler as missing:
        pytest.skip(str(missing))
    return request.param


def in_all_orders(kernel: MetalKernel, **launch: object) -> list[np.ndarray]:
    """The outputs, which must have the same bits in each order of lanes and groups."""
    results = [kernel(order=order, **launch) for order in ORDERS]
    for other in results[1:]:
        for first, second in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(first.view(np.uint8), second.view(np.uint8))
    return results[0]


@pytest.mark.parametrize("n_rows", [1, 7, 16])
def test_q8_0_matvec(build: str, n_rows: int) -> None:
    random = np.random.default_rng(1)
    raw = quantize_q8_0(random.standard_normal((n_rows, 320)))
    x = random.standard_normal(320).astype(np.float32)
    kernel = MetalKernel("q8_0", ["w", "x", "sizes"], ["y"], Q8_0_MATVEC, build=build)
    (y,) = in_all_orders(
        kernel,
        inputs=[raw, x, np.array([n_rows, 320], np.int32)],
        grid=(128 * ((n_rows + 3) // 4), 1, 1),
        threadgroup=(128, 1, 1),
        output_shapes=[(n_rows,)],
        output_dtypes=[np.float32],
    )
    weights = dequantize_q8_0(raw)
    # Sums of 320 float32 products in another order: a few units in the last place of the sum of
    # magnitudes.
    bound = 1e-6 * (np.abs(weights) @ np.abs(x).astype(np.float64))
    assert (np.abs(y - weights @ x.astype(np.float64)) <= bound).all()
    if build == "checked":
        traffic = kernel.last_report.traffic
        assert traffic["w"].fetched == raw.nbytes
        # Four lanes of a block each read its scale.
        assert traffic["w"].read == raw.nbytes + 3 * 2 * raw.nbytes // 34
        assert traffic["y"] == type(traffic["y"])(0, 0, 4 * n_rows, 0)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_rms_norm(build: str, dtype: str) -> None:
    from tests.metal.launch import bfloat16_to_float, float_to_bfloat16

    random = np.random.default_rng(2)
    x = random.standard_normal((3, 200)).astype(np.float32)
    weight = random.standard_normal(200).astype(np.float32)
    stored = float_to_bfloat16(x) if dtype == "bfloat16" else x.astype(dtype)
    exact = bfloat16_to_float(stored) if dtype == "bfloat16" else stored
    kernel = MetalKernel(
        "rms",
        ["x", "weight", "eps"],
        ["y"],
        RMS_NORM,
        build=build,
        bfloat16_inputs=["x"] if dtype == "bfloat16" else [],
    )
    (y,) = in_all_orders(
        kernel,
        inputs=[stored, weight, np.array([1e-5], np.float32)],
        template=[("T", dtype), ("N", 200)],
        grid=(3 * 64, 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[(3, 200)],
        output_dtypes=[dtype],
    )
    if dtype == "bfloat16":
        y = bfloat16_to_float(y)
    exact = exact.astype(np.float64)
    wanted = exact / np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-5) * weight
    half_step = {"float32": 2**-24, "float16": 2**-11, "bfloat16": 2**-8}[dtype]
    np.testing.assert_allclose(y, wanted, rtol=half_step * 1.01 + 1e-6, atol=1e-7)


def test_tiled_matmul_with_simdgroup_matrices(build: str) -> None:
    random = np.random.default_rng(3)
    a = random.standard_normal((64, 96)).astype(np.float16)
    b = random.standard_normal((96, 32)).astype(np.float16)
    kernel = MetalKernel("matmul", ["a", "b", "sizes"], ["y"], MATMUL, build=build)
    (y,) = in_all_orders(
        kernel,
        inputs=[a, b, np.array([64, 32, 96], np.int32)],
        grid=(128, 2, 1),
        threadgroup=(128, 1, 1),
        output_shapes=[(64, 32)],
        output_dtypes=[np.float32],
    )
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(y, wanted, atol=1e-6 * 96)  # products are exact, sums float32
    assert kernel.last_report.threadgroup_bytes == 2 * 32 * 40 * 2


def test_histogram_with_atomics(build: str) -> None:
    values = np.random.default_rng(4).integers(0, 16, 300).astype(np.uint8)
    kernel = MetalKernel(
        "histogram", ["values", "sizes"], ["counts"], HISTOGRAM, build=build, atomic_outputs=True
    )
    (counts,) = in_all_orders(
        kernel,
        inputs=[values, np.array([300], np.int32)],
        grid=(320, 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[(16,)],
        output_dtypes=[np.uint32],
        init_value=0,
    )
    np.testing.assert_array_equal(counts, np.bincount(values, minlength=16))
