"""A whole small DeepSeek V4 by the launches of decoded positions, against the cpu world.

The cpu world equals the oracles (tests/engine). Sums of float32 are in another order here, so
values differ in the last bits, and a stored value next to a boundary of FP8 may fall to the other
side: one step of its grid, 1/8 of the value. So each position begins with the cpu world's state.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from engine.families.registry import plan_for  # noqa: E402
from engine.gguf_file import GgufFile  # noqa: E402
from mlx_kernels.cpu.operations import CpuOps  # noqa: E402
from mlx_kernels.gpu.operations import MlxOps  # noqa: E402
from tests.mlx_kernels.decode_worlds import NEEDS_COMPILER, WORLDS, packed_kernels  # noqa: E402

pytestmark = NEEDS_COMPILER
FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4_tiny"
TOKENS = np.array(
    json.loads((FIXTURES / "tokens.json").read_text(encoding="utf-8"))["long"]["tokens"], np.int32
)
N_LAYERS = 6
CLOSE = 1e-3  # of the largest value: 1e-5 is usual, after a step of FP8 3e-4 was seen
FP8_STEP = 2.0**-3


def load(ops: Any) -> Any:
    with GgufFile.open(FIXTURES / "tiny-v4-q.gguf") as gguf:
        return plan_for(gguf).load(ops, None, None)


@pytest.fixture(scope="module")
def expected() -> Any:
    return load(CpuOps(exact_products=True))


@pytest.fixture(scope="module", params=WORLDS)
def model(request: pytest.FixtureRequest) -> Any:
    return load(MlxOps("mlx-cpu", packed_kernels(request.param)))


def begun(model: Any, n: int) -> Any:
    """A state after the first ``n`` tokens."""
    cache = model.new_cache(len(TOKENS))
    if n:
        model.layers(0, N_LAYERS, model.embed(TOKENS[:n]), cache, TOKENS[:n])
    return cache


def step(model: Any, cache: Any, first: int, n: int = 1) -> np.ndarray:
    """Logits of ``n`` positions at once."""
    ids = TOKENS[first : first + n]
    return model.head(model.layers(0, N_LAYERS, model.embed(ids), cache, ids))


def forbid_steps(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is not done by decode launches fails."""
    from mlx_kernels.gpu.deepseek_v4 import operations

    def refuse(*_: Any) -> None:
        raise AssertionError("a single position took the steps of a prompt")

    monkeypatch.setattr(operations, "attention_steps", refuse)
    monkeypatch.setattr(operations, "feed_forward_steps", refuse)


@pytest.mark.parametrize(
    ("first", "n"),
    [
        (0, 5),  # the first tokens of all, and the first row of four
        (127, 1),  # the first row of 128; the window is full
        (131, 2),  # the last position that reads every row, then one that chooses
        pytest.param(255, 6, marks=pytest.mark.slow),
    ],
)
def test_decoded_positions(model, expected, first, n, monkeypatch):
    there = begun(expected, first)
    forbid_steps(model, monkeypatch)
    for at in range(first, first + n):
        cache = model.new_cache(len(TOKENS))
        cache.load(there.arrays(), at)
        logits, found = step(expected, there, at), step(model, cache, at)
        np.testing.assert_allclose(found, logits, rtol=0, atol=CLOSE * np.abs(logits).max())
        compare_states(cache, there)


def compare_states(cache: Any, there: Any) -> None:
    states = cache.arrays()
    for name, array in there.arrays().items():
        other = states[name].astype(np.float32)
        assert other.shape == array.shape, name
        if not array.size:
            continue
        error = np.abs(other - array.astype(np.float32))
        is_grid = array.dtype == np.float16
        allowed = CLOSE * np.abs(array.astype(np.float32)).max()
        near = (
            error <= np.maximum(allowed, FP8_STEP * np.abs(other)) if is_grid else error <= allowed
        )
        assert near.all(), name
        assert (error > allowed).mean() < 0.02, name  # steps of the grid are rare


def test_an_output_matrix_that_is_too_wide_to_be_staged_whole(expected, monkeypatch):
    """As in V4 Pro: its columns are read in two parts."""
    from mlx_kernels.gpu.deepseek_v4 import decode_layer

    monkeypatch.setattr(decode_layer, "_PART_COLUMNS", 64)  # of 128
    model = load(MlxOps("mlx-cpu", packed_kernels("metal")))
    forbid_steps(model, monkeypatch)
    there, cache = begun(expected, 131), model.new_cache(len(TOKENS))
    cache.load(there.arrays(), 131)
    for at in (131, 132):
        logits, found = step(expected, there, at), step(model, cache, at)
        np.testing.assert_allclose(found, logits, rtol=0, atol=CLOSE * np.abs(logits).max())
    launches = [own for _, own in model._v4._decoder._layers.values()]
    assert [own.n_parts for own, _ in launches] == [2] * N_LAYERS


@pytest.mark.slow
def test_launches_have_no_fault_that_the_checked_build_sees(expected):
    """Races, accesses out of bounds, values that nobody wrote; and what is left unwritten."""
    from mlx_kernels.gpu.metal_kernels import MetalKernels
    from tests.metal.mlx_kernel import Harness

    harness = Harness("checked")
    model = load(MlxOps("mlx-cpu", MetalKernels(harness.metal_kernel)))
    there, cache = begun(expected, 135), model.new_cache(len(TOKENS))
    cache.load(there.arrays(), 135)
    logits = step(expected, there, 135)
    np.testing.assert_allclose(step(model, cache, 135), logits, atol=CLOSE * np.abs(logits).max())
    unwritten = {
        output
        for launch in harness.launches
        for output in launch.kernel.output_names
        if launch.report.traffic[output].unwritten
    }
    # Outputs for what a layer does not have; scores of rows that are not there yet.
    no_rows = {"new_frontier", "row", "new_index_frontier", "index_row"}
    assert unwritten <= no_rows | {"scores"}


def test_a_position_that_was_taken_back_gives_the_same_bits(model, expected):
    first = 126
    cache = model.new_cache(len(TOKENS))
    cache.load(begun(expected, first).arrays(), first)
    logits = [step(model, cache, at) for at in (first, first + 1, first + 2)]
    cache.truncate(first + 1)
    assert np.array_equal(step(model, cache, first + 1), logits[1])
    assert np.array_equal(step(model, cache, first + 2), logits[2])


def test_several_positions_take_the_steps_of_a_prompt(model, expected):
    """And a single one goes on from what they left."""
    there, cache = begun(expected, 9), model.new_cache(len(TOKENS))
    cache.load(there.arrays(), 9)
    for first, n in ((9, 3), (12, 1)):
        logits, found = step(expected, there, first, n), step(model, cache, first, n)
        np.testing.assert_allclose(found, logits, rtol=0, atol=5e-3 * np.abs(logits).max())
