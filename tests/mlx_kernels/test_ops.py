"""Each operation of both worlds against the float64 reference, and the choice of a device."""

import importlib.util
from typing import Any

import numpy as np
import pytest

from mlx_kernels import devices, reference
from mlx_kernels.blocks import PackedMatrix
from mlx_kernels.cpu import native, native_library
from mlx_kernels.cpu.operations import CpuOps
from mlx_kernels.devices import DEVICES, open_ops, resolve_device
from mlx_kernels.errors import DeviceError
from mlx_kernels.ops import Ops, RopeSpec
from tests.fakes.tiny_gguf import random_blocks

HAS_MLX = importlib.util.find_spec("mlx") is not None
# float32 sums of a few hundred products of size one: 2^-24 * sqrt(N) each, with room.
FLOAT32 = {"rtol": 2e-5, "atol": 2e-5}
Q8_0 = 8

needs_mlx = pytest.mark.skipif(not HAS_MLX, reason="needs mlx (pip install ds4-agent[cpu])")


needs_native = pytest.mark.skipif(
    not native.is_available(), reason="needs the compiled CPU kernels (a C compiler at install)"
)


@pytest.fixture(
    params=[
        "cpu-dense",
        pytest.param("cpu-native", marks=needs_native),
        pytest.param("mlx-cpu", marks=needs_mlx),
    ]
)
def ops(request: pytest.FixtureRequest) -> Ops:
    if request.param == "mlx-cpu":
        return open_ops("mlx-cpu")
    return CpuOps(use_native=request.param == "cpu-native")


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)


def normal(random: np.random.Generator, *shape: int) -> np.ndarray:
    return random.standard_normal(shape, np.float32)


def matrix(values: np.ndarray) -> PackedMatrix:
    return PackedMatrix(0, np.ascontiguousarray(values).view(np.uint8).reshape(-1), values.shape)


def host(ops: Ops, x: Any) -> np.ndarray:
    result = ops.to_host(x)
    assert isinstance(result, np.ndarray) and result.dtype == np.float32
    return result


@pytest.mark.parametrize("n_rows", [1, 2, 33])
@pytest.mark.parametrize("has_more", [False, True])
@pytest.mark.parametrize("width", [64, 65])  # the compiled kernels take whole groups of 32
def test_linear_equals_reference(
    ops: Ops, random: np.random.Generator, n_rows: int, has_more: bool, width: int
) -> None:
    x, upper = normal(random, n_rows, width), normal(random, 7, width)
    lower = normal(random, 4, width)
    bias = normal(random, 11) if has_more else None
    residual = normal(random, n_rows, 11) if has_more else None
    weight = ops.matrix([matrix(upper), matrix(lower)])
    added = [None if each is None else ops.vector(each) for each in (bias, residual)]
    product = ops.linear(ops.vector(x), weight, *added)
    expected = reference.linear(x, np.concatenate([upper, lower]), bias, residual)
    np.testing.assert_allclose(host(ops, product), expected, **FLOAT32)


@pytest.mark.parametrize("n_rows", [1, 5, 33])
@pytest.mark.parametrize("width", [64, 65])
def test_normed_and_gated_linear_equal_reference(
    ops: Ops, random: np.random.Generator, n_rows: int, width: int
) -> None:
    x, norm = normal(random, n_rows, width), normal(random, width)
    gate, up, bias = normal(random, 9, width), normal(random, 9, width), normal(random, 18)
    weight, both = ops.matrix([matrix(gate), matrix(up)]), np.concatenate([gate, up])
    x_there, norm_there = ops.vector(x), ops.vector(norm)
    product = ops.normed_linear(x_there, norm_there, 1e-3, weight, ops.vector(bias))
    expected = reference.normed_linear(x, norm, 1e-3, both, bias)
    np.testing.assert_allclose(host(ops, product), expected, **FLOAT32)
    gated = ops.gated_linear(x_there, norm_there, 1e-3, weight)
    expected = reference.gated_linear(x, norm, 1e-3, both)
    # a product of two sums of size 8: their errors multiply with the other one
    np.testing.assert_allclose(host(ops, gated), expected, rtol=2e-5, atol=2e-4)


