"""Counting what a turn costs, and telling the screen while it runs."""

import time

from ds4agent.agent.conversation import Progress
from ds4agent.agent.event_stream import EventStream
from ds4agent.events import GenerationProgress, LoadProgress, PrefillProgress, Usage
from engine.state import SyncReport

_INTERVAL_S = 0.1  # progress events: at most ten a second


def load_reporter(stream: EventStream) -> Progress:
    """Return a progress callback for loading a model (bytes done, bytes in all)."""
    last_s = 0.0

    def report(done: int, total: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if done >= total or now_s - last_s >= _INTERVAL_S:
            last_s = now_s
            stream.emit(LoadProgress(done, total))

    return report


def file_reporter(stream: EventStream) -> Progress:
    """Return a progress callback for a conversation that is read or written (bytes done, bytes in
    all). What takes no longer than one interval is not told."""
    last_s = time.monotonic()

    def report(done: int, total: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if now_s - last_s >= _INTERVAL_S:
            last_s = now_s
            stream.emit(LoadProgress(done, total))

    return report


def prefill_reporter(stream: EventStream, n_tokens: int) -> Progress:
    """Say that ``n_tokens`` are to be computed, and return the progress callback for it."""
    start_s = last_s = time.monotonic()
    stream.emit(PrefillProgress(0, n_tokens, 0.0))

    def report(done: int, total: int) -> None:
        nonlocal last_s
        now_s = time.monotonic()
        if done < total and now_s - last_s < _INTERVAL_S:
            return
        last_s = now_s
        stream.emit(PrefillProgress(done, total, done / max(now_s - start_s, 1e-6)))

    return report


class Meter:
    """Adds up one turn.

    Without a rewind in between, reused + prefilled + generated tokens are the tokens of the
    context at the end.
    """

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._reused: int | None = None
        self._prefilled = 0
        self._generated = 0
        self._prefill_s = 0.0
        self._generate_s = 0.0
        self._round_start_s = 0.0
        self._round_base = 0
        self._round_generated = 0
        self._last_emit_s = 0.0

    def count_prefill(self, report: SyncReport) -> None:
        """Add one prefill; the first of a turn tells what was reused."""
        if self._reused is None:
            self._reused = report.reused
        self._prefilled += report.prefilled
        self._prefill_s += report.seconds

    def begin_round(self, context_tokens: int) -> None:
        """Begin an answer; ``context_tokens`` are in the state before it."""
        self._round_base = context_tokens
        self._round_start_s = time.monotonic()
        self._round_generated = 0

    def count_token(self) -> None:
        """Count one generated token."""
        self._generated += 1
        self._round_generated += 1
        now_s = time.monotonic()
        if now_s - self._last_emit_s >= _INTERVAL_S:
            self._last_emit_s = now_s
            rate = self._round_generated / max(now_s - self._round_start_s, 1e-6)
            n_context = self._round_base + self._round_generated
            self._stream.emit(GenerationProgress(self._round_generated, rate, n_context))

    def end_round(self) -> None:
        """End an answer."""
        self._generate_s += time.monotonic() - self._round_start_s

    def usage(self, context_tokens: int, context_size: int) -> Usage:
        """Return the sum of the turn."""
        return Usage(
            reused_tokens=self._reused if self._reused is not None else context_tokens,
            prefilled_tokens=self._prefilled,
            generated_tokens=self._generated,
            context_tokens=context_tokens,
            context_size=context_size,
            prefill_seconds=self._prefill_s,
            generate_seconds=self._generate_s,
        )
