"""The subcommand ``eval``: run agent tasks on a model and print what came of them."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ds4agent.errors import UsageError
from ds4agent.plain import one_line

_PEER_CTX = 8192  # tokens: as much as ours has by itself
_PEER_THREADS = 2


def add_parser(subparsers) -> None:
    """Add ``eval`` to the command line."""
    parser = subparsers.add_parser(
        "eval",
        help="run agent tasks on a model",
        description="Give the agent each task of a folder, check the result, print a table.",
    )
    parser.add_argument("-m", "--model", metavar="NAME|FILE", help="a known name or a GGUF file")
    parser.add_argument("--tasks", metavar="DIR", default="tests/tasks", help="holds *.toml")
    parser.add_argument("--only", metavar="TEXT", default="", help="tasks whose name holds this")
    parser.add_argument("--timeout", metavar="S", type=float, default=600.0, help="for each task")
    parser.add_argument("--json", action="store_true", help="one JSON object a task, and the sum")
    parser.add_argument(
        "--peer",
        choices=("aider",),
        help="give the tasks to another agent instead, with the model served by llama.cpp",
    )
    parser.add_argument(
        "--peer-python",
        metavar="FILE",
        help="with --peer: a Python that has aider-chat and xllamacpp",
    )
    parser.add_argument("--keep", metavar="DIR", help="keep what was said, one file a task")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the tasks; the exit code is 0 when all were run, solved or not."""
    from ds4agent.evaluation.run import TaskResult
    from ds4agent.evaluation.task import read_tasks

    if not 0 < args.timeout <= 86400:
        raise UsageError(f"--timeout {args.timeout} is no time", "Give seconds, up to a day.")
    if bool(args.peer) != bool(args.peer_python):
        raise UsageError("--peer and --peer-python belong together", "Give both or none.")
    tasks = read_tasks(Path(args.tasks), args.only)
    results: list[TaskResult] = []
    with tempfile.TemporaryDirectory(prefix="ds4-eval-") as name, ExitStack() as stack:
        folder = Path(name).resolve()
        opened = _peer(args, folder) if args.peer else _ours(args, folder)
        run_task = stack.enter_context(opened)
        for task in tasks:
            result = run_task(task)
            results.append(result)
            _say(json.dumps(result.row()) if args.json else _line(result))
    summary = _sum(results)
    _say(json.dumps(summary) if args.json else _summary_line(summary))
    return 0


def _sandbox_of(workspace: Path):
    from tools.sandbox.probe import open_sandbox

    sandbox, report = open_sandbox(workspace)
    if sandbox is None:
        raise UsageError(f"no check without a sandbox: {report.reason}", report.hint)
    return sandbox


@contextmanager
def _ours(args: argparse.Namespace, folder: Path) -> Iterator[Callable]:
    from ds4agent.config import load_config
    from ds4agent.evaluation.run import Runner
    from ds4agent.models import engine_opener
    from engine.sampling_options import SamplingOptions

    opener = engine_opener(args.model, load_config(Path.cwd(), trust_project=False))
    sampling = SamplingOptions(temperature=0.0)
    yield Runner(opener, _sandbox_of, folder, sampling, args.timeout, _kept(args)).run


@contextmanager
def _peer(args: argparse.Namespace, folder: Path) -> Iterator[Callable]:
    from ds4agent.config import load_config
    from ds4agent.evaluation.aider import AiderRunner, LlamaCppServer, versions
    from ds4agent.evaluation.counting_proxy import CountingProxy
    from ds4agent.models import find_model

    python = Path(args.peer_python).absolute()
    sys.stderr.write(versions(python) + "\n")
    model = find_model(args.model, load_config(Path.cwd(), trust_project=False)).absolute()
    server = LlamaCppServer(python, model, _PEER_CTX, _PEER_THREADS)
    try:
        proxy = CountingProxy(server.address, args.timeout)
        try:
            yield AiderRunner(
                python, proxy.url, proxy.take, _sandbox_of, folder, args.timeout, _kept(args)
            ).run
        finally:
            proxy.close()
    finally:
        server.close()


def _kept(args: argparse.Namespace) -> Path | None:
    if not args.keep:
        return None
    folder = Path(args.keep).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _line(result) -> str:
    mark = "solved" if result.is_solved else "failed"
    why = "" if result.is_solved else f"  {one_line(result.told[-60:])}"
    return (
        f"{result.name:32} {mark}  {result.n_calls:3} calls {result.prefilled_tokens:6} prefilled "
        f"{result.generated_tokens:6} generated {result.seconds:7.1f} s{why}"
    )


def _sum(results: Sequence) -> dict:
    n = max(1, len(results))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "n_tasks": len(results),
        "n_solved": sum(result.is_solved for result in results),
        "prefilled_tokens_a_task": round(sum(r.prefilled_tokens for r in results) / n),
        "generated_tokens_a_task": round(sum(r.generated_tokens for r in results) / n),
        "seconds_a_task": round(sum(r.seconds for r in results) / n, 1),
    }


def _summary_line(summary: dict) -> str:
    return (
        f"{summary['n_solved']} of {summary['n_tasks']} solved; a task: "
        f"{summary['prefilled_tokens_a_task']} tokens prefilled, "
        f"{summary['generated_tokens_a_task']} generated, {summary['seconds_a_task']} s"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
