"""Commands in the background: status, output, stop; none outlives its toolbox."""

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.sandbox.commands import alive
from tools import jobs
from tools.base import ToolResult
from tools.toolbox import Toolbox

pytestmark = pytest.mark.sandbox


@pytest.fixture
def box(root: Path, sandbox: None) -> Iterator[Toolbox]:
    box = Toolbox.from_folder(root)
    yield box
    box.close()


@pytest.fixture
def mark() -> str:
    return f"88{os.getpid()}{time.monotonic_ns() % 10**6}"


def start(box: Toolbox, command: str) -> ToolResult:
    return box.run("bash", {"command": command, "background": True})


def wait_for(box: Toolbox, job: int, text: str) -> str:
    seen = ""
    deadline = time.monotonic() + 20
    while text not in seen and time.monotonic() < deadline:
        seen += box.run("bash_status", {"job": job, "wait_s": 1}).text
    assert text in seen
    return seen


def test_job_runs_on_and_its_output_is_told_once(box: Toolbox, root: Path) -> None:
    started = time.monotonic()
    result = start(box, "echo first; while [ ! -e go ]; do sleep 0.05; done; echo second; exit 3")
    assert result.ok and time.monotonic() - started < 5
    assert "job 1 running" in result.text
    (root / "go").touch()
    seen = result.text + wait_for(box, 1, "exit code 3")
    assert seen.count("first") == 1 and seen.count("second") == 1
    assert "no new output" in box.run("bash_status", {"job": 1}).text


def test_command_that_fails_at_once_says_so_at_once(box: Toolbox) -> None:
    assert "exit code 127" in start(box, "no-such-program").text


def test_job_is_stopped_with_all_its_processes(box: Toolbox, mark: str) -> None:
    start(box, f"echo up; (setsid sleep {mark} &); sleep {mark}")
    started = time.monotonic()
    result = box.run("bash_stop", {"job": 1})
    assert result.ok and "cancelled" in result.text and time.monotonic() - started < 5
    assert alive(mark) == []


def test_close_ends_all_jobs(root: Path, sandbox: None, mark: str) -> None:
    box = Toolbox.from_folder(root)
    start(box, f"sleep {mark}")
    start(box, f"trap '' TERM; sleep {mark}")
    box.close()
    assert alive(mark) == []


def test_job_has_no_input_and_no_terminal(box: Toolbox) -> None:
    assert "not a tty" in start(box, "tty; cat").text


def test_number_of_jobs_is_bounded(box: Toolbox, mark: str) -> None:
    for _ in range(jobs.MAX_JOBS):
        assert start(box, f"sleep {mark}").ok
    refused = start(box, "true")
    assert not refused.ok and "running already" in refused.text
    listed = box.run("bash_status", {}).text.splitlines()
    assert len(listed) == jobs.MAX_JOBS and listed[0].startswith("job 1: running")
    box.run("bash_stop", {"job": 2})
    assert start(box, "true").ok


def test_much_output_is_bounded_and_the_newest_is_kept(box: Toolbox) -> None:
    start(box, "seq 1 200000")
    box.run("bash_status", {"job": 1, "wait_s": 10})
    deadline = time.monotonic() + 20
    while not box.run("bash_status", {}).text.count("ended") and time.monotonic() < deadline:
        time.sleep(0.05)
    start(box, "sleep 1; seq 1 200000")
    text = box.run("bash_status", {"job": 2, "wait_s": 10}).text
    assert "200000" in text and "left out" in text and len(text) < 40_000


def test_unknown_job_is_told_with_those_that_exist(box: Toolbox) -> None:
    result = box.run("bash_stop", {"job": 5})
    assert not result.ok and "no job 5. The jobs are: none" in result.text


def test_wait_for_a_job_ends_with_an_interrupt(box: Toolbox, mark: str) -> None:
    start(box, f"sleep {mark}")
    cancel = threading.Event()
    cancel.set()
    started = time.monotonic()
    box.run("bash_status", {"job": 1, "wait_s": 10}, cancel)
    assert time.monotonic() - started < 5


def test_escape_sequences_of_a_job_are_stripped(box: Toolbox) -> None:
    assert start(box, r"printf '\033[31mred\033[0m\n'").text.startswith("red\n")
