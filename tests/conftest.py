"""Shared fixtures: an isolated home, the small real model, tiny random models."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ds4agent import paths

# Read before any test isolates the environment: this is where `make test` puts the model.
_MODELS = paths.models_dir()
SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


def pytest_configure() -> None:
    """Let each matrix product of NumPy use one core: the spin barriers of its threads take many
    times longer than small products when something else runs. Before NumPy is imported."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def isolated_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own for each test: nothing is read from or written to the real one."""
    home = tmp_path / "home"
    home.mkdir()
    for name in [name for name in os.environ if name.startswith(("DS4_", "XDG_"))]:
        if name != "DS4_REQUIRE_SANDBOX":
            monkeypatch.delenv(name)
    for name in ("HF_HOME", "HF_HUB_CACHE", "NO_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TERM", "xterm-256color")
    return home


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    if os.geteuid():
        pytest.skip("needs root, to mount a small tmpfs")
    path = tmp_path / "disk"
    path.mkdir()
    size = ["-o", "size=1048576,mode=0700"]
    done = subprocess.run(["mount", "-t", "tmpfs", *size, "tmpfs", path], capture_output=True)
    if done.returncode:
        pytest.skip(f"needs the right to mount a tmpfs: {done.stderr.decode().strip()}")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The SmolLM2-135M-Instruct file that `make test` fetches."""
    path = _MODELS / SMOLLM2_FILE
    if not path.exists():
        pytest.skip(f"needs the model smollm2-135m in {_MODELS} (`ds4-agent models pull`)")
    return path


@pytest.fixture(scope="session")
def models_folder() -> Path:
    """The real models folder, for slow tests that need a larger model."""
    return _MODELS


@pytest.fixture(scope="session")
def sandbox() -> None:
    """Skip where no mechanism can confine commands; fail instead where one is required."""
    from tools.sandbox.probe import probe

    report = probe()
    if report.name:
        return
    if os.environ.get("DS4_REQUIRE_SANDBOX"):
        pytest.fail(f"a sandbox is required here: {report.reason}")
    pytest.skip(f"needs a sandbox: {report.reason}")
