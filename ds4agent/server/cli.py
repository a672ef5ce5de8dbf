"""The command ``ds4-server``."""

import argparse
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ds4agent import paths
from ds4agent.config import load_config
from ds4agent.errors import ConfigError, Ds4Error, UsageError, explain, is_expected

_DEVICES = ("auto", "metal", "cuda", "cpu", "mlx-cpu")
_KEY = "DS4_SERVER_API_KEY"
_EPILOG = f"""\
The API key is read from the environment variable {_KEY}; without one only this machine is served.
exit codes: 0 ended by a signal, 1 error, 2 usage, 130 ended by a second signal
"""


def main(argv: list[str] | None = None, open_engine: Callable[..., Any] | None = None) -> int:
    """Run the server and return the exit code.

    Args:
        argv: arguments without the program's name; None takes those of the process.
        open_engine: replaces loading a model file, for tests.
    """
    try:
        args = _parser().parse_args(argv)
        return _serve(args, open_engine)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except KeyboardInterrupt:
        return 130
    except Exception as error:  # the program's outer edge
        if not is_expected(error):
            raise
        print(f"ds4-server: {explain(error)}", file=sys.stderr)
        return 2 if isinstance(error, UsageError | ConfigError) else 1


def _serve(args: argparse.Namespace, open_engine: Callable[..., Any] | None) -> int:
    try:
        from ds4agent.server.checkpoint_policy import CheckpointPolicy
        from ds4agent.server.serving import serve
        from ds4agent.server.settings import ServerSettings
    except ImportError as error:
        raise Ds4Error(
            f"ds4-server needs the package {error.name}, which is not installed",
            "Install it: pip install 'ds4-agent[server]'.",
        ) from error
    if args.cold_max and args.cold_max < args.min_tokens:
        raise UsageError(
            f"--kv-cache-cold-max-tokens {args.cold_max} is below --kv-cache-min-tokens "
            f"{args.min_tokens}",
            "Use 0 for no cold checkpoints, or a larger number.",
        )
    config = load_config(Path.cwd(), trust_project=False).with_values(
        {"ctx": args.ctx, "device": args.device}, "command line"
    )
    if open_engine is None:
        from ds4agent.models import engine_opener

        # Beside the conversations in memory there is one that is being written.
        n_copies = 0 if args.no_kv_disk else 1
        open_engine = engine_opener(args.model, config, args.live_sessions, n_copies)
    folder = Path(args.kv_disk_dir).expanduser() if args.kv_disk_dir else default_folder()
    settings = ServerSettings(
        host="127.0.0.1" if args.host == "localhost" else args.host,
        port=args.port,
        api_key=os.environ.get(_KEY, ""),
        cors=args.cors,
        keep_alive_s=args.keep_alive_s,
        stall_s=args.stall_s,
        model_name=args.model_name or "",
        kv_folder=None if args.no_kv_disk else folder,
        kv_space_mb=args.kv_disk_space_mb,
        policy=CheckpointPolicy(
            args.min_tokens, args.cold_max, args.interval, args.trim, args.align
        ),
        live_sessions=args.live_sessions,
        trace=Path(args.trace).expanduser() if args.trace else None,
        tool_memory_max_ids=args.tool_memory_max_ids,
    )
    serve(open_engine, settings, lambda line: print(f"ds4-server: {line}", flush=True))
    return 0


def default_folder() -> Path:
    """Return the folder of the clients' conversations, apart from the agent's own."""
    return paths.ds4_folder() / "server-kvcache"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ds4-server",
        description="OpenAI Chat Completions, Responses and Completions, and Anthropic Messages, "
        "answered by a model inside this program.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    model = parser.add_argument_group("model")
    model.add_argument("-m", "--model", metavar="NAME|FILE", help="a known name or a GGUF file")
    model.add_argument("--model-name", metavar="ID", help="its id for clients")
    model.add_argument("-c", "--ctx", type=_count, metavar="N", help="context length in tokens")
    model.add_argument("--device", choices=_DEVICES, help="what computes")
    model.add_argument(
        "--live-sessions", type=_count, default=2, metavar="N", help="conversations in memory (2)"
    )
    listening = parser.add_argument_group("listening")
    listening.add_argument("--host", default="127.0.0.1", help="address (127.0.0.1)")
    listening.add_argument("--port", type=_port, default=8000, help="port (8000); 0: any free one")
    listening.add_argument("--cors", action="store_true", help="let pages of any web site ask")
    listening.add_argument(
        "--keep-alive-s", type=_seconds, default=5.0, metavar="S", help="longest silence (5)"
    )
    listening.add_argument(
        "--stall-s", type=_seconds, default=10.0, metavar="S", help="patience with a reader (10)"
    )
    listening.add_argument("--trace", metavar="FILE", help="write every prompt and reply to it")
    disk = parser.add_argument_group("checkpoints on the disk")
    disk.add_argument("--kv-disk-dir", metavar="DIR", help="folder (~/.ds4/server-kvcache)")
    disk.add_argument("--no-kv-disk", action="store_true", help="keep none")
    disk.add_argument("--kv-disk-space-mb", type=_count, default=4096, metavar="N", help="(4096)")
    for name, target, default in (
        ("--kv-cache-min-tokens", "min_tokens", 512),
        ("--kv-cache-cold-max-tokens", "cold_max", 30_000),
        ("--kv-cache-continued-interval-tokens", "interval", 10_000),
        ("--kv-cache-boundary-trim-tokens", "trim", 32),
        ("--kv-cache-boundary-align-tokens", "align", 2048),
        ("--tool-memory-max-ids", "tool_memory_max_ids", 100_000),
    ):
        disk.add_argument(
            name, dest=target, type=_size, default=default, metavar="N", help=f"({default})"
        )
    return parser


def _count(text: str) -> int:
    return _number(text, 1, 2**40)


def _size(text: str) -> int:
    return _number(text, 0, 2**40)


def _port(text: str) -> int:
    return _number(text, 0, 65535)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds up to 3600")
    return value


def _number(text: str, least: int, most: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
    return value
