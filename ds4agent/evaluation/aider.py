"""aider as a peer of ``eval``: the same tasks, the same checks, the same model file.

aider (https://aider.chat, PyPI ``aider-chat``) and llama.cpp (PyPI ``xllamacpp``) live in a Python
environment of their own, which is named on the command line. llama.cpp serves the model on
loopback with its prompt cache on; aider talks to it through a relay that counts. aider gets each
task as a person would give it: a git repository, the task's words, and the files whose names stand
in them on its command line. It edits whole files, at temperature 0, and asks nothing.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ds4agent.errors import Ds4Error
from ds4agent.evaluation.counting_proxy import Counted
from ds4agent.evaluation.run import TaskResult
from ds4agent.evaluation.task import Task
from tools.sandbox.run import Sandbox

_START_S = 300.0  # for llama.cpp to load the model
_FILE_NAME = re.compile(r"(?<![\w./-])[\w-]+(?:/[\w-]+)*\.[A-Za-z]\w{0,4}\b")
# Runs in the peer's environment; prints its address when the model is there.
_SERVE = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx = int(sys.argv[2])
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(sys.argv[3])
params.n_parallel = 1
params.n_gpu_layers = 0
params.verbosity = -1
server = xllamacpp.Server(params)
print("serving", server.listening_address, flush=True)
sys.stdin.read()
"""
_OPTIONS = (
    *("--edit-format", "whole", "--yes-always", "--no-stream", "--no-pretty"),
    *("--no-check-update", "--no-analytics", "--no-show-model-warnings", "--no-show-release-notes"),
    *("--no-auto-commits", "--no-gitignore", "--no-detect-urls", "--no-fancy-input"),
)


def named_files(instruction: str) -> list[str]:
    """Return the words of a task that are names of files, those to be made included."""
    return list(dict.fromkeys(_FILE_NAME.findall(instruction)))


@dataclass(frozen=True, slots=True)
class AiderRunner:
    """Runs tasks through aider, one after the other, always in the same folder."""

    python: Path  # of the environment with aider-chat and xllamacpp
    model_url: str
    take_counts: Callable[[], Counted]  # of the requests since the last call
    sandbox_of: Callable[[Path], Sandbox]
    folder: Path
    timeout_s: float
    kept: Path | None = None  # where what aider printed is kept

    def run(self, task: Task) -> TaskResult:
        """Lay the task out, let aider work, check."""
        workspace, home = self.folder / "work", self.folder / "home"
        shutil.rmtree(workspace, ignore_errors=True)
        workspace.mkdir(parents=True)
        home.mkdir(exist_ok=True)
        task.lay_out(workspace)
        message = self.folder / "message.txt"
        message.write_text(task.instruction + "\n", encoding="utf-8")
        environment = _environment(home)
        _make_repository(workspace, environment)
        command = [
            *(str(self.python), "-m", "aider", "--model", "openai/local", "--message-file"),
            *(str(message), "--openai-api-base", self.model_url, "--openai-api-key", "none"),
            *_OPTIONS,
            *named_files(task.instruction),
        ]
        self.take_counts()
        started = time.monotonic()
        outcome, said = "done", ""
        try:
            done = subprocess.run(
                command,
                cwd=workspace,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=self.timeout_s,
            )
            said = done.stdout + done.stderr
            outcome = "done" if done.returncode == 0 else "error"
        except subprocess.TimeoutExpired:
            outcome = "interrupted"
        seconds = time.monotonic() - started
        counted = self.take_counts()
        if counted.n_uncounted:
            raise Ds4Error(
                f"{task.name}: {counted.n_uncounted} replies of llama.cpp have no timings: "
                f"{said[-300:]}",
                "Nothing can be compared without them.",
            )
        if self.kept is not None:
            (self.kept / f"{task.name}.txt").write_text(said, encoding="utf-8")
        shutil.rmtree(workspace / ".git", ignore_errors=True)
        is_solved, output = task.is_solved(workspace, self.sandbox_of(workspace))
        return TaskResult(
            name=task.name,
            is_solved=is_solved,
            outcome=outcome,
            n_calls=counted.n_requests,
            prefilled_tokens=counted.prefilled_tokens,
            generated_tokens=counted.generated_tokens,
            seconds=round(seconds, 2),
            told="" if is_solved else (output or said[-200:]),
        )


class LlamaCppServer:
    """llama.cpp with a model, as a process of its own from construction to ``close``."""

    def __init__(self, python: Path, model: Path, ctx: int, n_threads: int) -> None:
        """Load the model.

        Raises:
            Ds4Error: the environment lacks xllamacpp, or the model cannot be loaded.
        """
        self._process = subprocess.Popen(
            [str(python), "-c", _SERVE, str(model), str(ctx), str(n_threads)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        address = self._read_address()
        host, _, port = address.removeprefix("http://").rpartition(":")
        if not port.isdecimal():
            self.close()
            raise Ds4Error(
                f"llama.cpp did not start with {model.name} in {python}",
                "Install xllamacpp there: pip install xllamacpp.",
            )
        self.address = (host, int(port))

    def close(self) -> None:
        """End the process."""
        with suppress(OSError):
            self._process.stdin.close()  # its sign to end
        try:
            self._process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _read_address(self) -> str:
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            line = self._process.stdout.readline()
            if not line:
                return ""
            if line.startswith("serving "):
                return line.removeprefix("serving ").strip()
        return ""


def _environment(home: Path) -> dict[str, str]:
    """Return what aider sees: a home of its own, and no way to the network but loopback."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "NO_COLOR": "1",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HTTPS_PROXY": "http://127.0.0.1:9",  # the port of discard: nothing answers
        "GIT_CONFIG_GLOBAL": os.devnull,
    }


def _make_repository(workspace: Path, environment: dict[str, str]) -> None:
    who = ("-c", "user.name=person", "-c", "user.email=person@localhost")
    for arguments in (
        ("init", "-q"),
        ("add", "-A"),
        (*who, "commit", "-qm", "start", "--allow-empty"),
    ):
        done = subprocess.run(
            ["git", *arguments], cwd=workspace, env=environment, capture_output=True, text=True
        )
        if done.returncode:
            raise Ds4Error(f"git {arguments[0]} failed: {done.stderr.strip()[-200:]}", "See git.")


def versions(python: Path) -> str:
    """Return the versions of the peer's two packages, for the table.

    Raises:
        Ds4Error: one is not installed there.
    """
    code = (
        "from importlib.metadata import version as v;"
        "print('aider', v('aider-chat'), 'xllamacpp', v('xllamacpp'))"
    )
    try:
        done = subprocess.run([str(python), "-c", code], capture_output=True, text=True)
    except OSError as error:
        raise Ds4Error(f"{python} cannot be run: {error}", "Name a Python.") from error
    if done.returncode:
        raise Ds4Error(
            f"{python} lacks aider-chat or xllamacpp",
            f"{python} -m pip install aider-chat xllamacpp",
        )
    return done.stdout.strip()
