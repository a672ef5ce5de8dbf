"""The command ds4-bench."""

import argparse
import datetime
import importlib.metadata
import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ds4agent.config import load_config
from ds4agent.errors import Ds4Error, explain
from ds4agent.models import find_model, gigabytes
from engine.errors import EngineError
from mlx_kernels.errors import KernelError

if TYPE_CHECKING:
    from ds4agent.bench.model import ModelBench

_PACKAGES = ("ds4-agent", "numpy", "mlx")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    args = _parser().parse_args(argv)
    try:
        return args.run(args)
    except KeyboardInterrupt:
        return 130
    except (Ds4Error, EngineError, KernelError) as error:
        print(f"ds4-bench: {explain(error)}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ds4-bench", description="Measure ds4-agent.")
    subjects = parser.add_subparsers(dest="subject", required=True, metavar="SUBJECT")
    model = subjects.add_parser("model", help="speed of a model: load, prompt, answer")
    model.add_argument("-m", "--model", metavar="NAME|FILE", help="a known name or a GGUF file")
    model.add_argument("--device", default="auto", help="what computes (default: auto)")
    model.add_argument(
        "--prompt-tokens",
        type=_positive,
        nargs="+",
        default=[512],
        metavar="N",
        help="prompt lengths; each gives a row (default: 512)",
    )
    model.add_argument(
        "--gen-tokens", type=_positive, default=32, metavar="N", help="answer length (default: 32)"
    )
    model.add_argument(
        "--repeat", type=_positive, default=1, metavar="N", help="runs a row; medians are told"
    )
    model.add_argument("--json", action="store_true", help="print one JSON object")
    model.set_defaults(run=_bench_model)
    return parser


def _bench_model(args: argparse.Namespace) -> int:
    from ds4agent.bench.model import measure

    path = find_model(args.model, load_config(Path.cwd()))

    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    result = measure(
        path,
        args.device,
        args.prompt_tokens,
        args.gen_tokens,
        repeat=args.repeat,
        progress=tell,
    )
    print(json.dumps(_report(result), indent=2) if args.json else _table(result))
    return 0


def _report(result: "ModelBench") -> dict[str, object]:
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {
        "date": now,
        "machine": f"{platform.system()} {platform.machine()}",
        "versions": versions,
        **asdict(result),
    }


def _table(result: "ModelBench") -> str:
    lines = [
        f"{result.name} {result.quant} on {result.device}: loaded in {result.load_s:.1f} s, "
        f"peak memory {gigabytes(result.peak_rss_bytes)}",
        f"{'context':>8} {'prefill t/s':>12} {'decode t/s':>12}",
    ]
    for row in result.rows:
        lines.append(f"{row.context:>8} {row.prefill_tps:>12.1f} {row.decode_tps:>12.1f}")
    return "\n".join(lines)


def _positive(text: str) -> int:
    value = int(text) if text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value
