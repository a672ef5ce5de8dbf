"""What a model is said to need, here the tiny DeepSeek V4, and what is offered when that is not
there."""

from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from engine.errors import NotEnoughMemory
from engine.families.deepseek_v4.scratch import chunk_tokens
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from engine.memory import check_fits, is_out_of_memory
from engine.session import Session
from engine.tokenizer import Tokenizer
from mlx_kernels.cpu.operations import CpuOps
from mlx_kernels.deepseek_v4_state import state_bytes

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4_tiny"


@pytest.fixture
def plan():
    with GgufFile.open(FIXTURES / "tiny-v4-q.gguf") as gguf:
        yield plan_for(gguf)


@pytest.mark.parametrize("wanted", [1024, 5120, 60160])
def test_the_context_that_is_offered_fits_and_the_next_one_does_not(wanted, plan):
    ops = CpuOps()

    def fits(ctx: int, free: int) -> bool:
        try:
            check_fits(plan, ops, ctx, free)
        except NotEnoughMemory:
            return False
        return True

    # The least memory in which the wanted context fits.
    low, high = 0, 1 << 40
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(wanted, middle) else (middle, high)
    with pytest.raises(NotEnoughMemory, match="GiB are available") as caught:
        check_fits(plan, ops, 1 << 16, high)
    assert caught.value.hint.startswith(f"Use --ctx {wanted},")
    assert not fits(wanted + 256, high)


def test_too_little_memory_for_the_weights_offers_no_context(plan):
    with pytest.raises(NotEnoughMemory) as caught:
        check_fits(plan, CpuOps(), 4096, 1 << 20)
    assert "--ctx" not in caught.value.hint and "\n" not in str(caught.value)


@pytest.mark.parametrize("n_tokens", [1, 300, 700])
def test_state_bytes_are_those_of_the_arrays(n_tokens, plan):
    shape = plan.config.shape
    for ratio in (0, 4, 128):
        state = CpuOps().deepseek_v4().layer_state(shape, ratio, n_tokens, True)
        held = state.window.raw.nbytes
        for _, part in state._parts():
            part.rows.append(np.zeros((n_tokens // ratio, part.width), np.float32))
            held += part.frontier.raw.nbytes + part.rows.rows.nbytes
        assert held == state_bytes(shape, ratio, n_tokens), ratio


def test_prompts_are_read_in_the_longest_chunk_that_leaves_half_of_the_memory():
    position = 1 << 20
    free = [100 << 30, 4095 << 20, 2047 << 20, 1 << 20]
    assert [chunk_tokens("cuda", n, position) for n in free] == [2048, 1024, 512, 512]
    assert chunk_tokens("cuda", None, position) == 2048
    assert chunk_tokens("cpu", None, position) == 256


def test_a_session_asks_the_model_for_its_chunk(plan):
    model = plan.load(CpuOps(), None, None)
    cuts = []

    class Longer:
        def __getattr__(self, name):
            return getattr(model, name)

        def chunk_tokens(self, ctx):
            assert ctx == 64
            return 5

        def embed(self, token_ids):
            cuts.append(len(token_ids))
            return model.embed(token_ids)

    session = Session(Longer(), Tokenizer(["!"], [], [1], "joyai-llm", eos_id=0), (), 64, "0" * 40)
    session._are_known = lambda tokens: True
    session.sync(list(range(12)))
    assert cuts == [5, 5, 2] and model.chunk_tokens(64) == 256


def least(plan, ctx: int, **held: int) -> int:
    """Return the least memory in which it fits."""
    low, high = 0, 1 << 40
    while low + 1 < high:
        middle = (low + high) // 2
        try:
            check_fits(plan, CpuOps(), ctx, middle, **held)
        except NotEnoughMemory:
            low = middle
        else:
            high = middle
    return high


def test_every_session_and_every_copy_counts(plan):
    ctx = 1 << 16
    one, session = least(plan, ctx), plan.cache_bytes(CpuOps(), ctx)
    assert least(plan, ctx, n_sessions=2) == one + session
    assert least(plan, ctx, n_sessions=2, n_copies=1) == one + 2 * session
    with pytest.raises(NotEnoughMemory, match="for each of 3 conversations") as caught:
        check_fits(plan, CpuOps(), ctx, one + 2 * session - 1, n_sessions=3)
    assert caught.value.hint.startswith("Use --live-sessions 2, --ctx ")
    with pytest.raises(NotEnoughMemory) as caught:
        check_fits(plan, CpuOps(), ctx, one - 1, n_sessions=3)
    assert caught.value.hint.startswith("Use --ctx ")


def test_a_device_with_memory_of_its_own_holds_no_copies(plan, monkeypatch):
    ctx = 1 << 16
    two = least(plan, ctx, n_sessions=2)
    monkeypatch.setattr(CpuOps, "free_bytes", lambda self: two)
    check_fits(plan, CpuOps(), ctx, 0, n_sessions=2, n_copies=1)
    with pytest.raises(NotEnoughMemory):
        check_fits(plan, CpuOps(), ctx, 0, n_sessions=3)


def test_the_memory_is_asked_for_with_what_is_to_be_held():
    path = FIXTURES / "tiny-v4-q.gguf"
    with GgufFile.open(path) as gguf:
        free = least(plan_for(gguf), 1 << 16)
    options = {"device": "cpu", "ctx": 1 << 16, "free_memory": lambda: free}
    Engine.open(path, **options).close()
    with pytest.raises(NotEnoughMemory, match="2 conversations"):
        Engine.open(path, **options, n_sessions=2)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (RuntimeError("[malloc] Unable to allocate 17179869184 bytes."), True),
        (RuntimeError("[metal::malloc] Resource limit (499000) exceeded."), True),
        (RuntimeError("cudaMallocAsync(&data, size, stream) failed: out of memory"), True),
        (RuntimeError("[matmul] Last dimension of first input"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_which_errors_tell_that_memory_ran_out(error, expected):
    assert is_out_of_memory(error) is expected
