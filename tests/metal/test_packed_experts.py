"""The Metal kernels of experts and the tile product against float64: all formats and shapes."""

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from mlx_kernels import reference  # noqa: E402
from mlx_kernels.blocks import BLOCK  # noqa: E402
from mlx_kernels.gpu.metal_kernels import METAL_FORMATS, MetalKernels  # noqa: E402
from mlx_kernels.gpu.metal_launches import dequantized, down, gate_up  # noqa: E402
from mlx_kernels.gpu.metal_tile_launches import experts_in_tiles, tile_product  # noqa: E402
from mlx_kernels.gpu.planar_weight import PlanarWeight  # noqa: E402
from tests.metal.mlx_kernel import Harness  # noqa: E402
from tests.mlx_kernels.packed_samples import dense, random_packed  # noqa: E402

pytestmark = pytest.mark.slow
# Float32 throughout. Relative to the worst row: cancellation between products is hidden in no
# other row, and SwiGLU multiplies two such errors.
PRECISE = 5e-6
each_format = pytest.mark.parametrize(
    "type_id", sorted(METAL_FORMATS), ids=lambda value: BLOCK[value].name
)
each_build = pytest.mark.parametrize("build", ["fast", "checked"])


def worst_row(result: Any, expected: np.ndarray) -> float:
    result = np.array(result).reshape(-1, expected.shape[-1])
    rows = expected.reshape(-1, expected.shape[-1])
    assert result.shape == rows.shape
    return float((np.linalg.norm(result - rows, axis=1) / np.linalg.norm(rows, axis=1)).max())


def random_experts(
    type_id: int, n_experts: int, n_hidden: int, width: int, random: np.random.Generator
) -> tuple[list[PlanarWeight], list[np.ndarray]]:
    parts = [random_packed(type_id, n_experts * n_hidden, width, random) for _ in range(2)]
    parts.append(random_packed(type_id, n_experts * width, n_hidden, random))
    return [PlanarWeight.of([part], METAL_FORMATS) for part in parts], [
        dense(part) for part in parts
    ]


@each_build
@each_format
@pytest.mark.parametrize("n_positions", [1, 3, 40])
@pytest.mark.parametrize("clamp", [None, 0.5])
def test_experts(type_id: int, n_positions: int, clamp: float | None, build: str) -> None:
    """Decode kernels and tiles; of seven experts some are never chosen."""
    random = np.random.default_rng()
    n_experts, n_chosen = 7, 3
    small = BLOCK[type_id].n_values < 256
    n_hidden, width = (96, 160) if small else (256, 512)
    held, values = random_experts(type_id, n_experts, n_hidden, width, random)
    x = random.standard_normal((n_positions, width)).astype(np.float32)
    # Gates of size one: where the clamp cuts the rest off, the error of large ones would remain.
    x /= np.float32(values[0].std() * width**0.5)
    ids = random.random((n_positions, 5)).argsort(axis=1)[:, :n_chosen].astype(np.int32)
    weights = random.uniform(0.1, 2, ids.shape).astype(np.float32)
    kernels = MetalKernels(Harness(build).metal_kernel)
    there = [mx.array(a) for a in (x, ids, weights)]
    if n_positions <= 8:
        hidden = gate_up(kernels, there[0], *held[:2], n_hidden, *there[1:], clamp=clamp)
        y = down(kernels, hidden, held[2], width, there[1])
    else:
        y = experts_in_tiles(kernels, there[0], *held, *there[1:], clamp)
    expected = reference.moe(x, *values, n_experts, ids, weights, clamp)
    assert worst_row(y, expected) < PRECISE


@each_build
@each_format
@pytest.mark.parametrize("n_positions", [9, 32, 65])
def test_tile_product(type_id: int, n_positions: int, build: str) -> None:
    random = np.random.default_rng()
    n_columns = 96 if BLOCK[type_id].n_values < 256 else 512
    packed = random_packed(type_id, 67, n_columns, random)
    x = random.standard_normal((n_positions, n_columns)).astype(np.float32)
    kernels = MetalKernels(Harness(build).metal_kernel)
    y = tile_product(kernels, mx.array(x), PlanarWeight.of([packed], METAL_FORMATS))
    assert worst_row(y, x.astype(np.float64) @ dense(packed).T) < PRECISE


@each_build
@each_format
@pytest.mark.parametrize("n_rows", [1, 23])
def test_dequantize_gives_the_halves_of_the_dense_path(
    type_id: int, n_rows: int, build: str
) -> None:
    random = np.random.default_rng()
    packed = random_packed(type_id, n_rows, 768, random)
    weight = PlanarWeight.of([packed], METAL_FORMATS)
    halves = np.array(dequantized(MetalKernels(Harness(build).metal_kernel), weight))
    # Rounded once, after float32 steps: half a unit of the last of 11 bits, or of the smallest.
    expected = dense(packed) / 32
    np.testing.assert_allclose(
        halves.astype(np.float64), expected, rtol=2**-11 * 1.001, atol=2**-25 * 1.001
    )
