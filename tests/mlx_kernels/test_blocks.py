from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from gguf.quants import dequantize as gguf_dequantize

from mlx_kernels.blocks import (
    BLOCK,
    PackedMatrix,
    can_dequantize,
    check_matrix,
    dequantize,
)
from mlx_kernels.blocks.iq2_xxs import iq2_xxs_grid, iq2_xxs_signs
from mlx_kernels.dense import decode_stacked
from mlx_kernels.errors import TensorError
from tests.mlx_kernels.packed_samples import FACTORS, random_packed

QUANTS = [BLOCK[type_id].name for type_id in FACTORS]
FIXTURE = Path(__file__).parents[1] / "fixtures" / "quant_blocks" / "quant_blocks.npz"
Q8_1 = 9  # the gguf package gives 40 bytes; the format has two float16, not two float32: 36


def bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint32)


def packed(quant: str, rows: int, columns: int, seed: int = 0) -> PackedMatrix:
    random = np.random.default_rng(seed)
    return random_packed(int(GGMLQuantizationType[quant]), rows, columns, random)


def test_table_agrees_with_the_gguf_package() -> None:
    for kind, (n_values, n_bytes) in GGML_QUANT_SIZES.items():
        if int(kind) in BLOCK and int(kind) != Q8_1:
            assert BLOCK[int(kind)] == (kind.name, n_values, n_bytes)
    assert BLOCK[Q8_1].n_bytes == 36


@pytest.mark.parametrize("quant", QUANTS)
def test_dequantize_equals_the_gguf_package_bit_by_bit(quant: str) -> None:
    matrix = packed(quant, 24, 1024)
    values = dequantize(matrix.type_id, matrix.raw, matrix.shape)
    expected = gguf_dequantize(matrix.raw.reshape(24, -1), GGMLQuantizationType[quant])
    assert values.dtype == np.float32
    assert np.array_equal(bits(values), bits(expected))


def test_every_type_that_a_model_here_may_use_has_a_decoder() -> None:
    named = "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ2_XXS MXFP4".split()
    assert {BLOCK[i].name for i in BLOCK if can_dequantize(i)} == set(named)
    assert set(QUANTS) == set(named) - {"F32", "F16", "BF16"}


@pytest.mark.parametrize("quant", ["Q8_0", "IQ2_XXS", "Q2_K", "Q4_K"])
def test_dequantize_equals_the_recorded_values_bit_by_bit(quant: str) -> None:
    with np.load(FIXTURE) as recorded:
        raw, expected = recorded[f"{quant}.raw"], recorded[f"{quant}.values"]
    values = dequantize(int(GGMLQuantizationType[quant]), raw.reshape(-1), expected.shape)
    assert np.array_equal(bits(values), bits(expected))


# zero, the smallest subnormal, the largest one, the smallest normal, the largest of float16
EDGES = np.array([0x0000, 0x0001, 0x03FF, 0x0400, 0x7BFF], np.uint16)


@pytest.mark.parametrize("quant", [quant for quant in QUANTS if quant != "MXFP4"])
@pytest.mark.parametrize("sign", [0, 0x8000])
def test_edge_scales_equal_the_gguf_package_bit_by_bit(quant: str, sign: int) -> None:
    matrix = packed(quant, 25, 256)
    blocks = matrix.raw.reshape(25, -1, BLOCK[matrix.type_id].n_bytes)
    for n, at in enumerate(FACTORS[matrix.type_id]):  # all pairs of two factors
        scales = np.tile(EDGES, 5) if n else np.repeat(EDGES, 5)
        blocks[:, :, at : at + 2] = (scales | sign)[:, None].view(np.uint8)[:, None]
    values = dequantize(matrix.type_id, matrix.raw, matrix.shape)
    expected = gguf_dequantize(matrix.raw.reshape(25, -1), GGMLQuantizationType[quant])
    assert np.isfinite(values).all()
    assert np.array_equal(bits(values), bits(expected))


