import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize as gguf_dequantize

from mlx_kernels.blocks import BLOCK, PackedMatrix, can_dequantize, dequantize
from mlx_kernels.dense import decode_stacked
from mlx_kernels.errors import TensorError
from tests.fakes.tiny_gguf import random_blocks

QUANTS = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
Q8_1 = 9  # the gguf package gives 40 bytes; the format has two float16, not two float32: 36


def bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).view(np.uint32)


def packed(quant: str, rows: int, columns: int, seed: int = 0) -> PackedMatrix:
    random = np.random.default_rng(seed)
    raw = random_blocks((rows, columns), quant, random)
    return PackedMatrix(int(GGMLQuantizationType[quant]), raw.reshape(-1), (rows, columns))


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
    with pytest.raises(TensorError, match=r"\[64, 96\]"):
        decode_stacked([packed("Q8_0", 2, 64), packed("Q8_0", 2, 96)])
