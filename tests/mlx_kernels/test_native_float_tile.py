"""The exact products of prompts: packed weights that are expanded to float32 tile by tile."""

import numpy as np
import pytest

from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.cpu import native
from tests.mlx_kernels.packed_samples import FACTORS, dense, random_packed

pytestmark = pytest.mark.skipif(
    not native.is_available(), reason="needs the compiled CPU kernels (a C compiler at install)"
)

ALL_TYPES = sorted(native.TYPES)
SMALL_BLOCKS = [2, 3, 6, 7, 8, 39]
# Every weight is one rounding of 2^-24, and runs of 256 products are summed one after the other,
# then up to 35 runs: some 10 units of 2^-24 of the sum of the sizes when roundings add at random.
RELATIVE = 1e-6


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def type_name(type_id: int) -> str:
    return BLOCK[type_id].name


def check(matrix: PackedMatrix, n_positions: int, rng: np.random.Generator) -> None:
    """Compare a product with the float64 one of the values that the gguf package decodes."""
    weight = dense(matrix)
    x = rng.standard_normal((n_positions, matrix.shape[1])).astype(np.float32)
    x[:, ::97] *= 20  # outliers, as real activations have
    result = native.linear(x, native.StackedWeight([matrix]))
    sizes = np.abs(x).astype(np.float64) @ np.abs(weight).T
    assert (np.abs(result - x.astype(np.float64) @ weight.T) <= RELATIVE * sizes + 1e-30).all()


@pytest.mark.parametrize("n_positions", [17, 18, 33, 128, 512])
@pytest.mark.parametrize("type_id", ALL_TYPES, ids=type_name)
def test_long_products_are_exact(type_id, n_positions, path, rng):
    check(random_packed(type_id, 37, 768, rng), n_positions, rng)  # two tiles and a rest


@pytest.mark.parametrize("n_columns", [32, 96, 576, 896])
@pytest.mark.parametrize("type_id", [0, 1, 30, *SMALL_BLOCKS], ids=type_name)
def test_last_slice_may_be_short(type_id, n_columns, path, rng):
    check(random_packed(type_id, 5, n_columns, rng), 19, rng)


@pytest.mark.parametrize("n_rows", [1, 8, 15, 16, 17])
def test_any_number_of_weight_rows(n_rows, path, rng):
    check(random_packed(14, n_rows, 512, rng), 20, rng)


def test_many_inputs(path, rng):
    check(random_packed(12, 20, 8960, rng), 23, rng)


@pytest.mark.parametrize("type_id", ALL_TYPES, ids=type_name)
def test_weights_come_back_bit_by_bit(type_id, path, rng):
    """Multiplying with ones and zeros shows each weight as the kernel sees it."""
    matrix = random_packed(type_id, 19, 256, rng)
    ones = np.eye(256, dtype=np.float32)
    shown = native.linear(ones, native.StackedWeight([matrix])).T
    np.testing.assert_array_equal(shown, matrix.rows(np.arange(19)))


@pytest.mark.parametrize("type_id", sorted(FACTORS.keys() & native.TYPES), ids=type_name)
def test_sixteen_positions_are_rounded_and_seventeen_are_not(type_id, rng):
    matrix = random_packed(type_id, 16, 256, rng)
    x = rng.standard_normal((17, 256)).astype(np.float32)
    weight = native.StackedWeight([matrix])
    sizes = np.abs(x).astype(np.float64) @ np.abs(dense(matrix)).T
    for n, is_exact in ((16, False), (17, True)):
        error = np.abs(native.linear(x[:n], weight) - x[:n].astype(np.float64) @ dense(matrix).T)
        assert (error <= RELATIVE * sizes[:n]).all() == is_exact


def test_result_of_a_position_does_not_depend_on_the_others(path, rng):
    """So a prompt that is read in chunks has the products of one that is read at once."""
    weight = native.StackedWeight([random_packed(12, 40, 512, rng)])
    x = rng.standard_normal((1100, 512)).astype(np.float32)  # more than two passes
    whole = native.linear(x, weight)
    for size in (17, 100, 516, 517):
        cuts = range(0, 1100 - size, size)
        pieces = [native.linear(x[at : at + size], weight) for at in cuts]
        np.testing.assert_array_equal(np.concatenate(pieces), whole[: size * len(cuts)])


