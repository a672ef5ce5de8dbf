"""Each mechanism of this system in turn, and a repository to defend."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.sandbox.commands import git
from tools.sandbox import probe
from tools.sandbox.mechanism import Mechanism
from tools.sandbox.run import MECHANISMS


@pytest.fixture(params=MECHANISMS, ids=lambda mechanism: mechanism.key)
def mechanism(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Mechanism]:
    """Make this mechanism the only one the program knows."""
    why, _ = request.param.missing(Path("/nonexistent"))
    if why and os.environ.get("DS4_REQUIRE_SANDBOX"):
        pytest.fail(f"a sandbox is required here: {why}")
    if why:
        pytest.skip(f"needs {request.param.key}: {why}")
    monkeypatch.setattr(probe, "MECHANISMS", (request.param,))
    probe.probe.cache_clear()
    yield request.param
    probe.probe.cache_clear()


@pytest.fixture
def sandbox(mechanism: Mechanism) -> None:
    """Instead of the strongest mechanism: each."""
    report = probe.probe()
    if not report.name and os.environ.get("DS4_REQUIRE_SANDBOX"):
        pytest.fail(f"a sandbox is required here: {report.reason}")
    if not report.name:
        pytest.skip(f"needs {mechanism.key}: {report.reason}")


@pytest.fixture
def place(root: Path, mechanism: Mechanism) -> str:
    """The folder in which commands can make files: not the workspace itself in each mechanism."""
    if mechanism.needs_masks:
        return "."
    (root / "place").mkdir()
    return "place"


@pytest.fixture
def repository(root: Path) -> Path:
    git(root, "init")
    (root / "a.txt").write_text("a\n", encoding="utf-8")
    git(root, "add", ".")
    git(root, "commit", "-m", "first")
    return root
