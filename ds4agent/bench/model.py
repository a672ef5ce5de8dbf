"""How fast a model reads a prompt and writes an answer, and what it costs to load.

A prompt of arbitrary tokens is read in one go; then the likeliest token is taken again and again,
whatever it is, so that every run does the same work. A short run comes first and is not counted: it
pages the weights in.
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from engine.engine import Engine
from engine.errors import EngineError

_WARM_UP_TOKENS = 8
_SEED = 20261129  # any; the same prompt at every run

OpenEngine = Callable[[Path, str, int], Engine]


@dataclass(frozen=True, slots=True)
class Row:
    """Medians over the repetitions at one prompt length. Rates are tokens a second."""

    context: int  # tokens in the state before the first decoded one
    prefill_tps: float
    decode_tps: float


@dataclass(frozen=True, slots=True)
class ModelBench:
    """The result of one run."""

    name: str
    quant: str
    file_bytes: int
    device: str
    load_s: float
    peak_rss_bytes: int
    gen_tokens: int
    rows: tuple[Row, ...]


def measure(
    path: Path,
    device: str,
    prompt_tokens: Sequence[int],
    gen_tokens: int,
    *,
    repeat: int = 1,
    progress: Callable[[str], None] = lambda text: None,
    open_engine: OpenEngine = Engine.open,
) -> ModelBench:
    """Load a model and time it.

    Args:
        path: the model file.
        device: a device name, ``auto`` included.
        prompt_tokens: prompt lengths; each gives a row.
        gen_tokens: tokens decoded after each prompt.
        repeat: runs of each length.
        progress: takes a line about what happens now.
        open_engine: path, device, context length -> engine.

    Raises:
        EngineError: the model cannot be loaded, or the lengths do not fit its context.
    """
    needed = max(prompt_tokens) + gen_tokens
    progress(f"loading {path.name}")
    started = time.perf_counter()
    engine = open_engine(path, device, needed)
    load_s = time.perf_counter() - started
    try:
        if engine.info.ctx < needed:
            raise EngineError(
                f"{needed} tokens do not fit into the context of {engine.info.ctx}",
                "Give a smaller --prompt-tokens.",
            )
        prompt = np.random.default_rng(_SEED).integers(0, engine.info.n_vocab, max(prompt_tokens))
        _run(engine, prompt[:_WARM_UP_TOKENS].tolist(), 1)
        rows = []
        for length in prompt_tokens:
            runs = []
            for number in range(1, repeat + 1):
                progress(f"{length} + {gen_tokens} tokens, run {number} of {repeat}")
                runs.append(_run(engine, prompt[:length].tolist(), gen_tokens))
            prefill = statistics.median(run[0] for run in runs)
            decode = statistics.median(run[1] for run in runs)
            rows.append(Row(length, length / prefill, gen_tokens / decode))
        info = engine.info
        return ModelBench(
            name=info.name,
            quant=info.quant,
            file_bytes=info.file_bytes,
            device=info.device,
            load_s=load_s,
            peak_rss_bytes=peak_rss_bytes(),
            gen_tokens=gen_tokens,
            rows=tuple(rows),
        )
    finally:
        engine.close()


def peak_rss_bytes() -> int:
    """Return the most memory this process has held, mapped file pages included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _run(engine: Engine, prompt: list[int], gen_tokens: int) -> tuple[float, float]:
    """Return the seconds of reading ``prompt`` and of decoding ``gen_tokens``."""
    session = engine.new_session()
    started = time.perf_counter()
    session.sync(prompt)
    read = time.perf_counter()
    for _ in range(gen_tokens):
        session.extend([int(session.logits.argmax())])
    return read - started, time.perf_counter() - read
