"""How fast a model reads a prompt and writes an answer, and what it costs to load.

A prompt of arbitrary tokens is read up to each *context frontier*. There the state is saved, some
tokens are decoded (the likeliest one each time, whatever it is, so that every run does the same
work), and the saved state is restored, from which the next frontier is read. So a prefill rate is
that of the tokens between two frontiers, and a decode rate that of the first tokens after one.

A short run comes first and is not counted: it pages the weights in. A peer runs after each of our
runs, so that a machine that becomes slower or faster does so for both.
"""

import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from engine.engine import Engine
from engine.errors import EngineError
from engine.session import Session
from engine.state import ModelInfo

_WARM_UP_TOKENS = 8  # on a CPU; a GPU makes its kernels for many positions, too, when it meets them
_WARM_UP_DECODES = 8  # a GPU keeps graphs of the first few tokens, which take several times longer
_SEED = 20261129  # any; the same prompt at every run

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Timing:
    """One run up to one frontier and past it."""

    context: int  # tokens in the state before the first decoded one
    prefill_tokens: int  # read since the frontier before
    prefill_s: float
    decode_tokens: int
    decode_s: float


@dataclass(frozen=True, slots=True)
class Row:
    """Medians over the repetitions at one frontier. Rates are tokens a second."""

    context: int
    prefill_tps: float
    decode_tps: float


@dataclass(frozen=True, slots=True)
class Ratio:
    """Our rate divided by the peer's: the geometric mean over all rows."""

    prefill: float
    decode: float


@dataclass(frozen=True, slots=True)
class ModelBench:
    """The result of one run."""

    name: str
    quant: str
    file_bytes: int
    device: str
    load_s: float
    peak_rss_bytes: int  # after our first run, before a peer is loaded
    gen_tokens: int
    rows: tuple[Row, ...]
    peer: str = ""
    peer_rows: tuple[Row, ...] = ()
    ratio: Ratio | None = None


class Runner(Protocol):
    """A program that has loaded a model."""

    def run(
        self, prompt: Sequence[int], contexts: Sequence[int], gen_tokens: int
    ) -> tuple[Timing, ...]:
        """Start from nothing, read up to each frontier (ascending), and decode at each."""

    def close(self) -> None:
        """Give the model back."""


class OpenModel(Protocol):
    """What is measured of an engine."""

    info: ModelInfo

    def new_session(self) -> Session:
        """Start an empty conversation."""

    def close(self) -> None:
        """Give the model back."""


OpenEngine = Callable[[Path, str, int], OpenModel]


class EngineRunner:
    """This program."""

    def __init__(self, engine: OpenModel) -> None:
        self._engine = engine

    def run(
        self, prompt: Sequence[int], contexts: Sequence[int], gen_tokens: int
    ) -> tuple[Timing, ...]:
        """See ``Runner``."""
        session = self._engine.new_session()
        timings, n_before = [], 0
        for context in contexts:
            started = time.perf_counter()
            session.sync(prompt[:context])
            read = time.perf_counter()
            state = session.state()
            decoding = time.perf_counter()
            for _ in range(gen_tokens):
                session.extend([int(session.logits.argmax())])
            decode_s = time.perf_counter() - decoding
            timings.append(
                Timing(context, context - n_before, read - started, gen_tokens, decode_s)
            )
            session.load(state)
            n_before = context
        return tuple(timings)

    def close(self) -> None:
        """See ``Runner``."""
        self._engine.close()


def measure(
    path: Path,
    device: str,
    contexts: Sequence[int],
    gen_tokens: int,
    *,
    repeat: int = 1,
    progress: Progress = lambda text: None,
    open_engine: OpenEngine = Engine.open,
    peer: str = "",
    open_peer: Callable[[int], Runner] | None = None,
) -> ModelBench:
    """Load a model and time it.

    Args:
        path: the model file.
        device: a device name, ``auto`` included.
        contexts: frontiers in tokens, in any order; each gives a row.
        gen_tokens: tokens decoded at each frontier.
        repeat: runs over all frontiers.
        progress: takes a line about what happens now.
        open_engine: path, device, context length -> engine.
        peer: name of another program to run in turn with this one.
        open_peer: context length -> the peer with the same file loaded; None for no peer.

    Raises:
        EngineError: the model cannot be loaded, or the frontiers do not fit its context.
    """
    contexts = sorted(set(contexts))
    needed = contexts[-1] + gen_tokens
    progress(f"loading {path.name}")
    started = time.perf_counter()
    engine = open_engine(path, device, needed)
    load_s = time.perf_counter() - started
    runners: list[Runner] = [EngineRunner(engine)]
    try:
        info = engine.info
        if info.ctx < needed:
            raise EngineError(
                f"{needed} tokens do not fit into the context of {info.ctx}",
                "Give smaller --contexts.",
            )
        prompt = np.random.default_rng(_SEED).integers(0, info.n_vocab, contexts[-1]).tolist()
        is_gpu = info.device in ("cuda", "metal")
        n_first = contexts[0] if is_gpu else min(_WARM_UP_TOKENS, len(prompt))
        warm_up = prompt[:n_first], [n_first], min(gen_tokens, _WARM_UP_DECODES)
        runners[0].run(*warm_up)
        ours, theirs, peak = [], [], 0
        for number in range(1, repeat + 1):
            told = f"{contexts} + {gen_tokens} tokens, run {number} of {repeat}"
            progress(told)
            ours.append(runners[0].run(prompt, contexts, gen_tokens))
            peak = peak or peak_rss_bytes()
            if open_peer is None:
                continue
            if len(runners) == 1:
                progress(f"loading {path.name} into {peer}")
                # one more: a peer may keep room for a token that it samples and never reads
                runners.append(open_peer(needed + 1))
                runners[1].run(*warm_up)
            progress(f"{told} ({peer})")
            theirs.append(runners[1].run(prompt, contexts, gen_tokens))
        rows, peer_rows = rows_of(ours), rows_of(theirs)
        return ModelBench(
            name=info.name,
            quant=info.quant,
            file_bytes=info.file_bytes,
            device=info.device,
            load_s=load_s,
            peak_rss_bytes=peak,
            gen_tokens=gen_tokens,
            rows=rows,
            peer=peer if peer_rows else "",
            peer_rows=peer_rows,
            ratio=ratio_of(rows, peer_rows) if peer_rows else None,
        )
    finally:
        for runner in runners:
            runner.close()


def rows_of(runs: Sequence[Sequence[Timing]]) -> tuple[Row, ...]:
    """Medians over runs, each of which has a timing for every frontier."""
    return tuple(
        Row(
            timings[0].context,
            statistics.median(each.prefill_tokens / each.prefill_s for each in timings),
            statistics.median(each.decode_tokens / each.decode_s for each in timings),
        )
        for timings in zip(*runs, strict=True)
    )


def ratio_of(rows: Sequence[Row], peer_rows: Sequence[Row]) -> Ratio:
    """Compare rows of equal frontiers."""
    pairs = list(zip(rows, peer_rows, strict=True))
    return Ratio(
        statistics.geometric_mean(ours.prefill_tps / theirs.prefill_tps for ours, theirs in pairs),
        statistics.geometric_mean(ours.decode_tps / theirs.decode_tps for ours, theirs in pairs),
    )


def peak_rss_bytes() -> int:
    """Return the most memory this process has held, mapped file pages included."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
