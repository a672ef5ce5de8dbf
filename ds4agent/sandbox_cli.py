"""The subcommand ``sandbox``: run a command under exactly the policy that the model's commands get.

So that anybody can try to break it. The command has the standard streams of the caller; it has no
controlling terminal, as in the agent.
"""

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from ds4agent.errors import UsageError

_FAILED = 125  # the sandbox itself failed, as with env, timeout and chroot


def add_parser(subparsers) -> None:
    """Add ``sandbox`` to the command line."""
    parser = subparsers.add_parser(
        "sandbox",
        help="run a command confined as the model's commands are",
        description="Run a command under the policy that the model's commands get. Exit code: "
        "the command's, 128 + n when signal n ended it, 125 when it could not be confined.",
        usage="ds4-agent sandbox [--workspace DIR] [--mechanism bwrap|landlock] "
        "[--env NAME] -- COMMAND...",
    )
    parser.add_argument("--workspace", metavar="DIR", default=".", help="the writable folder")
    parser.add_argument("--mechanism", metavar="NAME", default="", help="default: the strongest")
    parser.add_argument(
        "--env", metavar="NAME", action="append", default=[], help="hand over a variable of ours"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the command and return its exit code."""
    from tools.errors import SandboxUnavailable
    from tools.sandbox.probe import open_sandbox

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    if not command:
        raise UsageError("there is no command", "ds4-agent sandbox -- COMMAND...")
    folder = Path(args.workspace)
    if not folder.is_dir():
        raise UsageError(f"--workspace {args.workspace}: there is no such folder")
    sandbox, report = open_sandbox(folder, args.mechanism)
    if sandbox is None:
        return _tell(f"not run: {report.reason}. {report.hint}", _FAILED)
    cancel = threading.Event()
    stops: list[int] = []

    def stop(number: int, frame: object) -> None:
        stops.append(number)
        cancel.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)
    sys.stdout.flush()
    try:
        handed_over = {name: os.environ[name] for name in args.env if name in os.environ}
        result = sandbox.run_attached(command, cancel, handed_over)
    except SandboxUnavailable as error:
        return _tell(f"not run: {error}. {error.hint}", _FAILED)
    for note in result.notes:
        _tell(note, 0)
    if stops:
        return 128 + stops[0]
    if result.exit_code is None:
        return _tell(f"stopped: {result.stopped_because}", 128 + signal.SIGKILL)
    return result.exit_code


def _tell(text: str, code: int) -> int:
    from ds4agent.plain import plain

    os.write(2, f"ds4-agent sandbox: {plain(text)}\n".encode("utf-8", "replace"))
    return code
