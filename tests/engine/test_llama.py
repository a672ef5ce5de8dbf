"""Whole tiny networks: both worlds agree, and the way a text is cut does not matter."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from engine.errors import ModelFileError, StateMismatch
from engine.families.llama.model import LlamaModel
from engine.families.llama.rope import rope_spec
from engine.families.metadata import Facts
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from mlx_kernels.cpu.operations import CpuOps
from mlx_kernels.devices import open_ops
from tests.fakes.tiny_gguf import write_tiny_gguf

needs_mlx = pytest.mark.skipif(
    importlib.util.find_spec("mlx") is None, reason="needs mlx (pip install ds4-agent[cpu])"
)

VARIANTS = {
    "llama": {"architecture": "llama"},
    "llama-untied": {"architecture": "llama", "tied": False, "quant": "Q8_0"},
    "llama3-factors": {"architecture": "llama", "rope_factors": True, "n_kv_heads": 1},
    "llama-linear": {"architecture": "llama", "rope_scaling": ("linear", 4.0), "quant": "F16"},
    "qwen2": {"architecture": "qwen2", "quant": "Q5_0"},
    "qwen2-untied": {"architecture": "qwen2", "tied": False, "n_kv_heads": 4},
    "qwen3": {"architecture": "qwen3", "head_dim": 32, "quant": "BF16"},
    "qwen3-yarn": {"architecture": "qwen3", "rope_scaling": ("yarn", 4.0)},
}
# Keys and values are rounded to float16. Where the worlds differ in the last float32 bit, a value
# on the edge rounds to the other neighbour, 2^-11 away: 5e-4 of it. Through two layers with
# logits of size one that gives at most some 1e-3; most differences stay below 1e-5.
ROUNDING = 5e-3
# With packed weights, the compiled kernels round the activations of 16 positions or fewer to 8
# bits: 1/254 of the largest of 32, some 1/300 of a product of random values. The products of two
# layers and the head add up to some 1 % of the logits' deviation of 0.3 to 0.5, five times that for
# the worst of 40,000 logits: 0.025. Measured: at most 0.022, rms 0.0032.
EIGHT_BITS, EIGHT_BITS_RMS = 0.05, 0.006


def token_ids(n: int, seed: int = 3) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, n).tolist()


@pytest.fixture(params=sorted(VARIANTS))
def tiny_path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny.gguf", **VARIANTS[request.param])


def logits_in_chunks(path: Path, tokens: list[int], chunk: int, device: str = "cpu") -> np.ndarray:
    with GgufFile.open(path) as gguf:
        model = plan_for(gguf).load(open_ops(device), None, None)
        cache = model.new_cache(512)
        parts = []
        for start in range(0, len(tokens), chunk):
            ids = np.array(tokens[start : start + chunk], np.int32)
            hidden = model.layers(0, model.n_layers, model.embed(ids), cache, ids)
            parts.append(model.head(hidden))
            assert cache.n_tokens == start + len(ids)
        return np.concatenate(parts)


@needs_mlx
def test_both_worlds_give_the_same_logits(tiny_path: Path, cpu_device: str) -> None:
    tokens = token_ids(70)
    ours = Engine.open(tiny_path, cpu_device).logits_of(tokens)
    theirs = Engine.open(tiny_path, "mlx-cpu").logits_of(tokens)
    assert ours.shape == (70, 288) and ours.dtype == theirs.dtype == np.float32
    assert 0.1 < ours.std() < 10  # the comparison means something
    np.testing.assert_allclose(ours, theirs, atol=ROUNDING)
    assert np.median(np.abs(ours - theirs)) < 1e-4


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_prefill_in_chunks_of_any_size_gives_the_same_logits(
    tiny_path: Path, cpu_device: str, chunk: int
) -> None:
    tokens = token_ids(150)
    whole = logits_in_chunks(tiny_path, tokens, 150, cpu_device)
    cut = logits_in_chunks(tiny_path, tokens, chunk, cpu_device)
    is_rounded = open_ops(cpu_device).kv_value_bytes == 2 and chunk <= 16
    np.testing.assert_allclose(cut, whole, atol=EIGHT_BITS if is_rounded else ROUNDING)
    assert np.sqrt(np.mean((cut - whole) ** 2)) < (EIGHT_BITS_RMS if is_rounded else 5e-4)


@needs_mlx
def test_prefill_in_chunks_on_mlx_gives_the_same_logits(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "qwen3")
    tokens = token_ids(40)
    whole = logits_in_chunks(path, tokens, 40, "mlx-cpu")
    cut = logits_in_chunks(path, tokens, 9, "mlx-cpu")
    np.testing.assert_allclose(cut, whole, atol=ROUNDING)


def test_layer_slices_equal_the_whole(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", n_layers=3)
    ids = np.array(token_ids(20), np.int32)
    with GgufFile.open(path) as gguf:
        model = plan_for(gguf).load(open_ops("cpu"), None, None)
        whole = model.layers(0, 3, model.embed(ids), model.new_cache(32), ids)
        cache = model.new_cache(32)
        first = model.layers(0, 1, model.embed(ids), cache, ids)
        assert cache.n_tokens == 0  # counted when the last layer has run
        assert np.array_equal(whole, model.layers(1, 3, first, cache, ids))
        assert cache.n_tokens == 20


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"architecture": "llama"}, {"architecture": "llama", "rope_factors": True}),
        ({"architecture": "llama"}, {"architecture": "llama", "rope_scaling": ("linear", 2.0)}),
        ({"architecture": "llama"}, {"architecture": "qwen2", "qkv_bias": True}),
        ({"architecture": "qwen2", "seed": 1}, {"architecture": "qwen2", "seed": 2}),
    ],
)
def test_what_the_file_says_changes_the_logits(tmp_path: Path, one: dict, other: dict) -> None:
    tokens = token_ids(40)
    first = Engine.open(write_tiny_gguf(tmp_path / "1.gguf", **one), "cpu").logits_of(tokens)
    second = Engine.open(write_tiny_gguf(tmp_path / "2.gguf", **other), "cpu").logits_of(tokens)
    assert np.abs(first - second).max() > 0.01


def test_interleaved_rope_equals_half_split_rope_of_reordered_rows(tmp_path: Path) -> None:
    """The two row orders of q and k are one network: an independent check of both."""
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    ids = np.array(token_ids(30), np.int32)
    ops = CpuOps(use_native=False)  # whose weights are arrays that can be reordered
    with GgufFile.open(path) as gguf:
        model = plan_for(gguf).load(ops, None, None)
        config, weights = model.config, model._weights
        n_turned = (config.n_heads + config.n_kv_heads) * config.head_dim
        layers = []
        for layer in weights.layers:
            turned = layer.qkv[:n_turned].reshape(-1, config.head_dim // 2, 2, config.n_embd)
            rows = turned.swapaxes(1, 2).reshape(n_turned, config.n_embd)
            qkv = np.concatenate([rows, layer.qkv[n_turned:]])
            layers.append(replace(layer, qkv=qkv))
        half_split = replace(weights.rope, interleaved=False)
        other = LlamaModel(config, replace(weights, layers=layers, rope=half_split), ops)
        hidden = [
            each.layers(0, 2, each.embed(ids), each.new_cache(64), ids) for each in (model, other)
        ]
    assert weights.rope.interleaved
    np.testing.assert_allclose(*hidden, atol=ROUNDING)


# --- rope frequencies ---------------------------------------------------------------------------


def frequencies_of(path: Path, width: int, **options: object) -> np.ndarray:
    with GgufFile.open(write_tiny_gguf(path, "qwen3", **options)) as gguf:
        return rope_spec(Facts(gguf), width, None).frequencies


def test_yarn_keeps_fast_pairs_and_slows_slow_ones(tmp_path: Path) -> None:
    path, width = tmp_path / "tiny.gguf", 64
    options = {"head_dim": width, "ctx_train": 512}
    plain = frequencies_of(path, width, **options)
    with GgufFile.open(
        write_tiny_gguf(path, "qwen3", rope_scaling=("yarn", 4.0), **options)
    ) as gguf:
        spec = rope_spec(Facts(gguf), width, None)
    turns = plain * 512 / (2 * np.pi)  # within the trained context
    ratio = spec.frequencies / plain
    np.testing.assert_allclose(ratio[turns > 40], 1.0)
    np.testing.assert_allclose(ratio[turns < 0.5], 0.25)
    assert np.all(np.diff(ratio) <= 1e-12)
    assert spec.magnitude == pytest.approx(1.0 + 0.1 * np.log(4.0))


def test_linear_scaling_divides_every_frequency(tmp_path: Path) -> None:
    plain = frequencies_of(tmp_path / "1.gguf", 16)
    scaled = frequencies_of(tmp_path / "2.gguf", 16, rope_scaling=("linear", 8.0))
    np.testing.assert_allclose(scaled * 8.0, plain)


def test_unknown_rope_scaling_is_named(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", rope_scaling=("longrope", 8.0))
    with pytest.raises(ModelFileError, match="longrope"):
        Engine.open(path, "cpu")


# --- the cache ----------------------------------------------------------------------------------


@pytest.fixture
def filled(tmp_path: Path, cpu_device: str):
    path = write_tiny_gguf(tmp_path / "tiny.gguf")
    with GgufFile.open(path) as gguf:
        model = plan_for(gguf).load(open_ops(cpu_device), None, None)
        cache = model.new_cache(16)
        ids = np.array(token_ids(5), np.int32)
        model.layers(0, 2, model.embed(ids), cache, ids)
        yield model, cache


def test_cache_arrays_are_named_and_shaped_as_documented(filled) -> None:
    _, cache = filled
    arrays = cache.arrays()
    assert set(arrays) == {"layers.0.k", "layers.0.v", "layers.1.k", "layers.1.v"}
    assert all(a.shape == (5, 2, 16) and a.dtype == np.float16 for a in arrays.values())


def test_cache_load_of_its_own_arrays_gives_them_back(filled) -> None:
    model, cache = filled
    other = model.new_cache(16)
    other.load(cache.arrays(), 5)
    assert other.n_tokens == 5
    for name, array in cache.arrays().items():
        assert np.array_equal(array, other.arrays()[name])


@pytest.mark.parametrize("damage", ["missing", "extra", "shape", "dtype", "count", "too-long"])
def test_cache_load_of_wrong_arrays_raises_and_changes_nothing(filled, damage: str) -> None:
    _, cache = filled
    before, arrays, n_tokens = cache.arrays(), cache.arrays(), 5
    match damage:
        case "missing":
            del arrays["layers.1.v"]
        case "extra":
            arrays["layers.2.k"] = arrays["layers.1.k"]
        case "shape":
            arrays["layers.1.v"] = arrays["layers.1.v"][:, :1]
        case "dtype":
            arrays["layers.1.v"] = arrays["layers.1.v"].astype(np.float32)
        case "count":
            n_tokens = 4
        case "too-long":
            n_tokens = 17
            arrays = {name: np.zeros((17, 2, 16), np.float16) for name in arrays}
    with pytest.raises(StateMismatch):
        cache.load(arrays, n_tokens)
    assert cache.n_tokens == 5
    assert all(np.array_equal(before[name], array) for name, array in cache.arrays().items())
