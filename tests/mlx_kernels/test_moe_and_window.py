"""Window, sinks, clamp and mixtures of experts: both worlds against the float64 reference."""

import importlib.util
from typing import Any

import numpy as np
import pytest

from mlx_kernels import reference
from mlx_kernels.blocks import PackedMatrix, dequantize
from mlx_kernels.cpu import native
from mlx_kernels.cpu.operations import CpuOps
from mlx_kernels.devices import open_ops
from mlx_kernels.errors import TensorError
from mlx_kernels.ops import Ops
from tests.mlx_kernels.packed_samples import random_packed

# float32 sums of a few hundred products of size one: 2^-24 * sqrt(N) each, with room.
FLOAT32 = {"rtol": 2e-5, "atol": 2e-5}
WORLDS = [
    "cpu-dense",
    pytest.param(
        "cpu-native",
        marks=pytest.mark.skipif(
            not native.is_available(), reason="needs the compiled CPU kernels (a C compiler)"
        ),
    ),
    pytest.param(
        "mlx-cpu",
        marks=pytest.mark.skipif(
            importlib.util.find_spec("mlx") is None, reason="needs mlx (pip install ds4-agent[cpu])"
        ),
    ),
]


@pytest.fixture(params=WORLDS)
def ops(request: pytest.FixtureRequest) -> Ops:
    if request.param == "mlx-cpu":
        return open_ops("mlx-cpu")
    return CpuOps(use_native=request.param == "cpu-native")


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(11)


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


@pytest.mark.parametrize("window", [None, 1, 4, 64])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("n_new", [1, 5, 40])
def test_attention_with_window_and_sinks_equals_reference(
    ops: Ops, random: np.random.Generator, window: int | None, has_sinks: bool, n_new: int
) -> None:
    keys, values = normal(random, 40, 2, 16), normal(random, 40, 2, 16)
    queries = normal(random, n_new, 6, 16)
    # one sink above every score, one that vanishes
    sinks = np.array([30, -30, 0, 1, -1, 2], np.float32) if has_sinks else None
    buffer = ops.kv_buffer(2, 16, max_rows=40)
    buffer.append(ops.vector(keys), ops.vector(values))
    there = None if sinks is None else ops.vector(sinks)
    mixed = ops.attention(ops.vector(queries), buffer, window, there)
    expected = reference.attention(queries, keys, values, window, sinks)
    np.testing.assert_allclose(ops.to_host(mixed), expected, **FLOAT32)


def test_clamped_swiglu_equals_reference(ops: Ops, random: np.random.Generator) -> None:
    gate_up = 3 * normal(random, 4, 40)
    gate_up[0, :4] = -200, 200, 1, -1
    result = ops.to_host(ops.swiglu(ops.vector(gate_up), 1.5))
    expected = reference.swiglu(gate_up, 1.5)
    assert not np.allclose(expected, reference.swiglu(gate_up))
    np.testing.assert_allclose(result, expected, **FLOAT32)


def mixture(random: np.random.Generator, n: int, width: int, hidden: int) -> list[PackedMatrix]:
    """Gate and up in IQ2_XXS, down in Q2_K."""
    shapes = ((16, n * hidden, width), (16, n * hidden, width), (10, n * width, hidden))
    return [random_packed(type_id, rows, columns, random) for type_id, rows, columns in shapes]


def rounds_activations(ops: Ops) -> bool:
    """The compiled kernels round the activations of an expert with up to 16 positions to 8 bits."""
    return isinstance(ops, CpuOps) and ops.kv_value_bytes == 2


@pytest.mark.parametrize("n_positions", [1, 2, 7, 33])
@pytest.mark.parametrize("clamp", [None, 0.5])
def test_mixture_of_experts_equals_reference(
    ops: Ops, random: np.random.Generator, n_positions: int, clamp: float | None
) -> None:
    if rounds_activations(ops):
        # test_native_moe.py holds few positions to the bound of their rounding; here each expert
        # gets 18 or more, which are exact.
        n_positions += 60
    parts = mixture(random, 4, 256, 512)
    x = normal(random, n_positions, 256)
    ids = random.random((n_positions, 4)).argsort(axis=1)[:, :3].astype(np.int32)
    assert not rounds_activations(ops) or np.bincount(ids.reshape(-1)).min() > 17
    weights = random.uniform(-1, 2, (n_positions, 3)).astype(np.float32)
    experts = ops.experts(*parts, 4)
    mixed = ops.moe(ops.vector(x), experts, ops.vector(ids), ops.vector(weights), clamp)
    dense = [dequantize(part.type_id, part.raw, part.shape) for part in parts]
    expected = reference.moe(x, *dense, 4, ids, weights, clamp)
    # Two sums of float32 one after the other, as in test_ops.py, relative to the largest result.
    tolerance = 2e-5 * np.abs(expected).max()
    np.testing.assert_allclose(ops.to_host(mixed), expected, rtol=0, atol=tolerance)


def test_experts_that_do_not_belong_together_are_an_error(
    ops: Ops, random: np.random.Generator
) -> None:
    gate, up, down = mixture(random, 4, 256, 512)
    for parts, n_experts in (((gate, up, gate), 4), ((gate, down, down), 4), ((gate, up, down), 3)):
        with pytest.raises(TensorError):
            ops.experts(*parts, n_experts)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_activations_that_are_not_finite_never_reach_the_host(
    ops: Ops, random: np.random.Generator, bad: float
) -> None:
    weight = ops.matrix([random_packed(8, 64, 256, random)])
    x = normal(random, 2, 256)
    x[1, 7] = bad

    def product() -> Any:
        return ops.to_host(ops.linear(ops.vector(x), weight))

    with pytest.raises(TensorError, match="NaN"):
        product()


@pytest.mark.parametrize("n_rows", [0, 4])
def test_a_bad_weight_is_an_error_that_names_the_tensor(ops: Ops, n_rows: int) -> None:
    with pytest.raises(TensorError, match="blk.3.attn_q.weight"):
        ops.matrix([PackedMatrix(8, np.zeros(0, np.uint8), (n_rows, 64), "blk.3.attn_q.weight")])
