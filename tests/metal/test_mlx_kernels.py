"""The shim runs MLX's own kernels, which are proven on Apple hardware, with the right results."""

import numpy as np
import pytest

from tests.metal.launch import launch_text
from tests.metal.mlx_headers import HeaderMoved, mlx_text

GROUP = "uint3(p->threadgroup_position_in_grid[0], p->threadgroup_position_in_grid[1], 0u)"
LANE = "p->thread_index_in_threadgroup % 32u"
SIMDGROUP = "p->thread_index_in_threadgroup / 32u"


def run(text: str, inputs: dict, out: np.ndarray, grid: tuple, group: tuple, build: str):
    """The output of a launch; the buffers are the inputs in order, then the output."""
    buffers = [(name, "input", np.ascontiguousarray(array)) for name, array in inputs.items()]
    buffers.append(("out", "empty", out.nbytes))
    answer = launch_text(text, buffers, grid, group, build=build)
    assert answer["error"] is None
    if build == "checked":
        assert answer["traffic"]["out"][3] == 0  # every byte is written
    return np.frombuffer(answer["outputs"]["out"], out.dtype).reshape(out.shape)


def prepared(*arguments: object) -> str:
    try:
        return mlx_text(*arguments)
    except HeaderMoved as moved:
        pytest.skip(str(moved))


@pytest.fixture(params=["fast", "checked"])
def build(request: pytest.FixtureRequest) -> str:
    return request.param


def test_softmax(build: str) -> None:
    x = np.random.default_rng(1).standard_normal((3, 200)).astype(np.float16)
    call = (
        "softmax_single_row<half, float>((half*)buffers[0], (half*)buffers[2], *(int*)buffers[1], "
        f"p->threadgroup_position_in_grid[0], p->thread_index_in_threadgroup, {LANE}, {SIMDGROUP});"
    )
    text = prepared(["softmax.h"], {}, call)
    inputs = {"x": x, "axis_size": np.array([200], np.int32)}
    y = run(text, inputs, np.empty((3, 200), np.float16), (3 * 64, 1, 1), (64, 1, 1), build)
    weights = np.exp(x.astype(np.float64) - x.max(-1, keepdims=True).astype(np.float64))
    wanted = weights / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(y, wanted, rtol=2**-10, atol=2**-24)


def test_sdpa_vector(build: str) -> None:
    random = np.random.default_rng(2)
    n_heads, n_keys, width = 4, 77, 64
    q = random.standard_normal((n_heads, width)).astype(np.float32)
    k, v = random.standard_normal((2, n_heads // 2, n_keys, width)).astype(np.float32)
    size = "*(size_t*)buffers[%d]"
    none = "nullptr, nullptr, *(int*)buffers[3], *(int*)buffers[3], *(int*)buffers[3], nullptr"
    call = (
        "sdpa_vector<float, 64>((float*)buffers[0], (float*)buffers[1], (float*)buffers[2], "
        f"(float*)buffers[8], *(int*)buffers[3], *(int*)buffers[4], {size % 5}, {size % 6}, "
        f"{size % 5}, {size % 6}, *(float*)buffers[7], {none}, *(int*)buffers[3], {GROUP}, "
        f"uint3({n_heads}u, 1u, 1u), {SIMDGROUP}, {LANE});"
    )
    text = prepared(["sdpa_vector.h"], {}, call)
    inputs = {
        **{"q": q, "k": k, "v": v},
        "gqa": np.array([2], np.int32),
        "n": np.array([n_keys], np.int32),
        "head_stride": np.array([n_keys * width], np.uint64),
        "row_stride": np.array([width], np.uint64),
        "scale": np.array([width**-0.5], np.float32),
    }
    out = np.empty((n_heads, width), np.float32)
    y = run(text, inputs, out, (n_heads * 1024, 1, 1), (1024, 1, 1), build)
    q, k, v = (a.astype(np.float64) for a in (q, np.repeat(k, 2, 0), np.repeat(v, 2, 0)))
    scores = np.exp(np.einsum("hd,hkd->hk", q, k) * width**-0.5)
    wanted = np.einsum("hk,hkd->hd", scores / scores.sum(-1, keepdims=True), v)
    np.testing.assert_allclose(y, wanted, atol=2e-6)
