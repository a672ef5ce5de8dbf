"""A workspace, its toolbox, and a way to run a command in it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.base import ToolResult
from tools.toolbox import Toolbox


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """An empty folder beside the isolated home, not below it."""
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def toolbox(root: Path) -> Iterator[Toolbox]:
    """The file tools, without a sandbox."""
    box = Toolbox(root, None)
    yield box
    box.close()


@pytest.fixture
def bash(root: Path, sandbox: None) -> Iterator[Callable[..., ToolResult]]:
    """Run a command in the real sandbox: ``bash("ls", timeout_s=5)``."""
    box = Toolbox.from_folder(root)

    def run(command: str, **arguments: object) -> ToolResult:
        return box.run("bash", {"command": command, **arguments})

    yield run
    box.close()
