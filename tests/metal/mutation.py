"""Runs mutants of the kernels' texts: each must be found, or be known as harmless.

A text is one file of ``bodies/``. The launches that the cases make are recorded, and a mutant of a
line is run on some of those that reach this line: in the fast build (not optimised, that would cost
most of the time), in the checked one, with lanes and groups in descending order, and in the clang
build, until something is found: a fault, another result, more bytes moved, bytes not written.
``harmless_mutants.toml`` names those that nothing can find, with the reason.

``python -m tests.metal.mutation [TEXT ...]`` prints figures and what was not found.
"""

import os
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from itertools import zip_longest
from pathlib import Path

import numpy as np

from mlx_kernels.gpu.metal_cases import Case, all_cases
from tests.metal.cases import MOST_TRAFFIC, run_case
from tests.metal.compiler import CompileError, available_builds
from tests.metal.launch import MetalKernel, Report
from tests.metal.mlx_kernel import Launch
from tests.metal.mutants import Mutant, mutants

HARMLESS = Path(__file__).with_name("harmless_mutants.toml")
TIMEOUT_S = 4.0  # a launch takes milliseconds
N_LAUNCHES = 16  # that a mutant is run on, at most
# How a mutant can be found, in the order of trial: build and order of lanes.
WAYS = tuple(
    way
    for way in (
        *(("quick", "ascending"), ("checked", "ascending"), ("quick", "descending")),
        ("clang", "ascending"),  # an index past the end of a lane's own array
    )
    if way[0] in ("quick", *available_builds())
)
NO_PROGRAM, HARMLESS_ONE, NOT_FOUND = "no program", "harmless", "not found"
# A result is another one when it differs by more than this share of its size and of the root mean
# square of all: float32 sums in another order stay below, float16 results within their last bit.
DIFFERENT = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 2e-2}


