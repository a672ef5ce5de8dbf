import threading
from pathlib import Path

import numpy as np
import pytest

from engine.engine import DEFAULT_CTX, Engine
from engine.errors import (
    ContextFull,
    EngineError,
    LoadCancelled,
    ModelFileError,
    NotEnoughMemory,
    StateMismatch,
)
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from engine.memory import available_bytes
from engine.sampling_options import SamplingOptions
from mlx_kernels.cpu import native
from mlx_kernels.cpu.operations import CpuOps
from mlx_kernels.errors import DeviceError
from tests.fakes.tiny_gguf import write_tiny_gguf

GREEDY = SamplingOptions(temperature=0.0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tiny.gguf"


def assert_one_line_and_a_hint(error: EngineError) -> None:
    assert error.hint.endswith(".")
    assert "\n" not in str(error)


def test_info_says_what_was_opened(path: Path) -> None:
    write_tiny_gguf(path, "qwen2", quant="Q8_0", n_layers=3)
    with Engine.open(path, "cpu") as engine:
        info = engine.info
    assert (info.name, info.family, info.architecture) == ("tiny", "llama", "qwen2")
    assert (info.quant, info.n_layers, info.n_vocab) == ("Q8_0", 3, 288)
    assert (info.ctx_train, info.ctx, info.device) == (512, 512, "cpu")
    assert info.path == path and info.file_bytes == path.stat().st_size
    assert info.n_params > 100_000 and len(info.fingerprint) >= 16


def test_context_is_the_models_own_up_to_the_default(path: Path) -> None:
    write_tiny_gguf(path, ctx_train=100_000)
    assert Engine.open(path, "cpu").info.ctx == DEFAULT_CTX
    assert Engine.open(path, "cpu", ctx=9000).info.ctx == 9000


def test_context_beyond_the_models_own_is_refused(path: Path) -> None:
    write_tiny_gguf(path, ctx_train=512)
    with pytest.raises(ModelFileError, match="513 tokens was asked for") as caught:
        Engine.open(path, "cpu", ctx=513)
    assert "512" in caught.value.hint


def test_missing_file_is_told(path: Path) -> None:
    with pytest.raises(ModelFileError, match="no model file") as caught:
        Engine.open(path, "cpu")
    assert_one_line_and_a_hint(caught.value)


def test_cut_off_file_is_told(path: Path) -> None:
    write_tiny_gguf(path)
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelFileError, match="its tensors need") as caught:
        Engine.open(path, "cpu")
    assert_one_line_and_a_hint(caught.value)


def test_other_architecture_is_named_with_those_supported(path: Path) -> None:
    write_tiny_gguf(path, "gemma3")
    with pytest.raises(ModelFileError, match="'gemma3', supported are llama, qwen2, qwen3"):
        Engine.open(path, "cpu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"leave_out": ("blk.1.ffn_up.weight",)}, r"blk\.1\.ffn_up\.weight"),
        ({"leave_out": ("token_embd.weight",)}, r"token_embd\.weight"),
        ({"reshape": {"blk.0.attn_k.weight": (16, 64)}}, r"attn_k.*\[16, 64\].*\[32, 64\]"),
        ({"reshape": {"output_norm.weight": (32,)}}, r"output_norm.*\[32\].*\[64\]"),
        ({"architecture": "qwen2", "qkv_bias": False}, r"blk\.0\.attn_q\.bias"),
        ({"architecture": "qwen3", "qk_norm": False}, r"blk\.0\.attn_q_norm"),
        ({"n_heads": 3, "n_kv_heads": 2, "head_dim": 16}, "3 heads, 2 key-value heads"),
        ({"metadata": {"llama.expert_count": 8}}, "mixture of experts"),
        ({"metadata": {"llama.attention.layer_norm_rms_epsilon": -1.0}}, "rms_epsilon is -1.0"),
        ({"metadata": {"llama.rope.dimension_count": 8}}, "turns 8 values"),
    ],
)
def test_file_that_does_not_fit_its_architecture_is_told(
    path: Path, options: dict, message: str
) -> None:
    write_tiny_gguf(path, **options)
    seen: list[int] = []
    with pytest.raises(ModelFileError, match=message) as caught:
        Engine.open(path, "cpu", progress=lambda done, total: seen.append(done))
    assert_one_line_and_a_hint(caught.value)
    assert seen == []  # told before any weight was loaded


