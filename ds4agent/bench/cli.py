"""The command ds4-bench."""

import argparse
import json
import sys
from pathlib import Path

from ds4agent.config import load_config
from ds4agent.errors import Ds4Error, explain
from ds4agent.models import find_model
from engine.errors import EngineError
from mlx_kernels.errors import KernelError

_SHAPES = ("v4-flash", "qwen-1.5b", "small")
_OPERATIONS = (
    "linear",
    "moe",
    "embedding",
    "dequantize",
    "attention",
    "rms_norm",
    "swiglu",
    "rope",
)
_PEER = "llama.cpp"
_SYNTHETIC = ("v4-flash-q2",)


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
    _add_kernels(subjects.add_parser("kernels", help="speed of single operations"))
    _add_model(subjects.add_parser("model", help="speed of a model: load, prompt, answer"))
    _add_logits(subjects.add_parser("logits", help="write the logits of every position of a text"))
    _add_sessions(subjects.add_parser("sessions", help="saving and loading conversations"))
    _add_sandbox(subjects.add_parser("sandbox", help="what confining a command costs"))
    _add_screen(subjects.add_parser("tui", help="the screen: echo, processor time, start"))
    return parser


def _add_kernels(kernels: argparse.ArgumentParser) -> None:
    kernels.add_argument("--device", default="auto", help="what computes (default: auto)")
    kernels.add_argument(
        "--shapes", choices=_SHAPES, default="small", help="whose shapes (default: small)"
    )
    kernels.add_argument(
        "--op", nargs="+", default=[], choices=_OPERATIONS, metavar="OP", help="only these"
    )
    kernels.add_argument(
        "--type", nargs="+", default=[], metavar="TYPE", help="these in place of the set's own"
    )
    kernels.add_argument(
        "--positions",
        type=_positive,
        nargs="+",
        default=[1],
        metavar="N",
        help="positions at a time: 1 is decoding (default), 512 a prompt",
    )
    kernels.add_argument(
        "--repeat", type=_positive, default=5, metavar="N", help="runs of each case (default: 5)"
    )
    _add_threads(kernels)
    _add_formats(kernels)
    kernels.set_defaults(run=_bench_kernels)


def _add_model(model: argparse.ArgumentParser) -> None:
    model.add_argument("-m", "--model", metavar="NAME|FILE", help="a known name or a GGUF file")
    model.add_argument(
        "--synthetic",
        choices=_SYNTHETIC,
        metavar="MODEL",
        help="full shapes of random weights, no file",
    )
    model.add_argument(
        "--layers", type=_positive, metavar="N", help="of --synthetic, only the first so many"
    )
    model.add_argument(
        "--trace",
        action="store_true",
        help="of --synthetic: count launches and bytes of a decoded token, without a GPU",
    )
    model.add_argument("--device", default="auto", help="what computes (default: auto)")
    model.add_argument(
        "--contexts",
        type=_numbers,
        default=[512],
        metavar="N,N",
        help="numbers of tokens to read up to; each gives a row (default: 512)",
    )
    model.add_argument(
        "--gen-tokens", type=_positive, default=32, metavar="N", help="answer length (default: 32)"
    )
    model.add_argument(
        "--repeat", type=_positive, default=1, metavar="N", help="runs a row; medians are told"
    )
    model.add_argument(
        "--compare", choices=[_PEER], metavar="PROGRAM", help=f"run {_PEER} in turn on the file"
    )
    _add_threads(model)
    _add_formats(model)
    model.set_defaults(run=_bench_model)


