"""Models on device metal's path, in the harness, against an independent implementation."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mlx.core", reason="needs MLX (pip install ds4-agent[cpu])")

from engine.families.registry import plan_for  # noqa: E402
from engine.gguf_file import GgufFile  # noqa: E402
from tests.engine import test_deepseek_v4_logits as deepseek_v4  # noqa: E402
from tests.engine.test_oracle import (  # noqa: E402
    FIXTURES,
    REAL_MAX,
    REAL_RMS,
    TINY,
    TINY_MAX,
    TINY_RMS,
    check_argmax,
    rms,
)
from tests.metal.mlx_kernel import Harness  # noqa: E402
from tests.metal.world import metal_ops  # noqa: E402


def logits_of(path: Path, tokens: np.ndarray, cuts: list[int]) -> tuple[np.ndarray, set[str]]:
    """Logits [T, V] of tokens that are read in parts, and the names of the kernels."""
    harness = Harness()
    with GgufFile.open(path) as gguf:
        model = plan_for(gguf).load(metal_ops(harness), None, None)
    cache, rows = model.new_cache(128), []
    for ids in np.split(tokens, cuts):
        hidden = model.layers(0, model.n_layers, model.embed(ids), cache, ids)
        rows.append(model.head(hidden))
    return np.concatenate(rows), {launch.kernel.name for launch in harness.launches}


@pytest.mark.parametrize(
    "kind", [k if k == "qwen2" else pytest.param(k, marks=pytest.mark.slow) for k in TINY]
)
def test_tiny_model_gives_the_logits_of_transformers(kind: str) -> None:
    """Two prompts, then single positions."""
    oracle = np.load(FIXTURES / f"tiny-{kind}.npz")
    tokens = oracle["tokens"].astype(np.int32)
    ours, names = logits_of(FIXTURES / f"tiny-{kind}.gguf", tokens, [66, 90, 91, 92])
    difference = ours - oracle["logits"]
    assert np.abs(difference).max() < TINY_MAX
    assert rms(difference) < TINY_RMS
    kinds = ("matvec", "tile_product", "dequantize")
    assert all(any(kernel in name for name in names) for kernel in kinds)


@pytest.mark.slow
@pytest.mark.model
def test_smollm2_gives_the_logits_of_transformers(smollm2_path: Path) -> None:
    """A trained model of 135 million weights, each multiplied lane by lane: a minute."""
    oracle = np.load(FIXTURES / "smollm2-135m.npz")
    n = 12
    tokens = oracle["tokens"][:n].astype(np.int32)
    ours, names = logits_of(smollm2_path, tokens, [9, 10])
    assert check_argmax(ours, oracle["top_ids"][:n], oracle["top_logits"][:n], REAL_MAX) >= 0.9
    difference = ours[:, oracle["columns"]] - oracle["column_logits"][:n]
    assert np.abs(difference).max() < REAL_MAX and rms(difference) < REAL_RMS
    kernels = {"gate_up_q4_1", "matvec_q4_1", "matvec_q8_0", "tile_product_q4_1"}
    assert {f"ds4_{kernel}" for kernel in kernels} <= names


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "rounds", "build"),
    [
        ("micro", False, "fast"),
        ("short", False, "fast"),
        ("short", True, "fast"),
        ("micro", True, "checked"),
    ],
)
def test_tiny_deepseek_v4_gives_the_logits_of_the_oracles(
    case: str, rounds: bool, build: str
) -> None:
    """A prompt in tiles, then single positions in few launches a layer."""
    harness = Harness(build)
    with GgufFile.open(deepseek_v4.FIXTURES / "tiny-v4-q.gguf") as gguf:
        model = plan_for(gguf).load(metal_ops(harness), None, None)
    ours, n = deepseek_v4.logits_of(model, case, rounds), deepseek_v4.CASES[case]["prefill"]
    for name in ("hfsim", "ds4sim") if rounds else ("hf",):
        oracle = np.load(deepseek_v4.FIXTURES / f"{name}.npz")
        prefill, decode = oracle[f"{case}.prefill"], oracle[f"{case}.decode"]
        for rows, theirs in ((ours[: len(prefill)], prefill), (ours[n - 1 :], decode)):
            assert rows.shape == theirs.shape
            difference = np.abs(rows - theirs)
            if rounds:
                assert difference.mean() < deepseek_v4.ROUNDED_MEAN["short"]
            else:
                assert difference.max() < deepseek_v4.UNROUNDED_MAX
            assert (rows.argmax(1) == theirs.argmax(1)).all()
    names = {launch.kernel.name for launch in harness.launches}
    assert {"ds4_gate_up_iq2_xxs", "ds4_down_q2_k"} <= names
    assert ("ds4_v4_attention" in names) == rounds
    assert ("ds4_tile_gate_up_iq2_xxs" in names) == (n > 8)
