"""Planar repacking loses nothing, adds nothing and refuses what it cannot sort."""

import numpy as np
import pytest

from mlx_kernels.blocks import BLOCK, PackedMatrix, dequantize
from mlx_kernels.errors import TensorError
from mlx_kernels.gpu.planar import (
    PLANES,
    from_planar,
    planar_bytes,
    planar_type,
    to_planar,
)
from tests.mlx_kernels.packed_samples import random_packed

WIDENED = {2: 8, 6: 8, 11: 14}  # Q4_0, Q5_0 -> Q8_0; Q3_K -> Q6_K
PLANAR = (0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 16, 30, 39)


def values(matrix: PackedMatrix) -> np.ndarray:
    return dequantize(matrix.type_id, matrix.raw, matrix.shape)


@pytest.mark.parametrize("type_id", PLANAR, ids=lambda i: BLOCK[i].name)
@pytest.mark.parametrize("rows", [(1,), (3, 5)])
def test_planar_form_holds_the_same_values_bit_by_bit(type_id: int, rows: tuple[int, ...]) -> None:
    rng = np.random.default_rng(3)
    parts = [random_packed(type_id, n, 768, rng) for n in rows]
    planar = to_planar(parts)
    assert planar.type_id == planar_type(type_id, 768) == WIDENED.get(type_id, type_id)
    expected = np.concatenate([values(part) for part in parts])
    assert np.array_equal(from_planar(planar).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("type_id", PLANAR, ids=lambda i: BLOCK[i].name)
def test_no_type_is_widened_for_a_device_that_reads_it(type_id: int) -> None:
    packed = random_packed(type_id, 5, 768, np.random.default_rng(6))
    planar = to_planar([packed], PLANAR)
    assert planar.type_id == type_id == planar_type(type_id, 768, PLANAR)
    assert np.array_equal(from_planar(planar), values(packed))
    assert planar_bytes(type_id, packed.shape, PLANAR) == packed.raw.size


@pytest.mark.parametrize("type_id", PLANAR, ids=lambda i: BLOCK[i].name)
def test_planar_form_takes_the_bytes_of_the_file(type_id: int) -> None:
    packed = random_packed(type_id, 7, 512, np.random.default_rng(4))
    planar = to_planar([packed])
    padding = planar.n_bytes - planar_bytes(type_id, packed.shape)
    assert 0 <= padding < 16 * len(PLANES)
    assert all(getattr(planar, name).size % 16 == 0 for name in PLANES)
    if type_id not in WIDENED:
        assert planar_bytes(type_id, packed.shape) == packed.raw.size


def test_a_matrix_wider_than_a_chunk_is_widened_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mlx_kernels.gpu.planar._CHUNK_BYTES", 3 * 34)
    packed = random_packed(2, 5, 128, np.random.default_rng(5))
    assert np.array_equal(from_planar(to_planar([packed])), values(packed))


def test_types_without_a_planar_form_are_told_apart() -> None:
    assert planar_type(17, 256) is None  # IQ2_XS
    assert planar_type(1, 65) is None  # rows of 130 bytes


def test_matrices_that_do_not_stack_are_refused_by_name() -> None:
    rng = np.random.default_rng(6)
    upper, lower = random_packed(12, 2, 256, rng), random_packed(14, 2, 256, rng)
    lower = PackedMatrix(lower.type_id, lower.raw, lower.shape, "blk.0.attn_v.weight")
    with pytest.raises(TensorError, match="blk.0.attn_v.weight"):
        to_planar([upper, lower])
    with pytest.raises(TensorError, match="blk.0.attn_v.weight"):
        to_planar([PackedMatrix(14, lower.raw[:-1], lower.shape, lower.name)])