def _add_logits(logits: argparse.ArgumentParser) -> None:
    logits.add_argument("-m", "--model", metavar="NAME|FILE", help="a known name or a GGUF file")
    logits.add_argument("--device", default="auto", help="what computes (default: auto)")
    logits.add_argument(
        "--tokens", type=Path, required=True, metavar="IDS.json", help="a JSON list of token ids"
    )
    logits.add_argument(
        "--prefill",
        type=_whole,
        metavar="N",
        help="tokens read in one call, the rest goes one by one (default: all)",
    )
    logits.add_argument(
        "--out", type=Path, required=True, metavar="FILE.npy", help="float32 [tokens, vocabulary]"
    )
    logits.add_argument(
        "--no-cache-rounding",
        action="store_true",
        help="keep cached rows of DeepSeek V4 as computed, to compare with other programs",
    )
    logits.set_defaults(run=_write_logits)


def _add_sessions(sessions: argparse.ArgumentParser) -> None:
    sessions.add_argument(
        "--tokens",
        type=_lengths,
        default=[2000, 12000, 32000, 100000],
        metavar="N,N",
        help="lengths of conversations, e.g. 2k,100k (default: 2k,12k,32k,100k)",
    )
    sessions.add_argument(
        "--repeat", type=_positive, default=3, metavar="N", help="rounds; medians are told"
    )
    sessions.add_argument(
        "--folder", type=Path, default=Path.cwd(), metavar="DIR", help="on the disk to measure"
    )
    sessions.add_argument("--json", action="store_true", help="print one JSON object")
    sessions.set_defaults(run=_bench_sessions)


def _add_sandbox(sandbox: argparse.ArgumentParser) -> None:
    sandbox.add_argument("--workspace", type=Path, default=Path.cwd(), metavar="DIR")
    sandbox.add_argument("--commands", type=_positive, default=40, metavar="N", help="how often")
    sandbox.set_defaults(run=_bench_sandbox)


def _add_screen(screen: argparse.ArgumentParser) -> None:
    screen.add_argument(
        "--seconds", type=_positive, default=8, metavar="N", help="of each part (default: 8)"
    )
    screen.add_argument(
        "--starts", type=_positive, default=5, metavar="N", help="of the program (default: 5)"
    )
    screen.add_argument("--json", action="store_true", help="print one JSON object")
    screen.set_defaults(run=_bench_screen)


def _add_threads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads", type=_positive, metavar="N", help="of the cpu device (default: its own choice)"
    )


def _add_formats(parser: argparse.ArgumentParser) -> None:
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print one JSON object")
    formats.add_argument("--csv", action="store_true", help="print comma-separated lines")


def _bench_kernels(args: argparse.Namespace) -> int:
    from ds4agent.bench import report
    from ds4agent.bench.kernel_shapes import cases
    from ds4agent.bench.kernels import measure
    from mlx_kernels.devices import open_ops
    from mlx_kernels.memory_copy import copy_bandwidth

    chosen = cases(args.shapes, args.op, args.type, args.positions)
    ops = open_ops(args.device)
    _use_threads(args.threads)
    result = measure(ops, chosen, copy_bandwidth, repeat=args.repeat, progress=_tell)
    if args.json:
        print(json.dumps(report.kernels_json(result, args.shapes), indent=2))
    else:
        print(report.kernels_csv(result) if args.csv else report.kernels_table(result))
    for failure in result.failures:
        told = f"{failure.op} {failure.tensor} {failure.type}: {failure.error}"
        print(f"ds4-bench: {told}", file=sys.stderr)
    return 1 if result.failures else 0