@needs_mlx
@pytest.mark.parametrize("size", [1.0, 3000.0])
def test_linear_in_half_precision_is_close_and_does_not_overflow(
    random: np.random.Generator, size: float
) -> None:
    ops = open_ops("mlx-cpu")
    ops._use_half_precision()  # what a GPU does
    x, weight = normal(random, 3, 200) * np.float32(size), normal(random, 9, 200)
    expected = reference.linear(x, weight)
    assert size == 1.0 or np.abs(expected).max() > 65504  # the largest float16
    product = host(ops, ops.linear(ops.vector(x), ops.matrix([matrix(weight)])))
    # Inputs, weights and result are rounded to 11 bits. 200 products of this size, each wrong by
    # up to 2^-11, add up to 14 of them (the root of 200); three times that for the worst value.
    np.testing.assert_allclose(product, expected, atol=3 * 14 * 2**-11 * size, rtol=2**-11)
    assert ops.matrix_bytes(0, (9, 200)) == 2 * 9 * 200


def test_embedding_decodes_the_rows_asked_for(ops: Ops, random: np.random.Generator) -> None:
    table = PackedMatrix(Q8_0, random_blocks((20, 64), "Q8_0", random).reshape(-1), (20, 64))
    ids = np.array([19, 3, 3], np.int32)
    assert np.array_equal(host(ops, ops.embedding(table, ids)), table.rows(ids))


@pytest.mark.parametrize("shape", [(1, 48), (5, 48), (3, 4, 16)])
def test_rms_norm_equals_reference(
    ops: Ops, random: np.random.Generator, shape: tuple[int, ...]
) -> None:
    x, weight = normal(random, *shape), normal(random, shape[-1])
    x[0] *= 1e-4  # where eps matters
    normed = ops.rms_norm(ops.vector(x), ops.vector(weight), 1e-6)
    np.testing.assert_allclose(host(ops, normed), reference.rms_norm(x, weight, 1e-6), **FLOAT32)


@pytest.mark.parametrize("is_interleaved", [False, True])
@pytest.mark.parametrize(("first", "n_rows"), [(0, 1), (3, 6), (1000, 2)])
@pytest.mark.parametrize("magnitude", [1.0, 1.2])
def test_rope_equals_reference(
    ops: Ops,
    random: np.random.Generator,
    is_interleaved: bool,
    first: int,
    n_rows: int,
    magnitude: float,
) -> None:
    frequencies = 10000.0 ** (-np.arange(0, 16, 2) / 16) / np.linspace(1.0, 8.0, 8)
    spec = RopeSpec(frequencies, is_interleaved, magnitude)
    x = normal(random, n_rows, 3, 16)
    turned = host(ops, ops.rope(ops.vector(x), first, spec))
    # MLX multiplies position and frequency in float32: 1000 radians carry 1e-4 of error.
    tolerance = 1e-6 if ops.device == "cpu" else 1e-6 + 6e-7 * (first + n_rows)
    np.testing.assert_allclose(turned, reference.rope(x, first, spec), atol=tolerance, rtol=1e-5)


def test_rope_of_another_spec_is_not_the_one_before(ops: Ops, random: np.random.Generator) -> None:
    x = normal(random, 2, 1, 8)
    for base in (100.0, 10000.0):
        spec = RopeSpec(base ** (-np.arange(0, 8, 2) / 8), False)
        turned = host(ops, ops.rope(ops.vector(x), 5, spec))
        np.testing.assert_allclose(turned, reference.rope(x, 5, spec), atol=1e-5)


def test_swiglu_equals_reference_and_survives_large_gates(
    ops: Ops, random: np.random.Generator
) -> None:
    gate_up = normal(random, 4, 40)
    gate_up[0, 0], gate_up[0, 1] = -200.0, 200.0
    result = host(ops, ops.swiglu(ops.vector(gate_up)))
    np.testing.assert_allclose(result, reference.swiglu(gate_up), **FLOAT32)


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("chunks", [[1], [9], [5, 1, 1], [200, 3, 150]])
def test_attention_over_a_growing_buffer_equals_reference(
    ops: Ops, random: np.random.Generator, n_heads: int, n_kv_heads: int, chunks: list[int]
) -> None:
    n_rows = sum(chunks)
    queries = normal(random, n_rows, n_heads, 16)
    keys, values = normal(random, n_rows, n_kv_heads, 16), normal(random, n_rows, n_kv_heads, 16)
    buffer = ops.kv_buffer(n_kv_heads, 16, max_rows=400)
    start = 0
    for n_new in chunks:
        new = slice(start, start + n_new)
        buffer.append(ops.vector(keys[new]), ops.vector(values[new]))
        mixed = ops.attention(ops.vector(queries[new]), buffer)
        start += n_new
    expected = reference.attention(queries[new], keys, values)
    assert buffer.n_rows == n_rows
    np.testing.assert_allclose(host(ops, mixed), expected, **FLOAT32)


