"""What confining a command costs: the time of ``true`` in each mechanism and without any.

The last row is a whole call of the tool, with what undo looks at before and after the command.
"""

import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tools.sandbox.probe import home_folders, open_sandbox, probe_now
from tools.sandbox.run import MECHANISMS, Sandbox
from tools.toolbox import Toolbox
from tools.undo.log import UndoLog

WITH_UNDO = "a call of bash, with undo"
_COMMAND = "true"
_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class SandboxRow:
    """One mechanism. Milliseconds a command, beyond a shell without confinement."""

    mechanism: str
    median_ms: float
    p95_ms: float
    problem: str = ""  # why it was not measured


def measure(folder: Path, n_commands: int) -> tuple[float, list[SandboxRow]]:
    """Return the median of a plain shell in milliseconds, and what each mechanism adds to it.

    Args:
        folder: the workspace; what is in it is scanned before each command.
        n_commands: how often, at least 3.
    """
    plain = statistics.median(
        _times(n_commands, lambda: subprocess.run(["/bin/sh", "-c", _COMMAND], check=True))
    )
    rows = []
    for mechanism in MECHANISMS:
        report = probe_now(mechanism.key)
        if not report.name:
            rows.append(SandboxRow(mechanism.key, 0.0, 0.0, report.reason))
            continue
        sandbox = Sandbox(folder, mechanism, home_folders(), {})
        times = _times(n_commands, lambda sandbox=sandbox: _confined(sandbox))
        rows.append(_row(mechanism.name, times, plain))
    rows.append(_with_undo(folder, n_commands, plain))
    return plain, rows


def _with_undo(folder: Path, n_commands: int, plain: float) -> SandboxRow:
    sandbox, report = open_sandbox(folder)
    if sandbox is None:
        return SandboxRow(WITH_UNDO, 0.0, 0.0, report.reason)
    with tempfile.TemporaryDirectory() as kept:
        undo = UndoLog(Path(kept), folder)
        toolbox = Toolbox(folder, sandbox, report, undo=undo)
        undo.begin_turn("measure")

        def call() -> None:
            result = toolbox.run("bash", {"command": _COMMAND})
            assert result.ok, result

        try:
            call()  # the first look reads every file, or as many as it has time for
            times = _times(n_commands, call)
        finally:
            toolbox.close()
            undo.close()
    return _row(WITH_UNDO, times, plain)


def _row(name: str, times: list[float], plain: float) -> SandboxRow:
    p95 = sorted(times)[min(len(times) - 1, int(len(times) * 0.95))]
    return SandboxRow(name, statistics.median(times) - plain, p95 - plain)


def as_text(folder: Path, plain_ms: float, rows: list[SandboxRow], n_commands: int) -> str:
    """Return the measurement as a table in Markdown."""
    lines = [
        f"`{_COMMAND}` in a shell: {plain_ms:.1f} ms; {n_commands} commands each, in {folder}",
        "",
        "| mechanism | added, median | added, 95 % |",
        "|---|---|---|",
    ]
    for row in rows:
        if row.problem:
            lines.append(f"| {row.mechanism} | not available: {row.problem} | |")
        else:
            lines.append(f"| {row.mechanism} | {row.median_ms:.1f} ms | {row.p95_ms:.1f} ms |")
    return "\n".join(lines) + "\n"


def _confined(sandbox: Sandbox) -> None:
    result = sandbox.run(_COMMAND, _TIMEOUT_S, threading.Event(), lambda data: None)
    assert result.exit_code == 0, result


def _times(n_commands: int, command: Callable[[], object]) -> list[float]:
    command()  # not counted: files come from the disk
    times = []
    for _ in range(n_commands):
        start_s = time.perf_counter()
        command()
        times.append((time.perf_counter() - start_s) * 1e3)
    return times
