"""Products in TF32, modelled: numbers that it does not hold are cut off."""

import importlib.util

import numpy as np
import pytest

if importlib.util.find_spec("mlx") is None:
    pytest.skip("needs mlx (pip install ds4-agent[cpu])", allow_module_level=True)

import mlx.core as mx

from mlx_kernels.gpu import tf32


def test_rounding_is_to_the_nearest_of_eleven_bits() -> None:
    mx.set_default_device(mx.cpu)
    x = np.random.default_rng().standard_normal(4000).astype(np.float32)
    x = np.concatenate([x * 10.0 ** np.linspace(-30, 30, 4000), [0, np.inf, -np.inf, np.nan]])
    x = x.astype(np.float32)
    rounded = np.array(tf32.round_to_tf32(mx.array(x)))
    assert not (rounded.view(np.uint32)[:-1] & 0x1FFF).any()
    np.testing.assert_allclose(rounded[:-1], x[:-1], rtol=2**-11)
    assert np.isnan(rounded[-1])


@pytest.mark.parametrize("is_held", [True, False])
def test_split_products_are_almost_float32(is_held: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With numbers cut to 11 bits one product is 5e-4 off, the sum of two or three 1e-6."""
    mx.set_default_device(mx.cpu)
    random = np.random.default_rng()
    x = random.standard_normal((20, 700)).astype(np.float32)
    weight = random.standard_normal((30, 700)).astype(np.float32)
    if is_held:
        weight = weight.astype(np.float16)
    expected = x.astype(np.float64) @ weight.T.astype(np.float64)
    cut = [
        (a.view(np.uint32) & 0xFFFFE000).view(np.float32) for a in (x, weight.astype(np.float32))
    ]
    seen = []

    def product(self: mx.array, other: mx.array) -> mx.array:
        a, b = np.array(self), np.array(other)
        seen.append(all(not (m.view(np.uint32) & 0x1FFF).any() for m in (a, b.copy())))
        return mx.array(a @ b)

    found = np.array(tf32.split_product(mx.array(x), mx.array(weight)))
    size = np.linalg.norm(expected)
    assert np.linalg.norm(cut[0] @ cut[1].T - expected) > 1e-4 * size
    assert np.linalg.norm(found - expected) < 1e-6 * size
    monkeypatch.setattr(mx.array, "__matmul__", product)
    again = np.array(tf32.split_product(mx.array(x), mx.array(weight)))
    assert np.linalg.norm(again - expected) < 1e-6 * size
    assert seen == [True] * (1 if is_held else 2)  # no product saw a number that it would cut
