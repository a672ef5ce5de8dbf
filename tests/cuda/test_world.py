"""The operations of device cuda, their launches emulated: against the reference, and a model."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from mlx_kernels import reference
from mlx_kernels.blocks import BLOCK, PackedMatrix
from mlx_kernels.cpu.operations import CpuOps
from mlx_kernels.errors import TensorError
from tests.cuda.launch import needs_compiler
from tests.cuda.world import emulated_kernels, needs_mlx
from tests.fakes.tiny_gguf import write_tiny_gguf
from tests.mlx_kernels.packed_samples import dense, random_packed

pytestmark = [needs_compiler, needs_mlx]

# Decode kernels are as precise as float32; with more positions, weights, activations and results
# are rounded to float16: 2^-11 each, and the worst row's norm hides none of it.
PRECISE, HALF = 5e-6, 2e-3
_Q4_1, _F16 = 3, 1


@pytest.fixture
def ops() -> Any:
    from mlx_kernels.gpu.operations import MlxOps

    return MlxOps("mlx-cpu", emulated_kernels())


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng()


def worst_row(result: np.ndarray, expected: np.ndarray) -> float:
    assert result.shape == expected.shape
    errors = np.linalg.norm(result - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return float(errors.max())


@pytest.mark.parametrize(("n_positions", "size"), [(1, 1), (3, 1e-9), (9, 1), (9, 1e-9), (520, 1)])
@pytest.mark.parametrize("types", [(8,), (8, 10), (8, _Q4_1, 2), (_F16,)])
def test_linear_of_stacked_types(
    ops: Any, types: tuple[int, ...], n_positions: int, size: float, random: np.random.Generator
) -> None:
    """Q4_1 and F16 have no kernel, Q4_0 becomes Q8_0. Small values are as precise as others."""
    parts = [random_packed(type_id, 10 + type_id, 256, random) for type_id in types]
    values = np.concatenate([dense(part) for part in parts])
    x = (size * random.standard_normal((n_positions, 256))).astype(np.float32)
    norm = random.uniform(0.5, 2, 256).astype(np.float32)
    bias = (size * random.standard_normal(len(values))).astype(np.float32)
    residual = (size * random.standard_normal((n_positions, len(values)))).astype(np.float32)
    weight = ops.matrix(parts)
    is_precise = n_positions <= 8 and not {_Q4_1, _F16} & set(types)
    bound = PRECISE if is_precise else HALF
    there = [ops.vector(a) for a in (x, norm, bias, residual)]
    y = ops.to_host(ops.linear(there[0], weight, there[2], there[3]))
    assert worst_row(y, x.astype(np.float64) @ values.T + bias + residual) < bound
    y = ops.to_host(ops.normed_linear(there[0], there[1], 1e-5, weight, there[2]))
    normed = reference.rms_norm(x, norm, 1e-5)
    assert worst_row(y, normed @ values.T + bias) < bound


@pytest.mark.parametrize("n_positions", [1, 2, 9])
@pytest.mark.parametrize("clamp", [None, 0.5])
def test_gated_linear(
    ops: Any, n_positions: int, clamp: float | None, random: np.random.Generator
) -> None:
    part = random_packed(12, 2 * 48, 256, random)
    x = random.standard_normal((n_positions, 256)).astype(np.float32)
    # Gates of size one: the exponential of a large one would multiply the error of float16.
    norm = random.uniform(0.005, 0.02, 256).astype(np.float32)
    there = ops.vector(x), ops.vector(norm)
    y = ops.to_host(ops.gated_linear(*there, 1e-5, ops.matrix([part]), clamp))
    expected = reference.swiglu(reference.rms_norm(x, norm, 1e-5) @ dense(part).T, clamp)
    assert worst_row(y, expected) < (PRECISE if n_positions <= 8 else 2 * HALF)


@pytest.mark.parametrize(
    ("n_positions", "clamp", "size"),
    [(1, 0.5, 1), (3, None, 1), (20, None, 1e-6), (20, 0.5, 1)],
)
def test_moe(
    ops: Any, n_positions: int, clamp: float | None, size: float, random: np.random.Generator
) -> None:
    """Of eight experts some are never chosen. Hidden values of 1e-9 are not lost."""
    n_experts, width, hidden = 8, 256, 512
    shapes = ((16, hidden, width), (16, hidden, width), (10, width, hidden))
    parts = [random_packed(t, n_experts * rows, columns, random) for t, rows, columns in shapes]
    x = (size * random.standard_normal((n_positions, width))).astype(np.float32)
    ids = random.random((n_positions, 5)).argsort(axis=1)[:, :3].astype(np.int32)
    weights = random.uniform(0.1, 2, (n_positions, 3)).astype(np.float32)
    arrays = [ops.vector(a) for a in (x, ids, weights)]
    y = ops.to_host(ops.moe(arrays[0], ops.experts(*parts, n_experts), *arrays[1:], clamp))
    values = [dense(part) for part in parts]
    expected = reference.moe(x, *values, n_experts, ids, weights, clamp)
    assert worst_row(y, expected) < (PRECISE if n_positions <= 8 else 2 * HALF)


@pytest.mark.parametrize("types", [(8,), (8, _F16)])
def test_exact_products_of_many_positions(
    types: tuple[int, ...], random: np.random.Generator
) -> None:
    from mlx_kernels.gpu.operations import MlxOps

    ops = MlxOps("mlx-cpu", emulated_kernels(), exact_products=True)
    parts = [random_packed(type_id, 19, 256, random) for type_id in types]
    x = random.standard_normal((20, 256)).astype(np.float32)
    y = ops.to_host(ops.linear(ops.vector(x), ops.matrix(parts)))
    values = np.concatenate([dense(part) for part in parts])
    assert worst_row(y, x.astype(np.float64) @ values.T) < PRECISE
    parts = [random_packed(8, 4 * 256, 256, random) for _ in range(3)]
    ids = random.random((20, 4)).argsort(axis=1)[:, :2].astype(np.int32)
    weights = random.uniform(0.1, 2, (20, 2)).astype(np.float32)
    there = [ops.vector(a) for a in (x, ids, weights)]
    y = ops.to_host(ops.moe(there[0], ops.experts(*parts, 4), *there[1:], 0.5))
    expected = reference.moe(x, *(dense(part) for part in parts), 4, ids, weights, 0.5)
    assert worst_row(y, expected) < PRECISE


def test_weights_stay_packed(ops: Any, random: np.random.Generator) -> None:
    for type_id in (2, 8, 10, 12, 16):
        part = random_packed(type_id, 32, 512, random)
        (held,) = ops.matrix([part]).parts
        n_bytes = sum(plane.nbytes for plane in held.planes if plane.nbytes > 16)
        assert n_bytes == ops.matrix_bytes(type_id, part.shape)
        if type_id != 2:
            assert n_bytes == part.raw.size, BLOCK[type_id].name
    assert ops.matrix_bytes(_Q4_1, (32, 512)) == 2 * 32 * 512


def test_bad_input_is_refused_by_name(ops: Any, random: np.random.Generator) -> None:
    part = random_packed(8, 8, 256, random)
    named = PackedMatrix(8, part.raw[:-1], part.shape, "blk.0.ffn_up.weight")
    with pytest.raises(TensorError, match="blk.0.ffn_up.weight"):
        ops.matrix([named])
    other = PackedMatrix(8, random_packed(8, 8, 128, random).raw, (8, 128), "blk.0.ffn_up.weight")
    with pytest.raises(TensorError, match="blk.0.ffn_up.weight"):
        ops.matrix([part, other])
    with pytest.raises(TensorError, match="256"):
        ops.linear(ops.vector(np.zeros((1, 128), np.float32)), ops.matrix([part]))
    x = np.zeros((1, 256), np.float32)
    x[0, 3] = np.nan
    with pytest.raises(TensorError, match="NaN"):
        ops.to_host(ops.linear(ops.vector(x), ops.matrix([part])))


@pytest.mark.parametrize("quant", ["Q8_0", pytest.param("Q4_K", marks=pytest.mark.slow)])
def test_a_whole_model_gives_the_logits_of_the_cpu_world(
    ops: Any, quant: str, tmp_path: Path
) -> None:
    """A prompt of 12 tokens, then one at a time: both ways of every product.

    The prompt's products round to 11 bits, scales and offsets of Q4_K on their own: 1e-3 of a row
    in the worst case (test_tile.py), through eight products of two layers.
    """
    path = write_tiny_gguf(
        tmp_path / "tiny.gguf", "qwen2", n_embd=256, n_ff=512, quant=quant, tied=False
    )
    tokens = np.random.default_rng(3).integers(0, 256, 16).astype(np.int32)

    def logits(device: Any) -> np.ndarray:
        with GgufFile.open(path) as gguf:
            model = plan_for(gguf).load(device, None, None)
        cache = model.new_cache(64)
        parts = []
        for ids in np.split(tokens, [12, 13, 14]):
            hidden = model.layers(0, model.n_layers, model.embed(ids), cache, ids)
            parts.append(model.head(hidden))
        return np.concatenate(parts)

    expected = logits(CpuOps(use_native=False))
    assert expected.shape == (16, 288) and 0.1 < expected.std() < 10
    np.testing.assert_allclose(logits(ops), expected, atol=0.025 * expected.std())
