"""Products with packed weights, against float64 products of the values the gguf package decodes.

Tolerances. Up to 16 positions are rounded: an activation becomes d * q with d = largest magnitude
of its 32 / 127, rounded up where 256 share a unit. So it is off by at most d / 2, and a product by
at most the sum of |w| d / 2: that bound has no slack for a wrong integer or scale. Where
activations are integers with a 127 in each group, d is 1 and nothing is rounded; what is left are
float32 sums, a few units of 2^-24 of the largest terms. More positions are not rounded;
test_native_float_tile.py holds them to that.
"""

import numpy as np
import pytest

from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.cpu import native
from mlx_kernels.errors import DeviceError, TensorError
from tests.mlx_kernels.packed_samples import FACTORS, dense, full_packed, random_packed

pytestmark = pytest.mark.skipif(
    not native.is_available(), reason="needs the compiled CPU kernels (a C compiler at install)"
)

ALL_TYPES = sorted(native.TYPES)
FLOAT_SUM = 4e-6  # float32 sums of up to 1024 terms of both signs, relative to the sum of sizes


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


def type_name(type_id: int) -> str:
    return BLOCK[type_id].name


def rounding_bound(x: np.ndarray, weight: np.ndarray, type_id: int) -> np.ndarray:
    """Largest possible error [T, N]; see the top of this file."""
    sizes = np.abs(x) @ np.full_like(weight, np.abs(weight).max()).T
    bound = FLOAT_SUM * sizes
    if type_id in FACTORS:
        tops = np.abs(x).reshape(len(x), -1, 32).max(axis=2)
        if x.shape[1] % 256 == 0:  # scales are multiples of 1/255 of the largest of 256
            tops += np.repeat(tops.reshape(len(x), -1, 8).max(axis=2) / 255, 8, axis=1)
        half_steps = np.repeat(tops / 254, 32, axis=1)
        bound += half_steps @ np.abs(weight).T
    return bound


@pytest.mark.parametrize("n_positions", [1, 2, 7, 33, 512])
@pytest.mark.parametrize("type_id", ALL_TYPES, ids=type_name)
def test_product_stays_within_the_rounding_of_activations(type_id, n_positions, path, rng):
    # 37 rows: two tiles and a rest
    matrix = random_packed(type_id, 37, 512, rng)
    weight = dense(matrix)
    x = rng.standard_normal((n_positions, 512)).astype(np.float32)
    x[:, ::97] *= 20  # outliers, as real activations have
    result = native.linear(x, native.StackedWeight([matrix]))
    error = np.abs(result - x.astype(np.float64) @ weight.T)
    assert (error <= rounding_bound(x, weight, type_id)).all()


@pytest.mark.parametrize("type_id", [12, 13, 14], ids=type_name)
@pytest.mark.parametrize("sign", [1, -1])
def test_integer_sums_hold_the_largest_weights_and_activations(type_id, sign, path):
    # every integer, scale and activation at its limit: the 32-bit sums come within 3 % of 2^31
    block = np.full(BLOCK[type_id].n_bytes, 255, np.uint8)
    if type_id == 14:
        block[192:208] = 128  # scales of -128
        block[208:] = 0, 4  # d, the smallest normal half
    else:
        block[:4] = 0, 4, 0, 0  # d; no mins
    matrix = PackedMatrix(type_id, np.tile(block, 18), (9, 512))
    x = np.full((1, 512), 3 * sign, np.float32)
    result = native.linear(x, native.StackedWeight([matrix]))
    np.testing.assert_allclose(result, x @ dense(matrix).T, rtol=1e-5)


@pytest.mark.parametrize("quiet_scale", [1e-6, 1e-2, 0.3])
def test_quiet_groups_beside_a_loud_one_lose_little(quiet_scale, path, rng):
    matrix = random_packed(12, 37, 512, rng)
    weight = dense(matrix)
    x = rng.standard_normal((1, 512)).astype(np.float32) * np.float32(quiet_scale)
    x[0, 40] = 100
    error = np.abs(
        native.linear(x, native.StackedWeight([matrix])) - x.astype(np.float64) @ weight.T
    )
    assert (error <= rounding_bound(x, weight, 12)).all()