@pytest.mark.filterwarnings("ignore:(overflow|invalid value):RuntimeWarning:gguf")
@pytest.mark.parametrize("quant", [quant for quant in QUANTS if quant != "MXFP4"])
@pytest.mark.parametrize("scale", [0x7C00, 0xFC00, 0x7E00])  # infinity, minus infinity, NaN
def test_infinite_and_nan_scales_give_what_the_gguf_package_gives(quant: str, scale: int) -> None:
    matrix = packed(quant, 4, 256)
    blocks = matrix.raw.reshape(4, -1, BLOCK[matrix.type_id].n_bytes)
    at = FACTORS[matrix.type_id][0]
    blocks[:, :, at : at + 2] = np.array([scale], np.uint16).view(np.uint8)
    values = dequantize(matrix.type_id, matrix.raw, matrix.shape)
    expected = gguf_dequantize(matrix.raw.reshape(4, -1), GGMLQuantizationType[quant])
    assert not np.isfinite(values).any()
    np.testing.assert_array_equal(values, expected)  # NaN equals NaN here, whatever its bits


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning:gguf")
def test_every_exponent_and_nibble_of_mxfp4_equals_the_gguf_package() -> None:
    raw = np.empty((256, 17), np.uint8)
    raw[:, 0] = np.arange(256)
    raw[:, 1:] = np.arange(16) * 16 + np.arange(16)[::-1]  # all 16 in both halves
    values = dequantize(39, raw.reshape(-1), (256, 32))
    assert np.array_equal(bits(values), bits(gguf_dequantize(raw, GGMLQuantizationType.MXFP4)))
    assert values[127, 16:].tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6] + [
        0, -0.5, -1, -1.5, -2, -3, -4, -6
    ]  # fmt: skip
    assert np.isfinite(values[:253]).all() and np.isinf(values[253:]).any(axis=1).all()


def test_grid_and_signs_of_iq2_xxs_are_those_of_the_gguf_package() -> None:
    quants.IQ2_XXS.init_grid()
    grid = iq2_xxs_grid()
    assert set(np.unique(grid)) == {8, 25, 43}
    assert np.array_equal(grid, quants.IQ2_XXS.grid.reshape(256, 8))
    assert iq2_xxs_signs().tobytes() == quants.IQ2_XXS.ksigns


def test_every_grid_entry_under_every_sign_of_iq2_xxs_equals_the_gguf_package() -> None:
    pairs = np.arange(256 * 128, dtype=np.uint32).reshape(-1, 8, 4)  # [n, groups, sub-vectors]
    raw = np.zeros((len(pairs), 66), np.uint8)
    raw[:, :2] = np.array([1.0], np.float16).view(np.uint8)
    words = np.empty((len(pairs), 8, 2), np.uint32)
    words[:, :, 0] = (pairs & 255).astype(np.uint8).view(np.uint32)[:, :, 0]
    words[:, :, 1] = ((pairs >> 8) << np.arange(0, 28, 7, dtype=np.uint32)).sum(axis=2)
    words[:, :, 1] |= np.arange(8, dtype=np.uint32) << 29  # another scale for each group
    raw[:, 2:] = words.reshape(len(pairs), -1).view(np.uint8)
    values = dequantize(16, raw.reshape(-1), (len(pairs), 256))
    assert np.array_equal(bits(values), bits(gguf_dequantize(raw, GGMLQuantizationType.IQ2_XXS)))


@pytest.mark.parametrize("quant", ["F32", "F16", "BF16"])
def test_dequantize_of_floats_equals_the_gguf_package(quant: str) -> None:
    kind = GGMLQuantizationType[quant]
    random = np.random.default_rng(1)
    source = random.standard_normal((8, 96)).astype(np.float32)
    if quant == "F32":
        raw = source.view(np.uint8)
    elif quant == "F16":
        raw = source.astype(np.float16).view(np.uint8)
    else:
        raw = source.view(np.uint16)[:, 1::2].copy().view(np.uint8)
    values = dequantize(int(kind), raw.reshape(-1), source.shape)
    assert np.array_equal(bits(values), bits(gguf_dequantize(raw, kind)))


def test_dequantize_is_the_same_in_chunks_of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = packed("Q4_K", 7, 512)
    whole = dequantize(matrix.type_id, matrix.raw, matrix.shape)
    monkeypatch.setattr("mlx_kernels.blocks.decoding._CHUNK_VALUES", 3 * 256)
    assert np.array_equal(whole, dequantize(matrix.type_id, matrix.raw, matrix.shape))


