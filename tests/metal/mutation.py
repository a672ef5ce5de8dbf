"""Runs mutants of the kernels' texts on their cases: each must be found, or be known as harmless.

A text is one file of ``bodies/``. A mutant of a line is run on the cases that reach this line, in
the fast build (not optimised: that would cost most of the time), then in the checked one, with
lanes and groups in descending order, and in the clang build, until something is found.
``harmless_mutants.toml`` names those that nothing can find, with the reason.

``python -m tests.metal.mutation [TEXT ...]`` prints figures and what was not found.
"""

import multiprocessing
import os
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path

from mlx_kernels.gpu.metal_cases import Case, all_cases
from tests.metal.cases import findings, run_case
from tests.metal.compiler import CompileError
from tests.metal.launch import KernelFault
from tests.metal.mlx_kernel import Launch
from tests.metal.mutants import Mutant, mutants

HARMLESS = Path(__file__).with_name("harmless_mutants.toml")
TIMEOUT_S = 4.0  # a case takes well under a second
# How a mutant can be found, in the order of trial: build and order of lanes.
WAYS = (
    *(("quick", "ascending"), ("checked", "ascending"), ("quick", "descending")),
    ("clang", "ascending"),  # an index past the end of a lane's own array
)
NO_PROGRAM, HARMLESS_ONE, NOT_FOUND = "no program", "harmless", "not found"


@dataclass
class Text:
    """One file with kernel code, and which of its lines each case reaches."""

    name: str
    text: str
    reached: dict[str, set[int]] = field(default_factory=dict)  # case -> lines that ran
    coded: set[int] = field(default_factory=set)  # lines with code in any case

    def cases_for(self, mutant: Mutant) -> list[str]:
        """Those that reach its line; every one when the line makes no code of its own."""
        if mutant.line not in self.coded:
            return list(self.reached)
        return [case for case, lines in self.reached.items() if mutant.line in lines]


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


def measured_texts(sources: dict[str, str], cases: Sequence[Case]) -> list[Text]:
    """The texts with the lines that each case reaches."""
    texts = [Text(name, content) for name, content in sources.items()]
    for case in cases:
        _, launches = run_case(case, "counted")
        for text in texts:
            for launch in launches:
                _add_lines(text, case.name, launch)
    return texts


def _add_lines(text: Text, case: str, launch: Launch) -> None:
    for file, whole in (
        ("header.metal", launch.kernel.header),
        ("body.metal", launch.kernel.source),
    ):
        at = whole.find(text.text)
        if at < 0:
            continue
        first = whole.count("\n", 0, at)
        n_lines = text.text.count("\n") + 1
        reached = text.reached.setdefault(case, set())
        for (name, line), count in launch.report.lines.items():
            if name == file and 0 < line - first <= n_lines:
                text.coded.add(line - first)
                if count:
                    reached.add(line - first)


def known_harmless() -> dict[str, dict[str, str]]:
    """Text -> key of a mutant -> why nothing can find it."""
    return tomllib.loads(HARMLESS.read_text(encoding="utf-8")) if HARMLESS.exists() else {}


def judge(text: Text, mutant: Mutant, cases: dict[str, Case]) -> Verdict:
    """Run one mutant until it is found."""
    changed = mutant.apply(text.text)
    rewrite = partial(_rewrite, text.text, changed)
    names = text.cases_for(mutant)
    for build, order in WAYS:
        for name in names:
            try:
                found = findings(
                    cases[name],
                    build,
                    order=order,
                    rewrite=rewrite,
                    timeout_s=TIMEOUT_S,
                )
            except KernelFault as fault:
                found = [str(fault)]
            except CompileError as error:
                return Verdict(text.name, mutant, NO_PROGRAM, str(error)[:200])
            except ValueError as error:  # more than Metal has of something
                found = [str(error)]
            if found:
                how = _way(build, order)
                return Verdict(text.name, mutant, how, found[0])
    return Verdict(text.name, mutant, NOT_FOUND, "" if names else "no case reaches the line")


def _way(build: str, order: str) -> str:
    name = "fast" if build == "quick" else build
    return name if order == "ascending" else f"{name}, {order}"


def _rewrite(old: str, new: str, whole: str) -> str:
    return whole.replace(old, new)


_shared: dict[str, object] = {}


def _start(texts: list[Text], cases: object) -> None:
    _shared["texts"] = {text.name: text for text in texts}
    _shared["cases"] = {case.name: case for case in cases()}


def _judge_one(task: tuple[str, Mutant]) -> Verdict:
    return judge(_shared["texts"][task[0]], task[1], _shared["cases"])


def run_mutants(
    texts: list[Text], chosen: Sequence[tuple[str, Mutant]], cases: object = all_cases
) -> Iterable[Verdict]:
    """The verdicts of mutants (name of the text, mutant), on as many processes as cores.

    Args:
        cases: A function of a module, which gives the cases in every process.
    """
    n_processes = len(os.sched_getaffinity(0))
    if len(chosen) < 8 or n_processes == 1:
        _start(texts, cases)
        yield from map(_judge_one, chosen)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(n_processes, _start, (texts, cases)) as pool:
        yield from pool.imap_unordered(_judge_one, chosen, chunksize=4)


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
    sources = {name: text for name, text in project_texts().items() if not wanted or name in wanted}
    texts = measured_texts(sources, all_cases())
    harmless = known_harmless()
    chosen, verdicts = [], []
    for text in texts:
        for mutant in mutants(text.text):
            if mutant.key in harmless.get(text.name, {}):
                verdicts.append(Verdict(text.name, mutant, HARMLESS_ONE))
            else:
                chosen.append((text.name, mutant))
    print(f"{len(chosen)} mutants to run", flush=True)
    for verdict in run_mutants(texts, chosen):
        verdicts.append(verdict)
        if verdict.how == NOT_FOUND:
            print(f"{verdict.text}:{verdict.mutant.line} {verdict.mutant.rule}: ", end="")
            print(f"{verdict.mutant.key}  {verdict.words}", flush=True)
    print(figures(verdicts))


if __name__ == "__main__":
    main(sys.argv[1:])
