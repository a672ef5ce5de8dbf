"""The operations of device metal, their kernels run by the harness, and a whole model on them."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

mx = pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from engine.families.registry import plan_for  # noqa: E402
from engine.gguf_file import GgufFile  # noqa: E402
from mlx_kernels import reference  # noqa: E402
from mlx_kernels.blocks import PackedMatrix  # noqa: E402
from mlx_kernels.cpu.operations import CpuOps  # noqa: E402
from mlx_kernels.errors import TensorError  # noqa: E402
from mlx_kernels.gpu.metal_kernels import MetalKernels  # noqa: E402
from mlx_kernels.gpu.operations import MlxOps  # noqa: E402
from tests.fakes.tiny_gguf import write_tiny_gguf  # noqa: E402
from tests.metal.mlx_kernel import Harness  # noqa: E402
from tests.metal.world import metal_ops  # noqa: E402
from tests.mlx_kernels.packed_samples import dense, random_packed  # noqa: E402

# Up to 64 positions everything is float32. With more, and in types without a kernel, weights and
# activations are rounded to float16: 2^-11 each, and the worst row's norm hides none of it.
PRECISE, HALF = 5e-6, 2e-3
_F16, _Q4_0, _BF16 = 1, 2, 30


@pytest.fixture
def harness() -> Harness:
    return Harness()


@pytest.fixture
def ops(harness: Harness) -> Any:
    return metal_ops(harness)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng()


def worst_row(result: np.ndarray, expected: np.ndarray) -> float:
    assert result.shape == expected.shape
    errors = np.linalg.norm(result - expected, axis=1) / np.linalg.norm(expected, axis=1)
    return float(errors.max())


@pytest.mark.parametrize(
    ("types", "n_positions"),
    [
        ((8,), 3),
        ((8,), 9),
        ((8, _BF16, _Q4_0), 1),
        pytest.param((_F16,), 1, marks=pytest.mark.slow),
        ((8, 10), 3),
        pytest.param((8, 10), 9, marks=pytest.mark.slow),
        pytest.param((8, 10), 65, marks=pytest.mark.slow),
        pytest.param((8, _BF16, _Q4_0), 9, marks=pytest.mark.slow),
    ],
)
def test_linear_of_stacked_types(
    ops: Any, types: tuple[int, ...], n_positions: int, random: np.random.Generator
) -> None:
    """BF16 has no kernel."""
    parts = [random_packed(type_id, 10 + type_id, 256, random) for type_id in types]
    values = np.concatenate([dense(part) for part in parts])
    x = random.standard_normal((n_positions, 256)).astype(np.float32)
    norm = random.uniform(0.5, 2, 256).astype(np.float32)
    bias = random.standard_normal(len(values)).astype(np.float32)
    residual = random.standard_normal((n_positions, len(values))).astype(np.float32)
    weight = ops.matrix(parts)
    bound = PRECISE if n_positions <= 64 and _BF16 not in types else HALF
    there = [ops.vector(a) for a in (x, norm, bias, residual)]
    y = ops.to_host(ops.linear(there[0], weight, there[2], there[3]))
    assert worst_row(y, x.astype(np.float64) @ values.T + bias + residual) < bound
    y = ops.to_host(ops.normed_linear(there[0], there[1], 1e-5, weight, there[2]))
    normed = reference.rms_norm(x, norm, 1e-5)
    assert worst_row(y, normed @ values.T + bias) < bound


@pytest.mark.parametrize(
    ("n_positions", "clamp"),
    [(1, 0.5), pytest.param(2, None, marks=pytest.mark.slow), (9, None)],
)
def test_gated_linear(
    ops: Any, n_positions: int, clamp: float | None, random: np.random.Generator
) -> None:
    part = random_packed(12, 2 * 48, 256, random)
    x = random.standard_normal((n_positions, 256)).astype(np.float32)
    # Gates of size one: where the clamp cuts the rest off, the error of large ones would remain.
    norm = random.uniform(0.005, 0.02, 256).astype(np.float32)
    there = ops.vector(x), ops.vector(norm)
    y = ops.to_host(ops.gated_linear(*there, 1e-5, ops.matrix([part]), clamp))
    expected = reference.swiglu(reference.rms_norm(x, norm, 1e-5) @ dense(part).T, clamp)
    assert worst_row(y, expected) < PRECISE


@pytest.mark.parametrize(
    ("n_positions", "clamp"),
    [(3, 0.5), (20, 0.5), pytest.param(20, None, marks=pytest.mark.slow)],
)
def test_moe(ops: Any, n_positions: int, clamp: float | None, random: np.random.Generator) -> None:
    """Of eight experts some are never chosen."""
    n_experts, width, hidden = 8, 256, 512
    shapes = ((16, hidden, width), (16, hidden, width), (10, width, hidden))
    parts = [random_packed(t, n_experts * rows, columns, random) for t, rows, columns in shapes]
    values = [dense(part) for part in parts]
    x = random.standard_normal((n_positions, width)).astype(np.float32)
    x /= np.float32(values[0].std() * width**0.5)
    ids = random.random((n_positions, 5)).argsort(axis=1)[:, :3].astype(np.int32)
    weights = random.uniform(0.1, 2, (n_positions, 3)).astype(np.float32)
    arrays = [ops.vector(a) for a in (x, ids, weights)]
    y = ops.to_host(ops.moe(arrays[0], ops.experts(*parts, n_experts), *arrays[1:], clamp))
    expected = reference.moe(x, *values, n_experts, ids, weights, clamp)
    assert worst_row(y, expected) < PRECISE


def test_weights_stay_packed(ops: Any, random: np.random.Generator) -> None:
    for type_id in (_F16, _Q4_0, 8, 10, 12, 16):
        part = random_packed(type_id, 32, 512, random)
        (held,) = ops.matrix([part]).parts
        n_bytes = sum(plane.nbytes for plane in held.planes if plane.nbytes > 16)
        assert n_bytes == ops.matrix_bytes(type_id, part.shape)
        assert n_bytes == part.raw.size
    assert ops.matrix_bytes(_BF16, (32, 512)) == 2 * 32 * 512


def test_bad_input_is_refused_by_name(ops: Any, random: np.random.Generator) -> None:
    part = random_packed(8, 8, 256, random)
    named = PackedMatrix(8, part.raw[:-1], part.shape, "blk.0.ffn_up.weight")
    with pytest.raises(TensorError, match="blk.0.ffn_up.weight"):
        ops.matrix([named])
    with pytest.raises(TensorError, match="256"):
        ops.linear(ops.vector(np.zeros((1, 128), np.float32)), ops.matrix([part]))
    x = np.zeros((1, 256), np.float32)
    x[0, 3] = np.nan
    with pytest.raises(TensorError, match="NaN"):
        ops.to_host(ops.linear(ops.vector(x), ops.matrix([part])))


@pytest.mark.parametrize(
    ("quant", "build"),
    [
        ("Q8_0", "fast"),
        pytest.param("Q4_K", "fast", marks=pytest.mark.slow),
        pytest.param("Q4_K", "checked", marks=pytest.mark.slow),
        pytest.param("F16", "fast", marks=pytest.mark.slow),
    ],
)
def test_a_whole_model_gives_the_logits_of_the_cpu_world(
    quant: str, build: str, tmp_path: Path
) -> None:
    """A prompt of 12 tokens, then one at a time and two: tile product and decode kernels.

    Both worlds compute in float32; keys and values are rounded to float16 in both, where a last
    bit may tip one over: 2^-11 of values of size one, now and then.
    """
    path = write_tiny_gguf(
        tmp_path / "tiny.gguf", "qwen2", n_embd=256, n_ff=512, quant=quant, tied=False
    )
    tokens = np.random.default_rng(3).integers(0, 256, 16).astype(np.int32)
    harness = Harness(build)

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
    found = logits(metal_ops(harness))
    np.testing.assert_allclose(found, expected, atol=1e-3 * expected.std())
    names = {launch.kernel.name for launch in harness.launches}
    wanted = ("matvec", "gate_up", "tile_product")
    assert names == {f"ds4_{name}_{quant.lower()}" for name in wanted}


@pytest.mark.parametrize(
    ("n_positions", "wanted"),
    [
        (1, {"matvec": 7, "gate_up": 2}),
        (8, {"matvec": 9}),
        (12, {"tile_product": 9}),
        (65, {"dequantize": 9}),
    ],
)
def test_mlx_takes_every_launch_of_a_model_while_exporting(
    n_positions: int, wanted: dict[str, int], tmp_path: Path
) -> None:
    """MLX's own metal_kernel in a lazy graph: names, dtypes, grids and template values.

    Two layers of four launches, and the output: no more, whatever the number of positions.
    """
    path = write_tiny_gguf(
        tmp_path / "tiny.gguf", "qwen2", n_embd=256, n_ff=512, quant="Q4_K", tied=False
    )
    names: Counter[str] = Counter()

    def make(**arguments: Any) -> Any:
        kernel = mx.fast.metal_kernel(**arguments)

        def call(**launch: Any) -> Any:
            names[arguments["name"]] += 1
            return kernel(**launch, stream=mx.gpu)

        return call

    ops = MlxOps("mlx-cpu", MetalKernels(make))
    ops.to_host = lambda x: x  # nothing is computed while exporting
    with GgufFile.open(path) as gguf:
        model = plan_for(gguf).load(ops, None, None)
    cache, ids = model.new_cache(128), np.arange(n_positions, dtype=np.int32)

    def step(hidden: Any) -> Any:
        return model.head(model.layers(0, model.n_layers, hidden, cache, ids))

    mx.export_function(str(tmp_path / "step.mlxfn"), step, model.embed(ids))
    assert names == {f"ds4_{name}_q4_k": n for name, n in wanted.items()}


def test_device_metal_uses_the_metal_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mx, "set_default_device", lambda device: None)
    ops = MlxOps("metal")
    (held,) = ops.matrix([random_packed(12, 8, 256, np.random.default_rng(1))]).parts
    assert held.type_id == 12
    assert ops.matrix_bytes(12, (8, 256)) == 8 * 144