@pytest.mark.parametrize("n_threads", [1, 2, 3])
def test_threads_do_not_change_an_exact_product(n_threads, rng):
    weight = native.StackedWeight([random_packed(6, 300, 320, rng)])
    x = rng.standard_normal((40, 320)).astype(np.float32)
    before = native.linear(x, weight)
    native.set_threads(n_threads)
    for _ in range(20):
        np.testing.assert_array_equal(native.linear(x, weight), before)
    native.set_threads(2)


def test_norm_bias_residual_and_gate_of_exact_products(path, rng):
    gate, up = random_packed(12, 35, 256, rng), random_packed(14, 35, 256, rng)
    x = (30 * rng.standard_normal((50, 256))).astype(np.float32)
    norm, bias = rng.standard_normal(256).astype(np.float32), np.arange(70, dtype=np.float32)
    residual = rng.standard_normal((50, 70)).astype(np.float32)
    both = native.StackedWeight([gate, up])
    wide = x.astype(np.float64)
    normed = wide / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 0.5) * norm
    product = normed @ np.concatenate([dense(gate), dense(up)]).T
    result = native.linear(x, both, norm=norm, eps=0.5, bias=bias, residual=residual)
    np.testing.assert_allclose(result, product + bias + residual, rtol=1e-5, atol=1e-4)
    gated = native.gated_linear(x, both, norm=norm, eps=0.5)
    expected = product[:, :35] / (1 + np.exp(-product[:, :35])) * product[:, 35:]
    # a gate is off by a few 1e-5, and up multiplies that by up to ten
    np.testing.assert_allclose(gated, expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("size", [1e-3, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("n_positions", [1, 20])
def test_gate_is_right_for_small_and_huge_values(n_positions, size, path):
    """Weights of one: gate and up are the input itself."""
    ones = PackedMatrix(0, np.eye(32, dtype=np.float32).view(np.uint8).reshape(-1), (32, 32))
    x = size * np.linspace(-1, 1, n_positions * 32, dtype=np.float32).reshape(-1, 32)
    result = native.gated_linear(x, native.StackedWeight([ones, ones]))
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        expected = wide / (1 + np.exp(-wide)) * wide
    np.testing.assert_allclose(result, expected, rtol=2e-6, atol=1e-25)


def test_all_octets_signs_and_scales_of_iq2_xxs(path):
    """A block of 256 values shows 32 octets: 8 rows show all; signs and scales go round."""
    raw = np.zeros((16, 66), np.uint8)
    raw[:, :2] = np.array([0.01], np.float16).view(np.uint8)
    number = np.arange(16 * 8, dtype=np.uint32).reshape(16, 8)
    octets = (4 * number[..., None] + np.arange(4, dtype=np.uint32)) % 256
    signs = sum(((4 * number + j) % 128) << np.uint32(7 * j) for j in range(4))
    words = signs | (number % 16) << np.uint32(28)
    groups = np.concatenate([octets.astype(np.uint8), words[..., None].view(np.uint8)], axis=2)
    raw[:, 2:] = groups.reshape(16, 64)
    matrix = PackedMatrix(16, raw.reshape(-1), (16, 256))
    shown = native.linear(np.eye(256, dtype=np.float32), native.StackedWeight([matrix])).T
    np.testing.assert_array_equal(shown, dense(matrix).astype(np.float32))


def test_all_codes_and_exponents_of_mxfp4(path):
    """Subnormal scales included; the largest ones would overflow float32."""
    exponents = np.arange(0, 248, dtype=np.uint8)
    raw = np.empty((248, 17), np.uint8)
    raw[:, 0] = exponents
    raw[:, 1:] = np.arange(16, dtype=np.uint8) * 16 + np.arange(16, dtype=np.uint8)[::-1]
    matrix = PackedMatrix(39, raw.reshape(-1), (248, 32))
    shown = native.linear(np.eye(32, dtype=np.float32), native.StackedWeight([matrix])).T
    np.testing.assert_array_equal(shown, dense(matrix).astype(np.float32))
