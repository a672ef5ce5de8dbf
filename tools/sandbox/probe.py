"""Finding out, once a process, which mechanism can confine commands here.

A mechanism counts as working when it runs ``true`` with the very options a command gets. The error
text of the first failure is kept: it is what ``doctor`` prints.
"""

import functools
import os
import pwd
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from tools.errors import SandboxUnavailable
from tools.sandbox.masks import remove_leftovers
from tools.sandbox.mechanism import Mechanism
from tools.sandbox.run import MECHANISMS, Sandbox
from tools.text import one_line

_PROBE_TIMEOUT_S = 20.0  # normally 30 ms; a cold disk on a busy machine is slower


@dataclass(frozen=True, slots=True)
class SandboxReport:
    """The outcome. ``name`` is "" when no mechanism works; then the rest says why. Else ``reason``
    says why none of the stronger ones is used."""

    name: str
    reason: str = ""
    hint: str = ""


@functools.cache
def probe() -> SandboxReport:
    """Try the mechanisms of this system in order of strength; the answer is kept."""
    return probe_now()


def probe_now(key: str = "") -> SandboxReport:
    """Try the mechanisms without looking at or keeping an earlier answer.

    Args:
        key: try only the mechanism of this name, as ``bwrap`` or ``landlock``.
    """
    reports = []
    for mechanism in MECHANISMS:
        if key in ("", mechanism.key):
            report = _try(mechanism)
            if report.name:
                return SandboxReport(report.name, "; ".join(r.reason for r in reports))
            reports.append(report)
    if not reports:
        known = " and ".join(mechanism.key for mechanism in MECHANISMS)
        return SandboxReport("", f"there is no mechanism {key}", f"The mechanisms are {known}.")
    # The strongest one says best what to do.
    return SandboxReport("", "; ".join(report.reason for report in reports), reports[0].hint)


def open_sandbox(root: Path, key: str = "") -> tuple[Sandbox | None, SandboxReport]:
    """Return the sandbox of a workspace, or None with the reason.

    Args:
        root: the workspace.
        key: use only the mechanism of this name; "" takes the strongest that works.
    """
    report = probe_now(key) if key else probe()
    if not report.name:
        return None, report
    mechanism = next(known for known in MECHANISMS if known.name == report.name)
    try:
        sandbox = Sandbox(root, mechanism, home_folders(), os.environ)
        remove_leftovers(sandbox.root)
        return sandbox, report
    except SandboxUnavailable as error:
        return None, SandboxReport("", str(error), error.hint)


def home_folders() -> tuple[Path, ...]:
    """The person's home folders: that of the environment, then that of the user database."""
    homes = [os.environ.get("HOME", "")]
    try:
        homes.append(pwd.getpwuid(os.geteuid()).pw_dir)
    except KeyError:
        pass  # a container may run as a user without an entry
    return tuple(dict.fromkeys(Path(os.path.realpath(home)) for home in homes if home))


def _try(mechanism: Mechanism) -> SandboxReport:
    why, what_next = mechanism.missing(Path("/nonexistent"))
    if why:
        return SandboxReport("", why, what_next)
    output = bytearray()
    with tempfile.TemporaryDirectory(prefix="ds4-probe-") as folder:
        root = Path(os.path.realpath(folder))
        try:
            sandbox = Sandbox(root, mechanism, home_folders(), os.environ)
            result = sandbox.run("true", _PROBE_TIMEOUT_S, threading.Event(), output.extend)
        except SandboxUnavailable as error:
            return SandboxReport("", str(error), error.hint)
    if result.exit_code == 0:
        return SandboxReport(mechanism.name)
    said = one_line(output.decode("utf-8", errors="replace"))
    reason = result.stopped_because or said or f"exit code {result.exit_code}"
    return SandboxReport("", f"{mechanism.name} does not work: {reason}", mechanism.hint(reason))
