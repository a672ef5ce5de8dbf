"""Experts by the compiled kernels, against float64 products of the values the gguf package decodes.

Activations are integers with a 127 in every group of 32 where a product is asked to be exact, so
that rounding changes nothing in gate and up; the hidden values are rounded once before down, each
by at most 1/254 of the largest of its 32.
"""

import numpy as np
import pytest

from mlx_kernels.blocks import BLOCK
from mlx_kernels.cpu import native
from mlx_kernels.cpu.moe import experts, moe
from mlx_kernels.errors import TensorError
from tests.mlx_kernels.packed_samples import dense, random_packed

pytestmark = pytest.mark.skipif(
    not native.is_available(), reason="needs the compiled CPU kernels (a C compiler at install)"
)

E, C, F, K = 5, 256, 512, 3
PAIRS = [(8, 8), (12, 12), (16, 10), (39, 39), (12, 14), (1, 0)]


def pair_name(pair: tuple[int, int]) -> str:
    return f"{BLOCK[pair[0]].name}-{BLOCK[pair[1]].name}"


def sample(pair, rng):
    gate, up = (random_packed(pair[0], E * F, C, rng) for _ in range(2))
    return gate, up, random_packed(pair[1], E * C, F, rng)


def expected(x, parts, ids, weights, clamp):
    """The sum, and a bound of what rounding the hidden values may change."""
    gate, up = (dense(part).reshape(E, F, C) for part in parts[:2])
    down = dense(parts[2]).reshape(E, C, F)
    out, bound = np.zeros(x.shape), np.zeros(x.shape)
    for t, k in np.ndindex(ids.shape):
        g, u = gate[ids[t, k]] @ x[t], up[ids[t, k]] @ x[t]
        if clamp is not None:
            g, u = np.minimum(g, clamp), np.clip(u, -clamp, clamp)
        with np.errstate(over="ignore"):
            hidden = weights[t, k] * g / (1 + np.exp(-g)) * u
        out[t] += down[ids[t, k]] @ hidden
        tops = np.abs(hidden).reshape(-1, 32).max(axis=1)
        half_step = np.repeat((tops + tops.max() / 255) / 254, 32)
        # 1e-4: gate and up are float32 sums, and the sigmoid multiplies their errors
        bound[t] += np.abs(down[ids[t, k]]) @ (half_step + 1e-4 * np.abs(hidden).max())
    return out, bound


@pytest.mark.parametrize("clamp", [None, 7.0])
@pytest.mark.parametrize("n_positions", [1, 2, 40])
@pytest.mark.parametrize("pair", PAIRS, ids=pair_name)
def test_experts_equal_their_float64_sum(pair, n_positions, clamp, path):
    rng = np.random.default_rng(21)
    parts = sample(pair, rng)
    x = rng.integers(-127, 128, (n_positions, C)).astype(np.float32)
    x[:, ::32] = 127
    ids = rng.integers(0, E, (n_positions, K)).astype(np.int32)
    ids[0, 1] = ids[0, 0]  # an expert may be named twice
    weights = rng.uniform(0.1, 1, (n_positions, K)).astype(np.float32)
    handle = experts(*parts, E)
    assert handle.is_native
    result = moe(x, handle, ids, weights, clamp)
    right, bound = expected(x.astype(float), parts, ids, weights, clamp)
    assert (np.abs(result - right) <= bound + 1e-6).all()


def test_activations_that_are_not_finite_name_the_tensor():
    rng = np.random.default_rng(22)
    handle = experts(*sample((12, 12), rng), E)
    x = np.full((1, C), np.nan, np.float32)
    ids, weights = np.zeros((1, K), np.int32), np.ones((1, K), np.float32)
    with pytest.raises(TensorError, match="gate of the experts hold NaN"):
        moe(x, handle, ids, weights)


def test_wrong_ids_and_shapes_raise():
    rng = np.random.default_rng(23)
    gate, up, down = sample((12, 12), rng)
    handle = experts(gate, up, down, E)
    x, weights = np.ones((2, C), np.float32), np.ones((2, K), np.float32)
    for ids, message in (
        (np.full((2, K), E, np.int32), "0 to 4"),
        (np.full((2, K), -1, np.int32), "0 to 4"),
        (np.zeros((1, K), np.int32), "expert ids"),
        (np.zeros((2, K), np.int64), "int32"),
    ):
        with pytest.raises(TensorError, match=message):
            moe(x, handle, ids, weights)
    with pytest.raises(TensorError, match="shape"):
        experts(gate, down, up, E)
