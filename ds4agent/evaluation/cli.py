"""The subcommand ``eval``: run agent tasks on a model and print what came of them."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from ds4agent.errors import UsageError
from ds4agent.plain import one_line


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
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the tasks; the exit code is 0 when all were run, solved or not."""
    from ds4agent.config import load_config
    from ds4agent.evaluation.run import Runner, TaskResult
    from ds4agent.evaluation.task import read_tasks
    from ds4agent.models import engine_opener
    from engine.sampler import SamplingOptions
    from tools.sandbox.probe import open_sandbox

    if not 0 < args.timeout <= 86400:
        raise UsageError(f"--timeout {args.timeout} is no time", "Give seconds, up to a day.")
    tasks = read_tasks(Path(args.tasks), args.only)
    config = load_config(Path.cwd(), trust_project=False)
    opener = engine_opener(args.model, config)
    results: list[TaskResult] = []
    with tempfile.TemporaryDirectory(prefix="ds4-eval-") as name:
        folder = Path(name).resolve()

        def sandbox_of(workspace: Path):
            sandbox, report = open_sandbox(workspace)
            if sandbox is None:
                raise UsageError(f"no check without a sandbox: {report.reason}", report.hint)
            return sandbox

        runner = Runner(opener, sandbox_of, folder, SamplingOptions(temperature=0.0), args.timeout)
        for task in tasks:
            result = runner.run(task)
            results.append(result)
            _say(json.dumps(result.row()) if args.json else _line(result))
    summary = _sum(results)
    _say(json.dumps(summary) if args.json else _summary_line(summary))
    return 0


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
