"""The threats once more, as a user without rights: root and others are different to a kernel."""

import importlib.util
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]
NOBODY = 65534
_PACKAGES = ("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "platformdirs")
_FOLDERS = ("tools", "ds4agent", "tests/tools")
# Without the person's own packages: these need them inside the sandbox, or to start the program.
_LEFT_OUT = ("test_useful.py::test_25_pytest_runs", "test_command_line.py")
_ONLY_AS_ROOT = ("test_other_owner_of_the_workspace", "test_threats_as_nobody")


def reachable_python() -> str:
    """A Python that another user can start; ours may lie in a private home."""
    for path in ("/usr/bin/python3", "/usr/local/bin/python3"):
        check = "import sys; sys.exit(sys.version_info < (3, 11))"
        try:
            done = subprocess.run(
                [path, "-c", check], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/"
            )
        except OSError:
            continue
        if done.returncode == 0:
            return path
    pytest.skip("needs a Python 3.11 that the user nobody can start")


@pytest.mark.slow
@pytest.mark.sandbox
def test_threats_as_nobody() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to become the user nobody")
    python = reachable_python()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        for part in _FOLDERS:
            shutil.copytree(
                REPOSITORY / part, folder / part, ignore=shutil.ignore_patterns("__pycache__")
            )
        shutil.copy(REPOSITORY / "tests/conftest.py", folder / "tests")
        for package in _PACKAGES:
            spec = importlib.util.find_spec(package)
            assert spec is not None and spec.origin is not None
            shutil.copytree(Path(spec.origin).parent, folder / "packages" / package)
            if package == "_pytest":
                shutil.copy(Path(spec.origin).parents[1] / "py.py", folder / "packages")
        (folder / "pytest.ini").write_text(
            "[pytest]\naddopts = --import-mode=importlib -m 'not slow'\npythonpath = .\n"
            "markers =\n    slow: slow\n    sandbox: sandbox\n",
            encoding="utf-8",
        )
        for path in (folder, *folder.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
            path.chmod(0o755 if path.is_dir() else 0o644)
        done = subprocess.run(
            [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/tools/sandbox",
             "--basetemp", str(folder / "t"),
             *(f"--deselect=tests/tools/sandbox/{test}" for test in _LEFT_OUT)],
            cwd=folder,
            env={
                "PATH": "/usr/local/bin:/usr/bin:/bin",
                "HOME": str(folder),
                "PYTHONPATH": str(folder / "packages"),
                "DS4_REQUIRE_SANDBOX": "1",
            },
            user=NOBODY,
            group=NOBODY,
            extra_groups=[],
            capture_output=True,
            text=True,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    last = done.stdout.strip().splitlines()[-1]
    assert int(last.split(" passed")[0].split()[-1]) > 250, last