@pytest.mark.parametrize("method", ["rows", "tiles", "floats"])
@pytest.mark.parametrize("n_columns", [256, 1280, 2048])
@pytest.mark.parametrize("type_id", ALL_TYPES, ids=type_name)
def test_product_of_integer_activations_is_exact(type_id, n_columns, method, path, rng):
    matrix = random_packed(type_id, 19, n_columns, rng)
    weight = dense(matrix)
    x = rng.integers(-127, 128, (6, n_columns)).astype(np.float32)
    x[:, ::32] = 127
    result = native.linear(x, native.StackedWeight([matrix]), debug_method=method)
    sizes = np.abs(x) @ np.full_like(weight, np.abs(weight).max()).T
    assert (np.abs(result - x @ weight.T) <= FLOAT_SUM * sizes).all()


@pytest.mark.parametrize("n_columns", [32, 96, 576, 1056])
@pytest.mark.parametrize("type_id", [2, 3, 6, 7, 8, 39], ids=type_name)
def test_small_blocks_need_no_multiple_of_256_columns(type_id, n_columns, path, rng):
    matrix = random_packed(type_id, 5, n_columns, rng)
    weight = dense(matrix)
    x = rng.standard_normal((3, n_columns)).astype(np.float32)
    for method in ("rows", "tiles", "floats"):
        result = native.linear(x, native.StackedWeight([matrix]), debug_method=method)
        error = np.abs(result - x.astype(np.float64) @ weight.T)
        assert (error <= rounding_bound(x, weight, type_id)).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("byte", [0xFF, 0x80, 0x7F])
@pytest.mark.parametrize("type_id", sorted(FACTORS.keys() & native.TYPES), ids=type_name)
def test_largest_integers_do_not_overflow(type_id, byte, sign, path):
    matrix = full_packed(type_id, 17, 512, byte)
    weight = dense(matrix)
    x = np.full((5, 512), 127 * sign, np.float32)
    for method in ("rows", "tiles", "floats"):
        result = native.linear(x, native.StackedWeight([matrix]), debug_method=method)
        # terms of one sign add up to 2^17 roundings of 2^-24 at most; an overflow is off by more
        np.testing.assert_allclose(result, x @ weight.T, rtol=2e-5, atol=0.5)


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_threads_do_not_change_the_result(n_threads, rng):
    weight = native.StackedWeight([random_packed(12, 1000, 256, rng)])
    x = rng.standard_normal((9, 256)).astype(np.float32)
    one_row = [native.linear(x[i : i + 1], weight) for i in range(9)]
    tiles = native.linear(x, weight)
    native.set_threads(n_threads)
    for i in range(9):
        np.testing.assert_array_equal(native.linear(x[i : i + 1], weight), one_row[i])
    for _ in range(50):
        np.testing.assert_array_equal(native.linear(x, weight), tiles)
    native.set_threads(2)


def test_more_positions_than_one_pass_holds(path, rng):
    weight = native.StackedWeight([random_packed(3, 20, 64, rng)])
    x = rng.standard_normal((1100, 64)).astype(np.float32)
    whole = native.linear(x, weight)
    pieces = [native.linear(x[i : i + 100], weight) for i in range(0, 1100, 100)]
    np.testing.assert_array_equal(whole, np.concatenate(pieces))


def test_stacked_matrices_of_different_types_are_one_product(path, rng):
    parts = [random_packed(t, n, 256, rng) for t, n in ((12, 21), (14, 5), (8, 16), (1, 3))]
    stacked = native.StackedWeight(parts)
    assert (stacked.n_in, stacked.n_out, stacked.rows_of) == (256, 45, (21, 5, 16, 3))
    for n_positions in (1, 6):
        x = rng.standard_normal((n_positions, 256)).astype(np.float32)
        alone = [native.linear(x, native.StackedWeight([part])) for part in parts]
        np.testing.assert_array_equal(native.linear(x, stacked), np.concatenate(alone, axis=1))


@pytest.mark.parametrize("n_positions", [1, 10])
def test_bias_norm_and_residual_are_applied(n_positions, path, rng):
    matrix = random_packed(12, 40, 256, rng)
    x = (rng.standard_normal((n_positions, 256)) * 30).astype(np.float32)
    norm, bias = rng.standard_normal(256).astype(np.float32), np.arange(40, dtype=np.float32)
    residual = rng.standard_normal((n_positions, 40)).astype(np.float32)
    weight = native.StackedWeight([matrix])
    result = native.linear(x, weight, norm=norm, eps=0.5, bias=bias, residual=residual)
    wide = x.astype(np.float64)
    normed = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 0.5) * norm
    error = np.abs(result - (normed @ dense(matrix).T + bias + residual))
    assert (error <= rounding_bound(normed, dense(matrix), 12) + 1e-5).all()