@dataclass
class Text:
    """One file with kernel code, the launches of it and the lines that each reaches."""

    name: str
    text: str
    counts: list[dict[int, int]] = field(default_factory=list)  # line -> how often it ran
    launches: list[Launch] = field(default_factory=list)

    def launches_for(self, mutant: Mutant) -> list[int]:
        """Those that reach its line, most often first, of each kernel and template one and then the
        next; of all launches when it makes no code."""
        line = mutant.line
        has_code = any(line in counts for counts in self.counts)
        by_kernel: dict[tuple, list[int]] = {}
        for i, counts in enumerate(self.counts):
            if counts.get(line) or not has_code:
                launch = self.launches[i]
                # Values of a template choose the way through a text as much as its kernel does.
                key = (launch.kernel.name, tuple(launch.arguments["template"]))
                by_kernel.setdefault(key, []).append(i)
        for launches in by_kernel.values():
            launches.sort(key=lambda i: -self.counts[i].get(line, 0))
        in_turn = zip_longest(*by_kernel.values())
        return [i for turn in in_turn for i in turn if i is not None][:N_LAUNCHES]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: how it was found, or one of the constants above."""

    text: str
    mutant: Mutant
    how: str
    words: str = ""


def project_texts() -> dict[str, str]:
    """Name -> content of each Metal file of the project."""
    folder = resources.files("mlx_kernels.gpu").joinpath("bodies")
    return {
        path.name: path.read_text(encoding="utf-8")
        for path in sorted(folder.iterdir(), key=lambda path: path.name)
        if path.name.endswith(".metal")
    }


def recorded_texts(sources: dict[str, str], cases: Sequence[Case]) -> list[Text]:
    """The texts with the different launches that the cases make of them."""
    texts = [Text(name, content) for name, content in sources.items()]
    seen = set()
    for case in cases:
        _, launches = run_case(case)
        for launch in launches:
            a = launch.arguments
            shapes = tuple(array.shape for array in a["inputs"])
            key = (launch.kernel.name, tuple(a["template"]), a["grid"], shapes, *_numbers(launch))
            used = [t for t in texts if t.text in launch.kernel.header + launch.kernel.source]
            if key in seen or not used:
                continue
            seen.add(key)
            _, report = launch.kernel.run(**a, build="counted")
            for text in used:
                _add_lines(text, launch, report)
    return texts


def _numbers(launch: Launch) -> tuple[bytes, ...]:
    """Small inputs: positions and sizes, which choose the way through a kernel."""
    arrays = launch.arguments["inputs"]
    return tuple(a.tobytes() for a in arrays if a.dtype == np.int32 and a.size <= 8)


def _add_lines(text: Text, launch: Launch, report: Report) -> None:
    counts: dict[int, int] = {}
    for file, whole in (
        ("header.metal", launch.kernel.header),
        ("body.metal", launch.kernel.source),
    ):
        at = whole.find(text.text)
        if at < 0:
            continue
        first = whole.count("\n", 0, at)
        n_lines = text.text.count("\n") + 1
        for (name, line), count in report.lines.items():
            if name == file and 0 < line - first <= n_lines:
                counts[line - first] = count
    text.launches.append(launch)
    text.counts.append(counts)


def known_harmless() -> dict[str, dict[str, str]]:
    """Text -> key of a mutant -> why nothing can find it."""
    return tomllib.loads(HARMLESS.read_text(encoding="utf-8")) if HARMLESS.exists() else {}


def judge(text: Text, mutant: Mutant) -> Verdict:
    """Run one mutant until it is found."""
    rewrite = partial(_rewrite, text.text, mutant.apply(text.text))
    chosen = text.launches_for(mutant)
    for build, order in WAYS:
        for i in chosen:
            try:
                found = _finding(text.launches[i], rewrite, build, order)
            except CompileError as error:
                return Verdict(text.name, mutant, NO_PROGRAM, str(error)[:200])
            except ValueError as error:  # more than Metal has of something
                found = str(error)
            if found:
                return Verdict(text.name, mutant, _way(build, order), found)
    return Verdict(text.name, mutant, NOT_FOUND, "" if chosen else "no launch reaches the line")


def _finding(launch: Launch, rewrite: Callable[[str], str], build: str, order: str) -> str:
    """What a changed text does otherwise than the right one in the same build, or ""."""
    outputs, report = _run(launch, rewrite, build, order)
    if report.error:
        return report.error
    right, expected = _right_run(launch, build)
    dtypes = launch.arguments["output_dtypes"]
    for name, got, wanted, dtype in zip(
        launch.kernel.output_names, outputs, right, dtypes, strict=True
    ):
        if (n_different := _n_different(got, wanted, dtype)) > 0:
            return f"{n_different} other values of {name}"
    for name, now in report.traffic.items():
        before = expected.traffic[name]
        if now.unwritten > before.unwritten:
            return f"{now.unwritten} bytes of {name} never written"
        if now.fetched + now.written > MOST_TRAFFIC * (before.fetched + before.written):
            return f"{name} moves {now.fetched + now.written} bytes"
        if now.read > MOST_TRAFFIC * before.read:
            return f"{now.read} bytes of {name} read by lanes"
    return ""


def _run(
    launch: Launch, rewrite: Callable[[str], str], build: str, order: str
) -> tuple[list[np.ndarray], Report]:
    old = launch.kernel
    kernel = MetalKernel(
        *(old.name, old.input_names, old.output_names, rewrite(old.source), rewrite(old.header)),
        *(old.ensure_row_contiguous, old.atomic_outputs),
        bfloat16_inputs=old.bfloat16_inputs,
        timeout_s=TIMEOUT_S,
        keep=rewrite is str,
    )
    return kernel.run(**launch.arguments, build=build, order=order)


_right_runs: dict[tuple[int, str], tuple[list[np.ndarray], Report]] = {}


def _right_run(launch: Launch, build: str) -> tuple[list[np.ndarray], Report]:
    key = (id(launch), build)
    if key not in _right_runs:
        _right_runs[key] = outputs, report = _run(launch, str, build, "ascending")
        assert report.error is None, f"{launch.kernel.name}: {report.error}"
    return _right_runs[key]


def _n_different(got: np.ndarray, wanted: np.ndarray, dtype: str) -> int:
    if dtype not in DIFFERENT:
        return int((got != wanted).sum())
    bits = f"u{got.itemsize}"
    same = np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(wanted).view(bits)
    if dtype == "bfloat16":
        got, wanted = ((a.astype(np.uint32) << 16).view(np.float32) for a in (got, wanted))
    got, wanted = got.astype(np.float64), wanted.astype(np.float64)
    finite = wanted[np.isfinite(wanted)]
    size = np.sqrt(np.mean(finite**2)) if finite.size else 0.0
    with np.errstate(all="ignore"):
        near = np.abs(got - wanted) <= DIFFERENT[dtype] * (np.abs(wanted) + size)
    return int((~(same | near)).sum())


def _way(build: str, order: str) -> str:
    name = "fast" if build == "quick" else build
    return name if order == "ascending" else f"{name}, {order}"


def _rewrite(old: str, new: str, whole: str) -> str:
    return whole.replace(old, new)


def run_mutants(texts: list[Text], chosen: Sequence[tuple[str, Mutant]]) -> Iterable[Verdict]:
    """The verdicts of mutants (name of the text, mutant), in order, on all cores."""
    by_name = {text.name: text for text in texts}
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(lambda task: judge(by_name[task[0]], task[1]), chosen)


def divided(
    texts: list[Text], harmless: dict[str, dict[str, str]]
) -> tuple[list[tuple[str, Mutant]], list[Verdict]]:
    """The mutants to run, and the verdicts of those that are known as harmless."""
    chosen, verdicts = [], []
    for text in texts:
        for mutant in mutants(text.text):
            if mutant.key in harmless.get(text.name, {}):
                verdicts.append(Verdict(text.name, mutant, HARMLESS_ONE))
            else:
                chosen.append((text.name, mutant))
    return chosen, verdicts


def figures(verdicts: Iterable[Verdict]) -> str:
    """A table: for each text, how many mutants were found in which way."""
    counts: dict[str, Counter] = {}
    for verdict in verdicts:
        counts.setdefault(verdict.text, Counter())[verdict.how] += 1
    columns = [*(_way(*way) for way in WAYS), HARMLESS_ONE, NOT_FOUND, NO_PROGRAM]
    lines = [
        "| text | mutants | " + " | ".join(columns) + " |",
        "| --- " * (len(columns) + 2) + "|",
    ]
    total: Counter = Counter()
    for name, count in sorted(counts.items()):
        total += count
        lines.append(_row(f"`{name}`", count, columns))
    lines.append(_row("all", total, columns))
    return "\n".join(lines)


def _row(name: str, count: Counter, columns: list[str]) -> str:
    n_programs = count.total() - count[NO_PROGRAM]
    return f"| {name} | {n_programs} | " + " | ".join(str(count[c]) for c in columns) + " |"


def main(wanted: list[str]) -> None:
    """Run the mutants of some texts, or of all."""
    sources = {name: text for name, text in project_texts().items() if not wanted or name in wanted}
    texts = recorded_texts(sources, all_cases())
    chosen, verdicts = divided(texts, known_harmless())
    print(f"{len(chosen)} mutants to run", flush=True)
    for verdict in run_mutants(texts, chosen):
        verdicts.append(verdict)
        if verdict.how == NOT_FOUND:
            print(f"{verdict.text}\t{verdict.mutant.key}\t{verdict.words}", flush=True)
    print(figures(verdicts))


if __name__ == "__main__":
    main(sys.argv[1:])