def test_dequantize_reads_a_read_only_view_at_an_odd_address() -> None:
    matrix = packed("Q6_K", 2, 512)
    shifted = np.frombuffer(b"x" + matrix.raw.tobytes(), np.uint8)[1:]
    assert not shifted.flags.writeable
    values = dequantize(matrix.type_id, shifted, matrix.shape)
    assert np.array_equal(values, dequantize(matrix.type_id, matrix.raw, matrix.shape))


def test_dequantize_of_a_wrong_byte_count_raises() -> None:
    matrix = packed("Q4_0", 2, 64)
    with pytest.raises(TensorError, match="71 bytes for Q4_0 values"):
        dequantize(matrix.type_id, matrix.raw[:-1], matrix.shape)


def test_dequantize_of_a_format_without_decoder_names_it() -> None:
    assert not can_dequantize(17)
    with pytest.raises(TensorError, match="IQ2_XS") as caught:
        dequantize(17, np.zeros(74, np.uint8), (256,))
    assert "Q4_K" in caught.value.hint


def test_rows_of_a_packed_matrix_equal_those_of_the_dense_one() -> None:
    matrix = packed("Q5_0", 10, 64)
    dense = dequantize(matrix.type_id, matrix.raw, matrix.shape)
    rows = np.array([9, 0, 4, 4])
    assert np.array_equal(matrix.rows(rows), dense[rows])


def test_stacked_matrices_keep_their_order_across_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlx_kernels.dense._SLICE_VALUES", 5 * 64)  # several slices, two threads
    parts = [packed("Q5_0", 13, 64), packed("Q8_0", 4, 64), packed("Q4_1", 9, 64)]
    dense = decode_stacked(parts)
    expected = [dequantize(part.type_id, part.raw, part.shape) for part in parts]
    assert np.array_equal(dense, np.concatenate(expected))


def test_stacking_matrices_of_two_widths_raises() -> None:
    with pytest.raises(TensorError, match="96 columns .* of 64"):
        decode_stacked([packed("Q8_0", 2, 64), packed("Q8_0", 2, 96)])


def test_a_good_matrix_of_every_type_passes_the_check() -> None:
    for type_id in BLOCK:
        if can_dequantize(type_id):
            check_matrix(random_packed(type_id, 3, 256, np.random.default_rng(0)))


@pytest.mark.parametrize(
    ("type_id", "raw", "shape", "expected"),
    [
        (17, np.zeros(74, np.uint8), (1, 256), "IQ2_XS, which has no decoder"),
        (77, np.zeros(74, np.uint8), (1, 256), "number 77, which has no decoder"),
        (8, np.zeros(0, np.uint8), (0, 32), r"shape \[0, 32\], expected .* at least one row"),
        (8, np.zeros(0, np.uint8), (2, 0), r"shape \[2, 0\]"),
        (12, np.zeros(144, np.uint8), (2, 128), r"multiple of 256 \(Q4_K\)"),
        (8, np.zeros(34, np.uint8), (34,), r"shape \[34\]"),
        (8, np.zeros(33, np.uint8), (1, 32), "33 uint8, expected 34"),
        (8, np.zeros(34, np.int8), (1, 32), "34 int8, expected 34 contiguous uint8"),
        (8, np.zeros(68, np.uint8)[::2], (1, 32), "contiguous"),
    ],
)
def test_a_bad_matrix_is_an_error_that_names_the_tensor(
    type_id: int, raw: np.ndarray, shape: tuple[int, ...], expected: str
) -> None:
    with pytest.raises(TensorError, match="^blk.0.ffn_up.weight.*" + expected):
        check_matrix(PackedMatrix(type_id, raw, shape, "blk.0.ffn_up.weight"))


@pytest.mark.parametrize("row", [-1, 10])
def test_a_row_that_is_not_there_is_an_error_that_names_the_tensor(row: int) -> None:
    matrix = packed("Q5_0", 10, 64)
    table = PackedMatrix(matrix.type_id, matrix.raw, matrix.shape, "token_embd.weight")
    with pytest.raises(TensorError, match="token_embd.weight has rows 0 to 9"):
        table.rows(np.array([3, row]))
