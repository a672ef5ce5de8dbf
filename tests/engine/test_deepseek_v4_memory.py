"""What a DeepSeek V4 file is said to need, and which context is offered when it does not fit."""

from pathlib import Path

import numpy as np
import pytest

from engine.errors import NotEnoughMemory
from engine.families.deepseek_v4.scratch import chunk_tokens
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from engine.memory import check_fits
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