def test_tensor_that_the_network_does_not_have_is_told(path: Path) -> None:
    write_tiny_gguf(path, "llama", qk_norm=True)
    raw = path.read_bytes().replace(b"blk.1.attn_q_norm.weight", b"blk.1.attn_q_mean.weight")
    path.write_bytes(raw)
    with pytest.raises(ModelFileError, match=r"blk\.1\.attn_q_"):
        Engine.open(path, "cpu")


def test_too_little_memory_is_told_before_loading_with_a_context_that_fits(path: Path) -> None:
    write_tiny_gguf(path, ctx_train=1 << 20, n_layers=4)
    seen: list[int] = []
    with pytest.raises(NotEnoughMemory, match="GiB are available") as caught:
        Engine.open(
            path,
            "cpu",
            ctx=1 << 20,
            progress=lambda done, total: seen.append(done),
            free_memory=lambda: 600 << 20,
        )
    assert seen == []
    ctx = int(caught.value.hint.split("--ctx ")[1].split(",")[0])
    assert 1024 <= ctx < 1 << 20
    assert Engine.open(path, "cpu", ctx=ctx, free_memory=lambda: 600 << 20).info.ctx == ctx


def test_too_little_memory_for_the_weights_asks_for_a_smaller_model(path: Path) -> None:
    write_tiny_gguf(path)
    with pytest.raises(NotEnoughMemory) as caught:
        Engine.open(path, "cpu", free_memory=lambda: 1 << 20)
    assert "smaller model" in caught.value.hint and "--ctx" not in caught.value.hint


def test_unknown_memory_does_not_stop_the_loading(path: Path) -> None:
    write_tiny_gguf(path)
    assert Engine.open(path, "cpu", free_memory=lambda: None).info.ctx == 512


def test_available_bytes_reads_meminfo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  99 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n", "ascii")
    assert available_bytes(meminfo) == 2 << 20
    meminfo.write_text("MemTotal:  99 kB\n", "ascii")
    assert available_bytes(meminfo) is None
    assert available_bytes(tmp_path / "absent") is None


def test_unknown_device_is_told(path: Path) -> None:
    write_tiny_gguf(path)
    with pytest.raises(DeviceError, match="unknown device 'npu'"):
        Engine.open(path, "npu")


@pytest.mark.parametrize("is_tied", [True, False])
def test_progress_grows_to_the_total(path: Path, is_tied: bool, any_device: str) -> None:
    write_tiny_gguf(path, "qwen2", tied=is_tied, rope_factors=True)
    seen: list[tuple[int, int]] = []
    Engine.open(path, any_device, progress=lambda done, total: seen.append((done, total)))
    done = [each for each, _ in seen]
    assert done == sorted(done) and len(set(done)) == len(done) > 10
    assert {total for _, total in seen} == {done[-1]}


def test_cancel_stops_between_tensors(path: Path, cpu_device: str) -> None:
    write_tiny_gguf(path)
    cancel = threading.Event()
    seen: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            cancel.set()

    with pytest.raises(LoadCancelled):
        Engine.open(path, cpu_device, progress=progress, cancel=cancel)
    assert len(seen) == 3


def test_closed_engine_starts_no_session_and_lets_the_file_go(path: Path, cpu_device: str) -> None:
    engine = Engine.open(write_tiny_gguf(path, quant="Q8_0"), cpu_device)
    session = engine.new_session()
    engine.close()
    engine.close()
    with pytest.raises(ValueError, match="closed"):
        engine.new_session()
    session.sync([1, 2, 3])  # it keeps the weights it needs, and the mapping they lie in
    assert session.logits.shape == (288,)


