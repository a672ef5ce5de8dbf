"""The decode kernels' texts against float64 products of the gguf package's values."""

from typing import Any

import numpy as np
import pytest

from mlx_kernels.blocks import BLOCK
from tests.cuda.launch import needs_compiler
from tests.cuda.world import emulated_kernels, needs_mlx
from tests.mlx_kernels.packed_samples import dense, random_packed

pytestmark = [needs_compiler, needs_mlx]

FORMATS = (8, 10, 12, 13, 14, 16, 39)
# Activations have 24 bits of the largest of 32 and sums are float32: 2^-24 times the root of the
# number of sums (some hundred), with room.
PRECISE = 2e-6


def each_format(*fast: int) -> pytest.MarkDecorator:
    """Every format; those not named only in the slow run (compiling takes half a second each)."""
    marks = {type_id: () if type_id in fast else pytest.mark.slow for type_id in FORMATS}
    parameters = [pytest.param(i, marks=marks[i], id=BLOCK[i].name) for i in FORMATS]
    return pytest.mark.parametrize("type_id", parameters)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng()  # fresh blocks every time; a failure prints its figures


def relative_error(result: Any, expected: np.ndarray) -> float:
    """The worst row's: a wrong row does not hide behind the others."""
    result = np.array(result).reshape(-1, expected.shape[-1])
    rows = expected.reshape(-1, expected.shape[-1])
    assert result.shape == rows.shape
    errors = np.linalg.norm(result - rows, axis=1) / np.linalg.norm(rows, axis=1)
    return float(errors.max())


def on_device(type_id: int, n_rows: int, n_columns: int, random: np.random.Generator) -> Any:
    from mlx_kernels.gpu.planar_weight import PlanarWeight

    packed = random_packed(type_id, n_rows, n_columns, random)
    return PlanarWeight.of([packed]), dense(packed)


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


def widths(type_id: int) -> tuple[int, ...]:
    """Fewer steps than lanes, an odd number of steps; a width that 128 does not divide."""
    return (768, 2304) if BLOCK[type_id].n_values == 256 else (160, 1312)


@each_format(8, 14, 16)
@pytest.mark.parametrize("n_positions", [1, 3])
def test_matvec(type_id: int, n_positions: int, random: np.random.Generator) -> None:
    import mlx.core as mx

    from mlx_kernels.gpu.planar_launches import matvec

    kernels = emulated_kernels()
    for n_rows, n_columns in zip((7, 71), widths(type_id), strict=True):
        weight, values = on_device(type_id, n_rows, n_columns, random)
        x = normal(random, n_positions, n_columns)
        x[:, :32] *= 1e-4
        x[:, 64:96] = 0
        if n_positions == 1:
            y = matvec(kernels, mx.array(x), weight)
            assert relative_error(y, x.astype(np.float64) @ values.T) < PRECISE
            continue
        norm, bias = random.uniform(0.5, 2, n_columns).astype(np.float32), normal(random, n_rows)
        residual = normal(random, n_positions, n_rows)
        added = map(mx.array, (bias, residual))
        y = matvec(kernels, mx.array(x), weight, mx.array(norm), 1e-3, *added)
        wide = x.astype(np.float64)
        wide *= norm / np.sqrt((wide**2).mean(axis=1, keepdims=True) + 1e-3)
        assert relative_error(y, wide @ values.T + bias + residual) < PRECISE


@pytest.mark.parametrize("n_positions", [1, 3])
def test_matvec_of_float16_weights(n_positions: int, random: np.random.Generator) -> None:
    import mlx.core as mx

    from mlx_kernels.gpu.planar_launches import dense_matvec

    for n_rows, n_columns in ((7, 1312), (71, 200)):
        weight = (random.standard_normal((n_rows, n_columns)) / 32).astype(np.float16)
        x = normal(random, n_positions, n_columns)
        y = dense_matvec(emulated_kernels(), mx.array(x), mx.array(weight))
        expected = x.astype(np.float64) @ (32 * weight.astype(np.float64)).T
        assert relative_error(y, expected) < PRECISE