@pytest.mark.parametrize("n_positions", [1, 2, 20])
def test_gated_product_is_silu_of_gate_times_up(n_positions, path, rng):
    gate, up = random_packed(12, 35, 256, rng), random_packed(14, 35, 256, rng)
    x = rng.standard_normal((n_positions, 256)).astype(np.float32)
    norm = np.full(256, 2, np.float32)
    result = native.gated_linear(x, native.StackedWeight([gate, up]), norm=norm, eps=1e-6)
    both = native.linear(x, native.StackedWeight([gate, up]), norm=norm, eps=1e-6)
    gates, ups = both[:, :35].astype(np.float64), both[:, 35:]
    np.testing.assert_allclose(result, gates / (1 + np.exp(-gates)) * ups, rtol=1e-5, atol=1e-30)


def test_activations_need_not_be_contiguous(rng):
    weight = native.StackedWeight([random_packed(3, 8, 64, rng)])
    wide = rng.standard_normal((128, 12)).astype(np.float32)
    for x in (wide[:64].T, wide.T[:, ::2], wide.T[::-2, 64:], np.asarray(wide.T)[3:4, 1:65]):
        expected = native.linear(np.ascontiguousarray(x), weight)
        np.testing.assert_array_equal(native.linear(x, weight), expected)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("type_id", [0, 12])
@pytest.mark.parametrize("n_positions", [1, 40])
def test_activations_that_are_not_finite_raise(bad, type_id, n_positions, path, rng):
    weight = native.StackedWeight([random_packed(type_id, 8, 256, rng)])
    x = rng.standard_normal((n_positions, 256)).astype(np.float32)
    x[-1, 200] = bad
    for norm in (None, np.ones(256, np.float32)):
        with pytest.raises(TensorError, match="NaN or infinity"):
            native.linear(x, weight, norm=norm)


def test_zero_and_tiny_activations_give_the_bias(path, rng):
    weight = native.StackedWeight([random_packed(13, 8, 256, rng)])
    bias = np.arange(8, dtype=np.float32)
    for size in (0.0, 1e-45, 1e-38):
        x = np.full((2, 256), size, np.float32)
        np.testing.assert_array_equal(native.linear(x, weight, bias=bias), [bias, bias])


def test_no_positions_and_no_rows_give_empty_arrays(rng):
    weight = native.StackedWeight([random_packed(12, 8, 256, rng)])
    assert native.linear(np.empty((0, 256), np.float32), weight).shape == (0, 8)
    nothing = native.StackedWeight([PackedMatrix(12, np.empty(0, np.uint8), (0, 256))])
    assert native.linear(np.zeros((3, 256), np.float32), nothing).shape == (3, 0)


def test_shapes_and_types_are_checked_before_the_call(rng):
    matrix = random_packed(12, 8, 256, rng)
    weight = native.StackedWeight([matrix])
    x = np.zeros((2, 256), np.float32)
    wrong = [
        ({"x": x[0]}, "activations"),
        ({"x": x[:, :128]}, "activations"),
        ({"x": x.astype(np.float64)}, "activations"),
        ({"x": x, "bias": np.zeros(7, np.float32)}, "bias"),
        ({"x": x, "norm": np.zeros(256)}, "norm"),
        ({"x": x, "residual": np.zeros((1, 8), np.float32)}, "residual"),
    ]
    for arguments, message in wrong:
        with pytest.raises(TensorError, match=message):
            native.linear(arguments.pop("x"), weight, **arguments)
    with pytest.raises(TensorError, match="two equal"):
        native.gated_linear(x, weight)


def test_matrices_are_checked_before_use(rng):
    good = random_packed(12, 8, 256, rng)
    bad = [
        (PackedMatrix(17, good.raw, (8, 256)), "IQ2_XS"),
        (PackedMatrix(12, good.raw[:-1], (8, 256)), "expected 1152"),
        (PackedMatrix(12, good.raw, (8, 128)), "columns"),
        (PackedMatrix(12, good.raw.view(np.int8), (8, 256)), "uint8"),
        (PackedMatrix(12, np.repeat(good.raw, 2)[::2], (8, 256)), "contiguous"),
    ]
    for matrix, message in bad:
        with pytest.raises(TensorError, match=message):
            native.StackedWeight([matrix])
    with pytest.raises(TensorError, match="columns"):
        native.StackedWeight([good, random_packed(12, 8, 512, rng)])
    with pytest.raises(TensorError, match="expected 1 to"):
        native.StackedWeight([])


def test_unknown_path_and_thread_count_raise():
    with pytest.raises(DeviceError, match="no code path"):
        native.debug_set_path("quantum")
    with pytest.raises(TensorError, match="threads"):
        native.set_threads(0)
