"""One task: a folder, an instruction, a check, and a solution that proves the check.

A task is one TOML file::

    instruction = "Make greet.py greet the name that it is given."
    check = "python3 check.py"

    [files]            # the folder, as the model finds it
    "greet.py" = "print('hello')"

    [hidden]           # laid beside the files before the check, never seen by the model
    "check.py" = "..."

    [solution]         # what one right answer changes
    "greet.py" = "..."

The check runs in the sandbox, since it runs what a model wrote; exit code 0 means solved.
"""

import threading
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ds4agent.errors import UsageError
from tools.sandbox.run import Sandbox

_CHECK_S = 60.0  # the longest check
_TEXTS = ("instruction", "check")
_FOLDERS = ("files", "hidden", "solution")


@dataclass(frozen=True, slots=True)
class Task:
    """See the module."""

    name: str
    instruction: str
    check: str
    files: Mapping[str, str]  # path inside the folder -> text
    hidden: Mapping[str, str]
    solution: Mapping[str, str]

    def lay_out(self, folder: Path) -> None:
        """Write the folder as the model finds it; ``folder`` must be empty."""
        _write(folder, self.files)

    def solve(self, folder: Path) -> None:
        """Apply the solution."""
        _write(folder, self.solution)

    def is_solved(self, folder: Path, sandbox: Sandbox) -> tuple[bool, str]:
        """Run the check; return its verdict and the end of what it printed.

        The hidden files replace whatever stands in their place.
        """
        _write(folder, self.hidden)
        output: list[bytes] = []
        result = sandbox.run(self.check, _CHECK_S, threading.Event(), output.append)
        text = b"".join(output).decode("utf-8", "replace").strip()
        return result.exit_code == 0 and not result.stopped_because, text[-500:]


def read_tasks(folder: Path, only: str = "") -> list[Task]:
    """Read all tasks of a folder, in the order of their names.

    Args:
        folder: holds ``*.toml``.
        only: keep those whose name holds this text.

    Raises:
        UsageError: there are none, or one of them is no task.
    """
    paths = sorted(folder.glob("*.toml")) if folder.is_dir() else []
    tasks = [_read(path) for path in paths if only in path.stem]
    if not tasks:
        wanted = f" whose name holds {only!r}" if only else ""
        raise UsageError(f"there are no tasks{wanted} in {folder}", "Name a folder with --tasks.")
    return tasks


def _read(path: Path) -> Task:
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is no task: {error}", "Correct the file.") from error
    for name in _TEXTS:
        if not isinstance(data.get(name), str) or not data[name].strip():
            raise UsageError(f"{path}: {name} is missing or no text", "Correct the file.")
    unknown = data.keys() - {*_TEXTS, *_FOLDERS}
    if unknown:
        raise UsageError(f"{path}: unknown {', '.join(sorted(unknown))}", "Correct the file.")
    for name in _FOLDERS:
        for inside, text in data.get(name, {}).items():
            parts = PurePosixPath(inside).parts
            if not isinstance(text, str) or inside.startswith("/") or ".." in parts:
                raise UsageError(
                    f"{path}: {name} has {inside!r}, expected a path inside the folder and a text",
                    "Correct the file.",
                )
    folders = {name: dict(data.get(name, {})) for name in _FOLDERS}
    return Task(path.stem, data["instruction"].strip(), data["check"], **folders)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for inside, text in files.items():
        path = folder / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_symlink() or path.is_dir():
            raise UsageError(f"{path} is in the way of a file of the task", "Look at the folder.")
        path.write_text(text, encoding="utf-8")
