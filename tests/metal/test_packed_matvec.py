"""The Metal matvec against float64 products of the gguf package's values, in all formats."""

from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from mlx_kernels.blocks import BLOCK  # noqa: E402
from mlx_kernels.gpu.metal_kernels import METAL_FORMATS, MetalKernels  # noqa: E402
from mlx_kernels.gpu.metal_launches import matvec  # noqa: E402
from mlx_kernels.gpu.planar_weight import PlanarWeight  # noqa: E402
from tests.metal.mlx_kernel import Harness  # noqa: E402
from tests.mlx_kernels.packed_samples import dense, full_packed, random_packed  # noqa: E402

# Sums of float32: see ``FLOAT32_SUM`` of the cases. Of the sum of all products' sizes.
PRECISE = 2e-6
EPS = 1e-3
names = {"ids": lambda value: BLOCK[value].name if value in BLOCK else str(value)}


def widths(type_id: int) -> tuple[int, ...]:
    """Fewer steps than lanes, an odd number of steps, and one that 128 does not divide."""
    if BLOCK[type_id].n_values == 256:
        return 256, 2304
    return (16, 1328) if type_id == 1 else (32, 1312)


def check(y: Any, x: np.ndarray, values: np.ndarray, *added: np.ndarray) -> None:
    """The bound is of the sizes of all that is summed, ``added`` included."""
    expected = x.astype(np.float64) @ values.T + sum(added)
    bound = PRECISE * (np.abs(x) @ np.abs(values).T + sum(map(np.abs, added)))
    y = np.array(y)
    assert y.shape == expected.shape
    share = np.abs(y - expected) / np.maximum(bound, 1e-30)
    assert share.max() <= 1, f"{share.max():.3g} times the bound at {np.argmax(share)}"


@pytest.mark.slow
@pytest.mark.parametrize("build", ["fast", "checked"])
@pytest.mark.parametrize("n_positions", [1, 2, 7, 8])
@pytest.mark.parametrize("type_id", sorted(METAL_FORMATS), **names)
def test_every_format(type_id: int, n_positions: int, build: str) -> None:
    random = np.random.default_rng()  # fresh blocks every time
    harness = Harness(build)
    kernels = MetalKernels(harness.metal_kernel)
    for n_rows in (1, 2, 9, 35):
        for n_columns in widths(type_id):
            packed = random_packed(type_id, n_rows, n_columns, random)
            weight, values = PlanarWeight.of([packed], METAL_FORMATS), dense(packed)
            x = random.standard_normal((n_positions, n_columns), np.float32)
            x[:, :16] *= 1e-4
            check(matvec(kernels, mx.array(x), weight), x, values)
            norm = random.uniform(0.5, 2, n_columns).astype(np.float32)
            bias = random.standard_normal(n_rows, np.float32)
            residual = random.standard_normal((n_positions, n_rows), np.float32)
            added = mx.array(bias), mx.array(residual)
            y = matvec(kernels, mx.array(x), weight, mx.array(norm), EPS, *added)
            wide = x.astype(np.float64)
            wide *= norm / np.sqrt((wide**2).mean(axis=1, keepdims=True) + EPS)
            check(y, wide, values, bias, residual)
    if build == "checked":
        for launch in harness.launches:
            traffic = launch.report.traffic
            assert traffic["out"].unwritten == 0
            fetched = sum(traffic[name].fetched for name in ("quants", "high", "scales", "factors"))
            rows, columns = (int(n) for n in launch.arguments["inputs"][6][:2])
            block = BLOCK[weight.type_id]
            assert fetched == rows * columns // block.n_values * block.n_bytes


@pytest.mark.slow
@pytest.mark.parametrize("byte", [0, 255, 0x80, 0x7F])
@pytest.mark.parametrize("type_id", sorted(METAL_FORMATS.keys() - {1}), **names)
def test_extreme_integers(type_id: int, byte: int) -> None:
    packed = full_packed(type_id, 5, 512, byte)
    x = np.random.default_rng(7).standard_normal((1, 512), np.float32)
    y = matvec(
        MetalKernels(Harness().metal_kernel), mx.array(x), PlanarWeight.of([packed], METAL_FORMATS)
    )
    check(y, x, dense(packed))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_passed_on(bad: float) -> None:
    random = np.random.default_rng(5)
    weight = PlanarWeight.of([random_packed(8, 11, 1312, random)])
    x = random.standard_normal((3, 1312), np.float32)
    x[1, 77] = bad
    added = [mx.array(a) for a in (np.ones(1312, np.float32), np.ones(11, np.float32))]
    y = matvec(
        *(MetalKernels(Harness().metal_kernel), mx.array(x), weight, added[0], EPS, added[1]),
        mx.ones((3, 11)),
    )
    finite = np.isfinite(np.array(y))
    assert finite[[0, 2]].all() and not finite[1].any()


def test_planes_of_few_rows_are_not_small_inputs() -> None:
    """MLX hands inputs of fewer than eight elements to Metal in another address space."""
    weight = PlanarWeight.of([random_packed(39, 5, 32, np.random.default_rng(6))])
    part = weight.rows(1, 4)
    assert min(plane.size for plane in part.planes) >= 8
    np.testing.assert_array_equal(np.array(part.planes[3])[:3], np.array(weight.planes[3])[1:4])
