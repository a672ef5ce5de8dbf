"""Weights that a device makes itself: valid blocks in the planes that its kernels read."""

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from ds4agent.bench import synthetic  # noqa: E402
from mlx_kernels.blocks import BLOCK  # noqa: E402
from mlx_kernels.gpu.planar import LAYOUT, PLANES, PlanarMatrix, from_planar  # noqa: E402
from mlx_kernels.gpu.random_ops import RandomOps, random_planes  # noqa: E402
from tests.mlx_kernels.decode_worlds import NEEDS_COMPILER, packed_kernels  # noqa: E402
from tests.test_bench_synthetic import SMALL  # noqa: E402

SHAPE = (48, 512)


@pytest.mark.parametrize("name", ["Q8_0", "Q2_K", "Q4_K", "Q6_K", "IQ2_XXS", "MXFP4"])
def test_planes_are_whole_and_decode_to_small_numbers(name):
    type_id = next(key for key, block in BLOCK.items() if block.name == name)
    planes = random_planes(type_id, SHAPE)
    n_blocks = SHAPE[0] * SHAPE[1] // BLOCK[type_id].n_values
    for plane, (start, stop) in zip(planes, LAYOUT[type_id], strict=True):
        assert plane.size == max(16, -(-n_blocks * (stop - start) // 16) * 16)
    arrays = {key: np.array(plane) for key, plane in zip(PLANES, planes, strict=True)}
    values = from_planar(PlanarMatrix(type_id, SHAPE, **arrays))
    assert np.isfinite(values).all()
    assert 1e-6 < values.std() < 1.0
    assert len(np.unique(values)) > 30  # no plane is constant; MXFP4 has 16 values times 5 powers


@NEEDS_COMPILER
def test_a_network_of_them_runs_and_reads_no_given_values(monkeypatch):
    numbers = {"attention.indexer.head_count": 8, "attention.output_lora_rank": 128}
    for key, value in (SMALL | numbers).items():
        monkeypatch.setitem(synthetic._FLASH, key, value)
    ops = RandomOps("mlx-cpu", packed_kernels("metal"))
    monkeypatch.setattr(synthetic, "open_random_ops", lambda device: (ops, True))
    engine = synthetic.SyntheticEngine.open("v4-flash-q2", "metal", 64, 3)
    session = engine.new_session()
    session.sync([1, 2, 3])
    session.extend([4])
    assert session.logits.std() > 0.01  # zeros, as they were given, would give equal logits


def test_a_device_that_decodes_weights_has_none():
    with pytest.raises(ValueError, match="no packed weights"):
        RandomOps("mlx-cpu")