def test_buffer_holds_float16_and_reads_back_what_was_written(
    ops: Ops, random: np.random.Generator
) -> None:
    keys, values = normal(random, 300, 2, 8), normal(random, 300, 2, 8)
    buffer = ops.kv_buffer(2, 8, max_rows=300)
    buffer.append(ops.vector(keys), ops.vector(values))
    read_keys, read_values = buffer.read()
    assert read_keys.dtype == read_values.dtype == np.float16
    assert np.array_equal(read_keys, keys.astype(np.float16))
    assert np.array_equal(read_values, values.astype(np.float16))

    other = ops.kv_buffer(2, 8, max_rows=300)
    other.append(ops.vector(values[:5]), ops.vector(keys[:5]))
    other.write(read_keys, read_values)
    assert other.n_rows == 300
    assert np.array_equal(other.read()[0], read_keys)


def test_cpu_buffer_takes_the_bytes_that_memory_is_counted_with() -> None:
    ops = open_ops("cpu")
    assert ops.kv_buffer(2, 8, max_rows=4).keys.itemsize == ops.kv_value_bytes


def test_truncated_rows_are_gone_and_overwritten(ops: Ops, random: np.random.Generator) -> None:
    keys = normal(random, 6, 1, 8)
    buffer = ops.kv_buffer(1, 8, max_rows=10)
    buffer.append(ops.vector(keys), ops.vector(keys))
    buffer.truncate(8)
    assert buffer.n_rows == 6
    buffer.truncate(2)
    buffer.append(ops.vector(keys[5:]), ops.vector(keys[5:]))
    assert np.array_equal(buffer.read()[0], keys[[0, 1, 5]].astype(np.float16))


def test_host_copy_of_an_empty_buffer_is_empty(ops: Ops) -> None:
    keys, values = ops.kv_buffer(2, 8, max_rows=4).read()
    assert keys.shape == values.shape == (0, 2, 8)


def test_packed_weights_take_the_bytes_of_the_file_and_others_those_of_float32(ops: Ops) -> None:
    is_packed = ops.kv_value_bytes == 2  # the compiled kernels read float16 keys and values too
    assert ops.matrix_bytes(Q8_0, (4, 64)) == (4 * 2 * 34 if is_packed else 4 * 4 * 64)
    assert ops.matrix_bytes(0, (4, 65)) == 4 * 4 * 65


@needs_native
def test_packed_weights_are_used_where_they_lie(random: np.random.Generator) -> None:
    packed = PackedMatrix(Q8_0, random_blocks((20, 64), "Q8_0", random).reshape(-1), (20, 64))
    weight = CpuOps(use_native=True).matrix([packed])
    assert isinstance(weight, native.StackedWeight)
    assert weight.n_bytes == packed.raw.size
    before = native.linear(np.ones((1, 64), np.float32), weight)
    packed.raw[:] = 0
    assert before.any() and not native.linear(np.ones((1, 64), np.float32), weight).any()


def test_cpu_device_uses_the_compiled_kernels_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert open_ops("cpu").kv_value_bytes == (2 if native.is_available() else 4)
    monkeypatch.setattr(native_library, "load_library", lambda: None)  # an install without them
    assert open_ops("cpu").kv_value_bytes == 4


# --- devices ------------------------------------------------------------------------------------


def test_unknown_device_raises_and_lists_the_known_ones() -> None:
    with pytest.raises(DeviceError, match="unknown device 'tpu'") as caught:
        resolve_device("tpu")
    assert all(name in caught.value.hint for name in DEVICES)


@pytest.mark.parametrize("name", ["metal", "cuda", "mlx-cpu"])
def test_device_without_mlx_raises_with_a_hint(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(DeviceError, match=f"device {name} needs mlx") as caught:
        resolve_device(name)
    assert caught.value.hint


def test_auto_without_mlx_is_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda _: None)
    assert resolve_device("auto") == "cpu"


@needs_mlx
@pytest.mark.parametrize(
    ("available", "expected"),
    [
        ({"mlx-cpu"}, "cpu"),
        ({"mlx-cpu", "cuda"}, "cuda"),
        ({"mlx-cpu", "metal"}, "metal"),
        ({"mlx-cpu", "cuda", "metal"}, "metal"),
    ],
)
def test_auto_prefers_a_gpu_and_never_takes_mlx_cpu(
    available: set[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_available", lambda: available)
    assert resolve_device("auto") == expected


@needs_mlx
def test_gpu_that_is_not_there_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_available", lambda: {"mlx-cpu"})
    with pytest.raises(DeviceError, match="no cuda device"):
        open_ops("cuda")
