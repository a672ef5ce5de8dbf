"""A lazy MLX graph calls kernels through the harness as if by ``mx.fast.metal_kernel``."""

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from tests.metal.launch import KernelFault  # noqa: E402
from tests.metal.mlx_kernel import Harness  # noqa: E402
from tests.metal.sample_kernels import RMS_NORM  # noqa: E402

SILU = """
uint c = thread_position_in_grid.x;
uint r = thread_position_in_grid.y;
if (c < uint(N)) {
  float v = float(x[r * uint(N) + c]);
  y[r * uint(N) + c] = T(DOUBLE ? 2.0f * v / (1.0f + exp(-v)) : v / (1.0f + exp(-v)));
}
"""

BY_STRIDES = """
uint c = thread_position_in_grid.x;
uint r = thread_position_in_grid.y;
y[r * uint(x_shape[1]) + c] = x[int64_t(r) * x_strides[0] + int64_t(c) * x_strides[1]];
"""


def rms_norm(x: "mx.array", weight: "mx.array") -> "mx.array":
    """A kernel of one threadgroup a row, made anew in each call, as a module would make it once."""
    kernel = mx.fast.metal_kernel(
        name="rms", input_names=["x", "weight", "eps"], output_names=["y"], source=RMS_NORM
    )
    (y,) = kernel(
        inputs=[x, weight, mx.array([1e-5])],
        template=[("T", x.dtype), ("N", x.shape[1])],
        grid=(64 * x.shape[0], 1, 1),
        threadgroup=(64, 1, 1),
        output_shapes=[x.shape],
        output_dtypes=[x.dtype],
        stream=mx.cpu,
    )
    return y


def silu(x: "mx.array", double: bool) -> "mx.array":
    kernel = mx.fast.metal_kernel("silu", ["x"], ["y"], SILU)
    rows, columns = x.shape
    (y,) = kernel(
        inputs=[x],
        template=[("T", x.dtype), ("N", columns), ("DOUBLE", double)],
        grid=((columns + 31) // 32 * 32, rows, 1),
        threadgroup=(32, 1, 1),
        output_shapes=[(rows, columns)],
        output_dtypes=[x.dtype],
    )
    return y


@pytest.mark.parametrize("build", ["fast", "checked"])
@pytest.mark.parametrize("dtype", [mx.float32, mx.float16, mx.bfloat16], ids=str)
def test_graph_of_two_kernels(
    build: str, dtype: "mx.Dtype", monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lazy operations before, between and after; inputs transposed, sliced and broadcast."""
    harness = Harness(build)
    monkeypatch.setattr(mx.fast, "metal_kernel", harness.metal_kernel)
    random = np.random.default_rng(7)
    x = mx.array(random.standard_normal((80, 6)).astype(np.float32)).astype(dtype)
    weight = mx.array(random.standard_normal(1).astype(np.float32))

    def network(norm: object, activation: object) -> "mx.array":
        first = (x + 0.5).T[::2]  # [3, 80], strides (2, 6), not evaluated
        normed = norm(first, mx.broadcast_to(weight, (80,)))
        # A view of a kernel's own output, columns backwards.
        return activation(normed[:, ::-1] * 1.5, True).sum(axis=0) - activation(normed, False)[1]

    ours = network(rms_norm, silu)
    plain = network(
        lambda a, w: mx.fast.rms_norm(a.astype(mx.float32), w, 1e-5).astype(dtype),
        lambda a, double: (
            (2 if double else 1) * a.astype(mx.float32) * mx.sigmoid(a.astype(mx.float32))
        ).astype(dtype),
    )
    assert ours.dtype == dtype and ours.shape == (80,)
    # Each of some ten operations rounds values of size up to four to the dtype.
    step = {mx.float32: 2**-23, mx.float16: 2**-10, mx.bfloat16: 2**-7}[dtype]
    difference = mx.abs(ours.astype(mx.float32) - plain.astype(mx.float32)).max().item()
    assert difference <= 20 * step
    assert [launch.kernel.name for launch in harness.launches] == ["rms", "silu", "silu"]
    if build == "checked":
        first = harness.launches[0]
        assert first.report.traffic["y"].unwritten == 0
        assert first.report.traffic["y"].written == 3 * 80 * dtype.size


@pytest.mark.parametrize("build", ["fast", "checked"])
def test_strided_inputs_keep_their_strides(build: str) -> None:
    """With ensure_row_contiguous=False a kernel sees an array as it lies in memory."""
    kernel = Harness(build).metal_kernel(
        "by_strides", ["x"], ["y"], BY_STRIDES, ensure_row_contiguous=False
    )
    whole = mx.arange(60, dtype=mx.int32).reshape(6, 10)
    for x in (whole, whole.T, whole[::2, 1::3], mx.broadcast_to(whole[:1], (6, 10)), whole[2:]):
        rows, columns = x.shape
        (y,) = kernel(
            inputs=[x],
            grid=(columns, rows, 1),
            threadgroup=(columns, 1, 1),
            output_shapes=[x.shape],
            output_dtypes=[x.dtype],
        )
        assert mx.array_equal(y, x)
    with pytest.raises(ValueError, match="negative stride"):
        kernel(
            inputs=[whole[::-1]],
            grid=(10, 6, 1),
            threadgroup=(10, 1, 1),
            output_shapes=[(6, 10)],
            output_dtypes=[mx.int32],
        )


def test_scalars_and_several_outputs_of_different_types() -> None:
    source = """
    uint i = thread_position_in_grid.x;
    a[i] = x[i] * factor;
    b[i] = int8_t(flag ? 1 : 0);
    """
    kernel = Harness("checked").metal_kernel("two", ["x", "factor", "flag"], ["a", "b"], source)
    a, b = kernel(
        inputs=[mx.arange(40, dtype=mx.float32), 2.5, True],
        grid=(40, 1, 1),
        threadgroup=(40, 1, 1),
        output_shapes=[(40,), (5, 8)],
        output_dtypes=[mx.float32, mx.int8],
    )
    assert mx.array_equal(a, mx.arange(40) * 2.5)
    assert b.dtype == mx.int8 and mx.array_equal(b, mx.ones((5, 8), mx.int8))


def test_fault_names_kernel_build_and_place() -> None:
    kernel = Harness("checked").metal_kernel(
        "past_the_end", ["x"], ["y"], "y[thread_position_in_grid.x] = x[thread_index_in_simdgroup];"
    )
    with pytest.raises(KernelFault, match=r"past_the_end \(checked\): out of bounds.*body.metal:1"):
        kernel(
            inputs=[mx.zeros(31)],
            grid=(32, 1, 1),
            threadgroup=(32, 1, 1),
            output_shapes=[(32,)],
            output_dtypes=[mx.float32],
        )


def test_text_that_mlx_breaks_is_refused() -> None:
    """Two outputs, a shape and no attribute: MLX closes the head after the first output."""
    kernel = Harness().metal_kernel("broken", ["x"], ["a", "b"], "a[0] = b[0] = x_shape[0];")
    with pytest.raises(ValueError, match="names no attribute"):
        kernel(
            inputs=[mx.zeros(9)],
            grid=(1, 1, 1),
            threadgroup=(1, 1, 1),
            output_shapes=[(1,), (1,)],
            output_dtypes=[mx.int32, mx.int32],
        )