@pytest.mark.parametrize("n_positions", [2, 5, 8])
def test_matvec_of_more_positions_than_a_block_can_stage(
    n_positions: int, random: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlx.core as mx

    from mlx_kernels.gpu import planar_launches

    monkeypatch.setattr(planar_launches, "_SHARED_LIMIT", 4096)  # 4 rows of 256 columns, not 8
    weight, values = on_device(8, 9, 256, random)
    assert planar_launches.fits(8, 4, 256) and not planar_launches.fits(8, 8, 256)
    x, residual = normal(random, n_positions, 256), normal(random, n_positions, 9)
    y = planar_launches.matvec(emulated_kernels(), mx.array(x), weight, residual=mx.array(residual))
    assert relative_error(y, x.astype(np.float64) @ values.T + residual) < PRECISE


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_matvec_passes_on_what_is_not_finite(bad: float, random: np.random.Generator) -> None:
    import mlx.core as mx

    from mlx_kernels.gpu.planar_launches import matvec

    weight, _ = on_device(8, 7, 160, random)
    x = normal(random, 1, 160)
    x[0, 77] = bad
    assert np.isnan(np.array(matvec(emulated_kernels(), mx.array(x), weight))).all()


@pytest.mark.parametrize("is_odd", [False, True])
@each_format(16, 10)
def test_experts(type_id: int, is_odd: bool, random: np.random.Generator) -> None:
    """gate_up and down of two positions with three of five experts each.

    Some types go over tensor cores, IQ2_XXS not where columns are an odd number of blocks of 256.
    """
    import mlx.core as mx

    from mlx_kernels.gpu.planar_launches import down, gate_up
    from mlx_kernels.gpu.tensor_launches import down_plan, gate_up_plan

    n_experts, n_chosen, n_hidden, width = 5, 3, 256 if is_odd else 512, 768 if is_odd else 1024
    gate, gates = on_device(type_id, n_experts * n_hidden, width, random)
    up, ups = on_device(type_id, n_experts * n_hidden, width, random)
    last, downs = on_device(type_id, n_experts * width, n_hidden, random)
    is_tensor = type_id in (10, 12, 39) or (type_id == 16 and not is_odd)
    assert (gate_up_plan(gate, n_hidden) is not None) == is_tensor
    assert (down_plan(last, width, n_chosen) is not None) == is_tensor
    gates, ups, downs = (w.reshape(n_experts, -1, w.shape[1]) for w in (gates, ups, downs))
    x = normal(random, 2, width)
    ids = random.random((2, n_experts)).argsort(axis=1)[:, :n_chosen].astype(np.int32)
    weights = random.uniform(0.1, 1, (2, n_chosen)).astype(np.float32)
    wide = x.astype(np.float64)
    gated = np.einsum("tkfc,tc->tkf", gates[ids], wide)
    lifted = np.einsum("tkfc,tc->tkf", ups[ids], wide)
    clamp = float(np.float32(np.abs(lifted).mean()))
    gated, lifted = np.minimum(gated, clamp), np.clip(lifted, -clamp, clamp)
    expected = weights[..., None] * gated / (1 + np.exp(-gated)) * lifted

    chosen, factors = mx.array(ids), mx.array(weights)
    kernels = emulated_kernels(6)
    hidden = gate_up(kernels, mx.array(x), gate, up, n_hidden, chosen, factors, clamp=clamp)
    assert relative_error(hidden, expected) < PRECISE
    out = down(kernels, hidden, last, width, chosen)
    there = np.array(hidden).astype(np.float64)
    assert relative_error(out, np.einsum("tkcf,tkf->tc", downs[ids], there)) < PRECISE


def test_dense_gate_up_with_norm(random: np.random.Generator) -> None:
    """One "expert", whose gate and up are the halves of one matrix."""
    import mlx.core as mx

    from mlx_kernels.gpu.planar_launches import gate_up

    both, values = on_device(12, 2 * 37, 512, random)
    x, norm = normal(random, 1, 512), random.uniform(0.5, 2, 512).astype(np.float32)
    ids, ones = mx.zeros((1, 1), mx.int32), mx.ones((1, 1))
    halves = both.rows(0, 37), both.rows(37, 74)
    hidden = gate_up(
        *(emulated_kernels(), mx.array(x), *halves, 37, ids, ones, mx.array(norm), 1e-5)
    )
    wide = x.astype(np.float64) * norm / np.sqrt((x.astype(np.float64) ** 2).mean() + 1e-5)
    gate, up = np.split(wide @ values.T, 2, axis=1)
    assert relative_error(hidden, gate / (1 + np.exp(-gate)) * up) < PRECISE


@each_format(13)
def test_dequantize_rounds_to_what_tf32_keeps(type_id: int, random: np.random.Generator) -> None:
    from mlx_kernels.gpu.planar_launches import dequantized

    n_columns = widths(type_id)[0]
    weight, values = on_device(type_id, 23, n_columns, random)
    decoded = np.array(dequantized(emulated_kernels(), weight))
    assert not (decoded.view(np.uint32) & 0x1FFF).any()
    # Rounded once, after float32 steps: half a unit of the last of 11 bits. An offset may leave a
    # small difference of larger numbers.
    atol = 1e-6 * np.abs(values).max()
    np.testing.assert_allclose(decoded, values, rtol=2**-11 * 1.001, atol=atol)


def test_copy(random: np.random.Generator) -> None:
    """More than four times the threads, and a rest."""
    import mlx.core as mx

    x = normal(random, 4 * (9 * 256 + 5))
    (y,) = emulated_kernels().launch_all(
        "copy", None, [mx.array(x)], {}, (2, 1), [(x.shape, mx.float32)]
    )
    assert (np.array(y) == x).all()
