"""What a DeepSeek V4 file is said to need, and which context is offered when it does not fit."""

from pathlib import Path

import numpy as np
import pytest

from engine.errors import NotEnoughMemory
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from engine.memory import check_fits
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