@pytest.mark.skipif(not native.is_available(), reason="needs the compiled CPU kernels")
def test_packed_weights_need_the_memory_of_the_file_and_dense_ones_four_bytes_each(
    path: Path,
) -> None:
    write_tiny_gguf(path, quant="Q4_0", n_embd=256, n_ff=1024, n_heads=4, ctx_train=4096)
    with GgufFile.open(path) as gguf:
        plan = plan_for(gguf)
        packed, dense = CpuOps(use_native=True), CpuOps(use_native=False)
        assert 0.8 * gguf.n_bytes < plan.weight_bytes(packed) < gguf.n_bytes
        assert plan.weight_bytes(dense) == pytest.approx(
            plan.weight_bytes(packed) * 32 * 4 / 18  # bytes of 32 values
        )
        assert 2 * plan.cache_bytes(packed, 7) == plan.cache_bytes(dense, 7)


# --- whole texts, saved states ------------------------------------------------------------------


def test_logits_of_is_what_a_session_gives(path: Path) -> None:
    with Engine.open(write_tiny_gguf(path), "cpu") as engine:
        tokens = engine.tokenizer.encode("the same text")
        session = engine.new_session()
        all_logits = engine.logits_of(tokens)
        for i, token in enumerate(tokens):
            session.extend([token])
            np.testing.assert_allclose(session.logits, all_logits[i], atol=5e-3)
        assert engine.logits_of([]).shape == (0, 288)
        with pytest.raises(ContextFull, match="513 tokens"):
            engine.logits_of([1] * 513)


def test_restored_session_goes_on_with_the_same_tokens(path: Path, cpu_device: str) -> None:
    write_tiny_gguf(path, "qwen3", n_layers=3, quant="Q8_0")
    with Engine.open(path, cpu_device) as engine:
        session = engine.new_session()
        session.sync(engine.tokenizer.encode("a text that is long enough to matter " * 3))
        state = session.state()
        expected = [token.id for token in session.generate(GREEDY, 64)]
    with Engine.open(path, cpu_device) as engine:
        restored = engine.restore(state)
        assert np.array_equal(restored.logits, state.logits)
        assert [token.id for token in restored.generate(GREEDY, 64)] == expected
        again = engine.restore(state).state()
    assert again.tokens == state.tokens
    for name, array in state.arrays.items():
        assert array.dtype == np.float16 and np.array_equal(again.arrays[name], array)


def test_empty_state_restores(path: Path) -> None:
    with Engine.open(write_tiny_gguf(path), "cpu") as engine:
        state = engine.new_session().state()
        assert state.tokens == () and state.logits.shape == (0,)
        assert engine.restore(state).tokens == ()


def test_state_of_other_weights_is_refused(path: Path, tmp_path: Path) -> None:
    with Engine.open(write_tiny_gguf(path, seed=1), "cpu") as engine:
        session = engine.new_session()
        session.sync([1, 2, 3])
        state = session.state()
    with Engine.open(write_tiny_gguf(tmp_path / "other.gguf", seed=2), "cpu") as engine:
        with pytest.raises(StateMismatch, match="another model") as caught:
            engine.restore(state)
    assert_one_line_and_a_hint(caught.value)


def test_state_that_is_longer_than_the_context_is_refused(path: Path) -> None:
    write_tiny_gguf(path)
    with Engine.open(path, "cpu") as engine:
        session = engine.new_session()
        session.sync([1] * 40)
        state = session.state()
    with Engine.open(path, "cpu", ctx=32) as engine:
        with pytest.raises(StateMismatch, match="40 tokens") as caught:
            engine.restore(state)
    assert "--ctx 40" in caught.value.hint
