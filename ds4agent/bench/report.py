"""Results as JSON, CSV and tables."""

import csv
import datetime
import importlib.metadata
import io
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from ds4agent.bench.kernels import KernelBench
from ds4agent.bench.model import ModelBench
from ds4agent.models import gigabytes

_PACKAGES = ("ds4-agent", "numpy", "mlx", "xllamacpp")


def heading() -> dict[str, object]:
    """Return date, machine and versions of the software that took part."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    machine = f"{platform.system()} {platform.machine()}"
    return {"date": now, "machine": machine, "versions": versions}


def model_json(result: ModelBench, n_threads: int | None) -> dict[str, object]:
    """Return the JSON object of ``ds4-bench model``; without a peer, without the peer's keys."""
    report = {**heading(), **asdict(result), "threads": n_threads}
    if not result.peer_rows:
        for key in ("peer", "peer_rows", "ratio"):
            del report[key]
    return report


def model_csv(result: ModelBench) -> str:
    """Return one line for each program and frontier."""
    programs = [("ds4-agent", result.rows), (result.peer, result.peer_rows)]
    rows = [
        {"device": result.device, "program": program, **asdict(row)}
        for program, rows in programs
        for row in rows
    ]
    return to_csv(rows)


def model_table(result: ModelBench) -> str:
    """Return the table of ``ds4-bench model`` for people."""
    lines = [
        f"{result.name} {result.quant} on {result.device}: loaded in {result.load_s:.1f} s, "
        f"peak memory {gigabytes(result.peak_rss_bytes)}",
        f"{'context':>8} {'prefill t/s':>12} {'decode t/s':>12}",
    ]
    lines += [
        f"{row.context:>8} {row.prefill_tps:>12.1f} {row.decode_tps:>12.1f}" for row in result.rows
    ]
    if result.ratio is not None:
        lines.append(result.peer)
        lines += [
            f"{row.context:>8} {row.prefill_tps:>12.1f} {row.decode_tps:>12.1f}"
            for row in result.peer_rows
        ]
        lines.append(f"{'ratio':>8} {result.ratio.prefill:>12.2f} {result.ratio.decode:>12.2f}")
    return "\n".join(lines)


def kernels_json(result: KernelBench, shapes: str) -> dict[str, object]:
    """Return the JSON object of ``ds4-bench kernels``."""
    return {**heading(), "shapes": shapes, **asdict(result)}


def kernels_csv(result: KernelBench) -> str:
    """Return one line for each case."""
    rows = [asdict(row) for row in result.rows]
    for row in rows:
        row["shape"] = "x".join(map(str, row["shape"]))
    return to_csv([{"device": result.device, **row} for row in rows])


def kernels_table(result: KernelBench) -> str:
    """Return the table of ``ds4-bench kernels`` for people."""
    lines = [
        f"{result.device}: memory copy {result.copy_gb_per_s:.1f} GB/s (read plus written)",
        f"{'op':<10} {'tensor':<22} {'type':<12} {'shape':<18} {'T':>4} "
        f"{'median us':>10} {'best us':>10} {'GB/s':>8} {'GFLOP/s':>9} {'of copy':>8}",
    ]
    for row in result.rows:
        shape = "x".join(map(str, row.shape))
        lines.append(
            f"{row.op:<10} {row.tensor:<22} {row.type:<12} {shape:<18} {row.positions:>4} "
            f"{row.median_us:>10.1f} {row.best_us:>10.1f} {row.gb_per_s:>8.1f} "
            f"{row.gflop_per_s:>9.1f} {row.share:>8.0%}"
        )
    return "\n".join(lines)


def to_csv(rows: Sequence[Mapping[str, object]]) -> str:
    """Return rows of equal keys as CSV with a heading; lines end with a line feed."""
    if not rows:
        return ""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().removesuffix("\n")
