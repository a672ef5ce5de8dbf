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


QUANTIZED = [
    *("steel/utils.h", "steel/defines.h", "steel/utils/integral_constant.h"),
    *("steel/gemm/transforms.h", "steel/gemm/loader.h", "steel/gemm/mma.h"),
    *("quantized_utils.h", "quantized.h"),
]


def quantized(n_rows: int, n_columns: int, random: np.random.Generator) -> tuple:
    """MLX's 4-bit weights in groups of 64: words, scales, biases; the values; sizes of terms."""
    mx = pytest.importorskip("mlx.core", reason="needs MLX")
    weight = mx.array(random.standard_normal((n_rows, n_columns)).astype(np.float16))
    parts = [np.array(part) for part in mx.quantize(weight, group_size=64, bits=4)]
    nibbles = (parts[0][..., None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15).reshape(n_rows, -1)
    scales, biases = (np.repeat(part.astype(np.float64), 64, axis=1) for part in parts[1:])
    inputs = dict(zip(("w", "scales", "biases"), parts, strict=True))
    return inputs, scales * nibbles + biases, np.abs(scales * nibbles) + np.abs(biases)


@pytest.mark.parametrize("n_rows", [16, 8])
def test_quantized_matrix_times_vectors(build: str, n_rows: int) -> None:
    """qmv_fast: two simdgroups of four rows each, 512 columns at a time."""
    random = np.random.default_rng(3)
    inputs, values, terms = quantized(n_rows, 1024, random)
    x = random.standard_normal((3, 1024)).astype(np.float16)
    call = (
        "qmv_fast_impl<half, 64, 4>((uint32_t*)buffers[0], (half*)buffers[1], (half*)buffers[2], "
        f"(half*)buffers[3], (half*)buffers[6], *(int*)buffers[4], *(int*)buffers[5], {GROUP}, "
        f"{SIMDGROUP}, {LANE});"
    )
    text = prepared(QUANTIZED, {}, call)
    sizes = {"k": np.array([1024], np.int32), "n": np.array([n_rows], np.int32)}
    out = np.empty((3, n_rows), np.float16)
    y = run(text, {**inputs, "x": x, **sizes}, out, (3 * 64, n_rows // 8, 1), (64, 1, 1), build)
    wanted = x.astype(np.float64) @ values.T
    # Sums in float32 of terms of this size, one rounding to half.
    bound = 2**-11 * np.abs(wanted) + 4e-6 * (np.abs(x).astype(np.float64) @ terms.T)
    assert (np.abs(y - wanted) <= bound).all()


@pytest.mark.parametrize(("n_positions", "n_rows"), [(32, 32), (40, 64), (37, 43)])
def test_quantized_tiles_of_simdgroup_matrices(build: str, n_positions: int, n_rows: int) -> None:
    """qmm_t. It fills the fragments of matrices lane by lane, for the layout of Apple's GPUs:

    the product is only right where the shim spreads a matrix over the lanes in the same way.
    """
    random = np.random.default_rng(4)
    inputs, values, terms = quantized(n_rows, 128, random)
    x = random.standard_normal((n_positions, 128)).astype(np.float16)
    call = (
        "threadgroup half Xs[32 * 40];\n  threadgroup half Ws[32 * 40];\n"
        "  qmm_t_impl<half, 64, 4, false>((uint32_t*)buffers[0], (half*)buffers[1], "
        "(half*)buffers[2], (half*)buffers[3], (half*)buffers[7], Xs, Ws, *(int*)buffers[4], "
        f"*(int*)buffers[5], *(int*)buffers[6], *(int*)buffers[4], {GROUP}, "
        f"p->thread_index_in_threadgroup, {SIMDGROUP}, {LANE});"
    )
    text = prepared(QUANTIZED, {}, call)
    sizes = {"k": 128, "n": n_rows, "m": n_positions}
    inputs = inputs | {"x": x} | {name: np.array([n], np.int32) for name, n in sizes.items()}
    out = np.empty((n_positions, n_rows), np.float16)
    tiles = (-(-n_rows // 32), -(-n_positions // 32))
    y = run(text, inputs, out, (tiles[0] * 128, tiles[1], 1), (128, 1, 1), build)
    wanted = x.astype(np.float64) @ values.T
    # In a tile a weight is computed in half: its scaling, product and sum each round terms of this
    # size by 2^-11, in different directions.
    spread = np.sqrt(np.square(x.astype(np.float64)) @ np.square(terms).T)
    assert (np.abs(y - wanted) <= 2**-11 * (np.abs(wanted) + 5 * spread)).all()
