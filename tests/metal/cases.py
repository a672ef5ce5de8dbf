"""Runs cases of Metal kernels in the harness and measures what they did."""

import numpy as np

from mlx_kernels.gpu.metal_cases import Case, Run, random_for, worst_share
from tests.metal.mlx_kernel import Harness, Launch

MOST_TRAFFIC = 1.1  # of the least number of bytes; the rest are scales read by several lanes


def run_case(case: Case, build: str = "fast", **options: object) -> tuple[Run, list[Launch]]:
    """Run a case (options: ``Harness``); raises KernelFault for what a kernel does wrong."""
    harness = Harness(build, **options)
    run = case.run(harness.metal_kernel, random_for(case.name))
    return run, harness.launches


def findings(case: Case, build: str, **options: object) -> list[str]:
    """What is wrong with a case in a build; [] when nothing is. Raises KernelFault, too."""
    return findings_of(*run_case(case, build, **options), build)


def findings_of(run: Run, launches: list[Launch], build: str) -> list[str]:
    """What is wrong with what a case did in a build."""
    found = []
    if not launches or not run.comparisons:
        return ["launches or compares nothing"]
    for i, comparison in enumerate(run.comparisons):
        if len(np.unique(comparison.expected)) < 2 < comparison.expected.size:
            found.append(f"result {i}: one value everywhere proves nothing")
        if (share := worst_share(comparison)) > 1:
            found.append(f"result {i}: {share:.3g} times the allowed difference")
    for launch in launches:
        name = launch.kernel.name
        grid, group = launch.arguments["grid"], launch.arguments["threadgroup"]
        if any(n % t for n, t in zip(grid, group, strict=True)) or group[0] % 32:
            found.append(f"{name}: grid {grid} in groups of {group} are not whole simdgroups")
        for array in launch.arguments["inputs"]:
            if array.ndim == 0:
                found.append(f"{name}: a 0-d input, which CUDA passes differently")
        if build == "checked":
            for output in launch.kernel.output_names:
                if output in run.unwritten.get(name, ()):
                    continue
                if missing := launch.report.traffic[output].unwritten:
                    found.append(f"{name}: {missing} bytes of {output} never written")
    if build == "checked":
        found += traffic_findings(run, launches)
    return found


def moved(launches: list[Launch], kernel: str) -> dict[str, int]:
    """Bytes by buffer over the launches of a kernel: fetched from memory, and written."""
    total: dict[str, int] = {}
    for launch in launches:
        if launch.kernel.name == kernel:
            for buffer, counts in launch.report.traffic.items():
                total[buffer] = total.get(buffer, 0) + counts.fetched + counts.written
    return total


def traffic_findings(run: Run, launches: list[Launch]) -> list[str]:
    """What moves more bytes than it may, or is not accounted for (checked build)."""
    found = []
    for kernel, traffic in run.traffic.items():
        measured = moved(launches, kernel)
        if not measured:
            found.append(f"{kernel}: bytes are stated, but it is not launched")
            continue
        for buffer, n_bytes in measured.items():
            if buffer in traffic.cached or not n_bytes:
                continue
            if buffer not in traffic.least:
                found.append(f"{kernel}: {buffer} moves {n_bytes} bytes and is not accounted for")
        for buffer, least in traffic.least.items():
            share = measured.get(buffer, 0) / least
            if not 1 <= share <= MOST_TRAFFIC:
                found.append(f"{kernel}: {buffer} moves {share:.3f} of its {least} bytes")
    return found


def differs_by_order(launches: list[Launch]) -> list[str]:
    """The kernels whose results depend on the order of lanes, simdgroups and groups."""
    found = []
    for launch in launches:
        for order in ("descending", "random"):
            outputs, report = launch.kernel.run(**launch.arguments, order=order)
            if report.error:
                found.append(f"{launch.kernel.name} ({order}): {report.error}")
            for one, other in zip(launch.outputs, outputs, strict=True):
                if one.tobytes() != other.tobytes():
                    found.append(f"{launch.kernel.name}: other bits in {order} order")
    return found