def _bench_model(args: argparse.Namespace) -> int:
    from ds4agent.bench import report
    from ds4agent.bench.llama_cpp_peer import LlamaCppRunner, check_installed
    from ds4agent.bench.model import OpenModel, Runner, measure
    from ds4agent.bench.synthetic import SyntheticEngine
    from engine.engine import Engine
    from mlx_kernels.cpu import native
    from mlx_kernels.devices import resolve_device

    if args.layers and not args.synthetic:
        raise Ds4Error("--layers is for --synthetic models", "Leave it out.")
    if args.synthetic and (args.model or args.compare):
        raise Ds4Error("--synthetic has no file for --model or --compare", "Leave these out.")
    if args.trace:
        return _trace_model(args)
    if args.compare:
        check_installed()
    if args.synthetic:
        path = Path(args.synthetic)
    else:
        path = find_model(args.model, load_config(Path.cwd()))
    device = resolve_device(args.device)
    _use_threads(args.threads)
    n_threads = args.threads or native.default_threads()

    def open_engine(path: Path, device: str, ctx: int) -> OpenModel:
        if args.synthetic:
            return SyntheticEngine.open(args.synthetic, device, ctx, args.layers)
        return Engine.open(path, device, ctx)

    def open_peer(ctx: int) -> Runner:
        return LlamaCppRunner.open(path, ctx, n_threads, is_gpu=device in ("metal", "cuda"))

    result = measure(
        path,
        device,
        args.contexts,
        args.gen_tokens,
        repeat=args.repeat,
        progress=_tell,
        open_engine=open_engine,
        peer=args.compare or "",
        open_peer=open_peer if args.compare else None,
    )
    if args.json:
        told_threads = n_threads if device == "cpu" or args.compare else None
        print(json.dumps(report.model_json(result, told_threads), indent=2))
    else:
        print(report.model_csv(result) if args.csv else report.model_table(result))
    return 0


def _trace_model(args: argparse.Namespace) -> int:
    if not args.synthetic:
        raise Ds4Error("--trace is for --synthetic models", f"Give --synthetic {_SYNTHETIC[0]}.")
    from ds4agent.bench.synthetic import FLASH_LAYERS
    from ds4agent.bench.trace import told, trace_token

    for context in args.contexts:
        way = args.synthetic, min(args.layers or FLASH_LAYERS, FLASH_LAYERS), context
        print(told(trace_token(*way, False), trace_token(*way, True)))
    return 0


def _write_logits(args: argparse.Namespace) -> int:
    from ds4agent.bench.logits import logits_of, read_tokens, write
    from engine.engine import Engine

    tokens = read_tokens(args.tokens)
    path = find_model(args.model, load_config(Path.cwd()))
    with Engine.open(path, args.device, len(tokens)) as engine:
        n_prefill = len(tokens) if args.prefill is None else args.prefill
        rounds = not args.no_cache_rounding
        logits = logits_of(engine, tokens, n_prefill, cache_rounding=rounds)
    write(args.out, logits)
    print(f"{args.out}: float32 {list(logits.shape)}")
    return 0


def _bench_sessions(args: argparse.Namespace) -> int:
    from ds4agent.bench import report, sessions

    rows = sessions.measure(args.tokens, args.repeat, args.folder, _tell)
    if args.json:
        print(json.dumps({**report.heading(), "rows": sessions.as_objects(rows)}, indent=2))
    else:
        print(sessions.table(rows))
    return 0


def _bench_sandbox(args: argparse.Namespace) -> int:
    from ds4agent.bench.sandbox import as_text, measure

    folder = args.workspace.resolve()
    plain, rows = measure(folder, args.commands)
    sys.stdout.write(as_text(folder, plain, rows, args.commands))
    return 0


def _bench_screen(args: argparse.Namespace) -> int:
    from dataclasses import asdict

    from ds4agent.bench import report, screen

    result = screen.measure(_tell, seconds=args.seconds, starts=args.starts)
    if args.json:
        print(json.dumps({**report.heading(), **asdict(result)}, indent=2))
    else:
        print(screen.table(result))
    return 0


def _use_threads(n_threads: int | None) -> None:
    if n_threads is not None:
        from mlx_kernels.cpu import native

        native.set_threads(n_threads)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _positive(text: str) -> int:
    value = int(text) if text.isascii() and text.isdecimal() else 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return value


def _lengths(text: str) -> list[int]:
    """``2k,100k`` -> 2000, 100000"""
    return [
        _positive(part.lower().removesuffix("k")) * (1000 if part.lower().endswith("k") else 1)
        for part in text.split(",")
    ]


def _numbers(text: str) -> list[int]:
    return [_positive(part) for part in text.split(",")]
