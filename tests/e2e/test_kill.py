"""The agent is killed outright in each phase of its work; what it had finished is there again.

A real process, a real sandbox, real files; only the model is a script.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ds4agent.agent.waiting import MAY_HAVE_RUN

ROOT = Path(__file__).parent.parent.parent
DEADLINE_S = 60.0
PHASES = ("prefill", "generating", "tool", "step kept", "turn kept")


def _call(name: str, **arguments: str) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


REPLIES = (
    _call("write", path="a.txt", content="kept\n"),
    _call("bash", command="echo begun > b.txt; SLEEP"),
    "All of it is done. " * 5,
    "I went on.",
)


class Agent:
    """``ds4-agent`` without a screen, in a folder of its own."""

    def __init__(self, tmp_path: Path, home: Path, marker: str) -> None:
        self.folder = tmp_path / "project"
        self.folder.mkdir()
        self._script = tmp_path / "script.json"
        self._environment = {
            **os.environ,
            "DS4_HOME": str(home / "ds4"),
            "PYTHONPATH": str(ROOT),
        }
        self.saved = home / "ds4" / "kvcache"
        self._marker = marker

    def start(self, *arguments: str, sleeps: bool, delay_s: float) -> subprocess.Popen[str]:
        pause = f"sleep {self._marker}" if sleeps else "true"
        replies = [reply.replace("SLEEP", pause) for reply in REPLIES]
        self._script.write_text(
            json.dumps({"replies": replies, "delay_s": delay_s}), encoding="utf-8"
        )
        launcher = [sys.executable, "-m", "tests.fakes.scripted_agent", str(self._script), "--"]
        options = ["--chdir", str(self.folder), "--approval", "auto"]
        return subprocess.Popen(
            [*launcher, *options, *arguments, "--output-format", "stream-json"],
            cwd=ROOT,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def orphans(self) -> list[str]:
        """Return the command lines of processes that carry this test's marker."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                except (OSError, UnicodeDecodeError):
                    continue
                if self._marker in line and "pytest" not in line:
                    found.append(line)
        return found


def _wait_for(process: subprocess.Popen[str], phase: str) -> list[str]:
    """Read events until the phase has come; return the types of those that were seen."""
    seen: list[str] = []
    n_finished = 0
    for line in process.stdout:
        event = json.loads(line)
        seen.append(event["type"])
        n_finished += event["type"] == "tool_finished"
        is_there = {
            "prefill": n_finished == 2 and event.get("phase") == "prefill",
            "generating": n_finished == 1 and event["type"] == "generation_progress",
            "tool": event.get("phase") == "tool" and event.get("detail") == "bash",
            "step kept": n_finished == 2,
            "turn kept": event["type"] == "turn_ended",
        }[phase]
        if is_there:
            return seen
    raise AssertionError(f"the phase {phase} never came: {seen}")


def _kill_and_go_on(agent: Agent, phase: str, wait_s: float) -> None:
    process = agent.start("-p", "write a.txt and b.txt", sleeps=phase == "tool", delay_s=0.002)
    try:
        _wait_for(process, phase)
        time.sleep(wait_s)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE_S)
        process.stdout.close()
    deadline = time.monotonic() + 10.0
    while agent.orphans() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not agent.orphans()
    assert (agent.folder / "a.txt").read_text(encoding="utf-8") == "kept\n"

    again = agent.start("--continue", "-p", "go on", sleeps=False, delay_s=0.0)
    out, _ = again.communicate(timeout=DEADLINE_S)
    events = [json.loads(line) for line in out.splitlines()]
    result = events[-1]
    assert again.returncode == 0 and result["outcome"] == "done", out[-2000:]
    ready = next(event for event in events if event["type"] == "ready")
    calls = [entry["arguments"] for entry in ready["history"] if entry["role"] == "call"]
    results = [entry for entry in ready["history"] if entry["role"] == "result"]
    assert {"path": "a.txt", "content": "kept\n"} in calls
    assert len(results) >= len(calls) - 1
    if phase == "prefill" or (phase in ("step kept", "turn kept") and wait_s):
        # A call that ran is there with its result, also where the model had not read it yet.
        assert len(calls) == 2 and len(results) == 2
    if phase == "generating":
        assert results
    if phase == "tool":
        # Nobody knows how far the command came, so it is not run again, and the model is told.
        told = [event["text"] for event in events if event["type"] == "tool_finished"]
        assert [MAY_HAVE_RUN] == told
    # Nothing of the sandbox stays behind in the workspace.
    assert {path.name for path in agent.folder.iterdir()} <= {"a.txt", "b.txt"}


@pytest.fixture
def agent(tmp_path: Path, isolated_home: Path) -> Agent:
    return Agent(tmp_path, isolated_home, marker=str(random.randrange(10**8, 10**9)))


@pytest.mark.parametrize("phase", PHASES)
def test_killed_agent_goes_on_where_the_last_step_ended(agent, phase) -> None:
    _kill_and_go_on(agent, phase, 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("seed", range(12))
def test_killed_agent_at_random_moments(agent, phase, seed) -> None:
    _kill_and_go_on(agent, phase, random.Random(seed).uniform(0.0, 0.05))
