"""Time, bandwidth and arithmetic rate of single operations.

In a network one operation follows another without a pause. So a call is not timed alone: calls
are made until they take long enough together, each reads other weights than the one before, and
the time is divided by their number. In the gpu world the calls of a run are evaluated as one
graph; its clock starts when the graph is built, because a network is built while the one of the
token before still runs.
"""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

import numpy as np

from ds4agent.bench.kernel_cases import Call, Case, Prepared
from mlx_kernels.errors import KernelError
from mlx_kernels.ops import Ops

_MIN_RUN_S = 0.05  # of calls timed together
_MAX_CALLS = 2048
_MAX_RESULT_BYTES = 512 << 20  # of one graph's results
_SEED = 20261203


@dataclass(frozen=True, slots=True)
class KernelRow:
    """One measured case. Rates are those of the median."""

    op: str
    tensor: str
    type: str
    shape: tuple[int, ...]
    positions: int
    median_us: float
    best_us: float
    gb_per_s: float
    gflop_per_s: float
    share: float  # of the copy ceiling


@dataclass(frozen=True, slots=True)
class Failure:
    """A case that the device refuses."""

    op: str
    tensor: str
    type: str
    error: str


@dataclass(frozen=True, slots=True)
class KernelBench:
    """The result of one run."""

    device: str
    copy_gb_per_s: float
    rows: tuple[KernelRow, ...]
    failures: tuple[Failure, ...]


def measure(
    ops: Ops,
    cases: Sequence[Case],
    copy_bandwidth: Callable[[str], float],
    *,
    repeat: int = 5,
    progress: Callable[[str], None] = lambda text: None,
) -> KernelBench:
    """Time every case.

    Args:
        ops: the operations of a device.
        cases: what to time.
        copy_bandwidth: device -> bytes a second, read plus written.
        repeat: runs of each case; the median and the best are told.
        progress: takes a line about what happens now.
    """
    progress("measuring the copy ceiling")
    ceiling = copy_bandwidth(ops.device)
    random = np.random.default_rng(_SEED)
    rows, failures = [], []
    for case in cases:
        progress(f"{case.op} {case.tensor} {case.type_name} {list(case.shape)}")
        try:
            prepared = case.prepare(ops, random)
            seconds = time_calls(ops, prepared, repeat)
        except KernelError as error:
            failures.append(Failure(case.op, case.tensor, case.type_name, str(error)))
            continue
        rows.append(row_of(case, prepared, seconds, ceiling))
        del prepared  # before the next case's weights are made
    return KernelBench(ops.device, ceiling / 1e9, tuple(rows), tuple(failures))


def row_of(case: Case, prepared: Prepared, seconds: Sequence[float], ceiling: float) -> KernelRow:
    """Turn the seconds of a call, one for each run, into a row."""
    median = statistics.median(seconds)
    return KernelRow(
        case.op,
        case.tensor,
        case.type_name,
        case.shape,
        case.n_positions,
        median_us=median * 1e6,
        best_us=min(seconds) * 1e6,
        gb_per_s=prepared.n_bytes / median / 1e9,
        gflop_per_s=prepared.n_flops / median / 1e9,
        share=prepared.n_bytes / median / ceiling,
    )


def time_calls(ops: Ops, prepared: Prepared, repeat: int) -> list[float]:
    """Return the seconds of a call, measured ``repeat`` times over enough calls."""
    calls = cycle(prepared.calls)
    for _ in prepared.calls:  # pages in, compiles
        ops.evaluate([next(calls)()])
    most = min(_MAX_CALLS, max(1, _MAX_RESULT_BYTES // max(1, prepared.out_bytes)))
    n_calls = 1
    while n_calls < most and _seconds(ops, calls, n_calls) < _MIN_RUN_S:
        n_calls = min(most, 2 * n_calls)
    return [_seconds(ops, calls, n_calls) / n_calls for _ in range(repeat)]


def _seconds(ops: Ops, calls: Iterator[Call], n_calls: int) -> float:
    if ops.device == "cpu":
        started = time.perf_counter()
        for _ in range(n_calls):
            next(calls)()
        return time.perf_counter() - started
    results = [next(calls)() for _ in range(n_calls)]
    started = time.perf_counter()
    ops.evaluate(results)
    return time.perf_counter() - started
