"""A real trained model: SmolLM2-135M-Instruct, Q4_1 with a Q8_0 embedding."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from engine.sampling_options import SamplingOptions

pytestmark = pytest.mark.model
GREEDY = SamplingOptions(temperature=0.0)
TEXT = (
    "The Eiffel Tower is a wrought-iron tower in Paris, France. It was built by the company of "
    "Gustave Eiffel, and"
)


@pytest.fixture(scope="module")
def engine(smollm2_path: Path) -> Engine:
    return Engine.open(smollm2_path, "cpu", ctx=1024)


def test_real_text_is_likely_and_continued_sensibly(engine: Engine) -> None:
    tokens = engine.tokenizer.encode(TEXT)
    logits = engine.logits_of(tokens).astype(np.float64)
    logprobs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    mean = np.mean([row[token] for row, token in zip(logprobs, tokens[1:], strict=False)])
    # A uniform guess has -10.8. Wrong rope pairs, a wrong norm or a swapped matrix end below -6.
    assert mean > -2.5

    session = engine.new_session()
    session.sync(engine.tokenizer.encode("The capital of France is"))
    text = b"".join(token.data for token in session.generate(GREEDY, 4))
    assert b"Paris" in text


@pytest.mark.skipif(
    importlib.util.find_spec("mlx") is None, reason="needs mlx (pip install ds4-agent[cpu])"
)
def test_both_worlds_agree_on_real_weights(engine: Engine, smollm2_path: Path) -> None:
    tokens = engine.tokenizer.encode(TEXT)[:20]  # 17 or more: computed without rounding
    ours = engine.logits_of(tokens)
    theirs = Engine.open(smollm2_path, "mlx-cpu", ctx=64).logits_of(tokens)
    # Logits have a standard deviation of 9. Differences of the last float32 bit pass 30 layers
    # and the float16 rounding of keys and values; measured: at most 9e-3.
    np.testing.assert_allclose(ours, theirs, atol=0.05)
    assert np.array_equal(ours.argmax(axis=1), theirs.argmax(axis=1))


def test_last_logits_of_a_prompt_are_those_of_the_whole_text(engine: Engine) -> None:
    """A session computes the output matrix for the last position only, and so in 8 bits."""
    tokens = engine.tokenizer.encode(TEXT)
    session = engine.new_session()
    session.sync(tokens)
    difference = session.logits - engine.logits_of(tokens)[-1]
    # One product whose activations are rounded to 1/254 of the largest of 32. Measured at five
    # places: 0.05 to 0.08 rms, 0.31 at most of 49,152 logits.
    assert np.sqrt(np.mean(difference**2)) < 0.15
    assert np.abs(difference).max() < 0.6


def test_restored_session_continues_with_the_same_64_tokens(
    smollm2_path: Path, cpu_device: str
) -> None:
    engine = Engine.open(smollm2_path, cpu_device, ctx=256)
    session = engine.new_session()
    session.sync(engine.tokenizer.encode(TEXT))
    state = session.state()
    expected = [token.id for token in session.generate(GREEDY, 64)]
    restored = engine.restore(state)
    assert [token.id for token in restored.generate(GREEDY, 64)] == expected
