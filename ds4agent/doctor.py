"""The subcommand ``doctor``: what works here, what does not, and the next step for each gap.

It is the first thing a bug report needs, so it looks at everything even when much is broken, and
it changes nothing: no folder is created, nothing is downloaded. The checks themselves are in
``doctor_checks``.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from ds4agent import doctor_checks as checks
from ds4agent.config import Config
from ds4agent.doctor_checks import Finding
from ds4agent.errors import Ds4Error
from ds4agent.plain import plain
from engine.errors import EngineError
from mlx_kernels.errors import KernelError
from tools.errors import ToolError

# What a check may meet in a broken installation: errors written for people, missing packages,
# unreadable files. Anything else is a fault of this program and must be seen as one.
_EXPECTED = (Ds4Error, EngineError, KernelError, ToolError, ImportError, OSError)


def add_parser(subparsers) -> None:
    """Add ``doctor`` to the command line."""
    parser = subparsers.add_parser("doctor", help="what a bug report needs")
    parser.add_argument("-m", "--model", metavar="NAME|FILE", help="look at this model")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the findings; exit code 0 when the agent can run, else 1."""
    findings = examine(Path.cwd(), args.model)
    can_run = all(finding.is_good for finding in findings if finding.is_needed)
    if args.json:
        report = {"can_run": can_run, "findings": [asdict(finding) for finding in findings]}
        sys.stdout.write(json.dumps(report, indent=2) + "\n")
    else:
        sys.stdout.write("".join(map(_lines, findings)))
        verdict = "can run." if can_run else "cannot run: see the lines with NO."
        sys.stdout.write(f"\nThe agent {verdict}\n")
    return 0 if can_run else 1


def examine(cwd: Path, model: str | None = None) -> list[Finding]:
    """Look at everything and return the findings in the order they are shown.

    Args:
        cwd: the folder the agent would work in.
        model: a name or file to look at instead of the one that would be used.
    """
    findings: list[Finding] = []

    def look(topic: str, is_needed: bool, check: Callable[[], list[Finding]]) -> None:
        """Run one check; what it cannot do is a finding, too."""
        try:
            findings.extend(check())
        except _EXPECTED as error:
            hint = getattr(error, "hint", "")
            findings.append(Finding(topic, False, str(error), hint, is_needed))

    config = Config()

    def settings() -> list[Finding]:
        nonlocal config  # the checks below go on with the defaults where this one fails
        config, found = checks.settings(cwd)
        return found

    look("versions", True, checks.versions)
    look("machine", False, checks.machine)
    look("settings", True, settings)
    look("device", True, lambda: checks.devices(config.device))
    look("model", True, lambda: checks.model(model, config))
    look("sandbox", False, checks.sandbox)
    look("workspace", False, lambda: checks.workspace(cwd))
    look("sessions", True, lambda: checks.sessions(config.kvcache_folder))
    look("terminal", False, checks.terminal)
    look("programs", False, checks.programs)
    return findings


def _lines(finding: Finding) -> str:
    mark = "ok" if finding.is_good else "NO" if finding.is_needed else "--"
    lines = f"{mark}  {finding.topic:12} {finding.text}\n"
    if not finding.is_good and finding.next_step:
        lines += f"{'':17}{finding.next_step}\n"
    return plain(lines)  # it may hold names of files and folders
