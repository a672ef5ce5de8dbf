"""Finding the mechanism, and refusing without one."""

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tools.sandbox import landlock
from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.landlock import NEEDED_ABI, landlock_abi
from tools.sandbox.probe import open_sandbox, probe_now
from tools.toolbox import Toolbox

REPOSITORY = Path(__file__).parents[3]


def test_24_without_the_program_there_is_no_shell_and_a_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    report = probe_now("bwrap")
    assert report.name == "" and "bwrap is not installed" in report.reason
    assert "Install" in report.hint
    box = Toolbox(root, None, report)
    assert box.sandbox_name == "off: bwrap is not installed"
    assert not box.run("bash", {"command": "touch planted"}).ok
    assert not (root / "planted").exists()


def test_24_program_planted_in_the_workspace_is_not_used(
    root: Path, sandbox: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = root / "bwrap"
    fake.write_text(f"#!/bin/sh\ntouch {root}/planted\n", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}:{os.environ['PATH']}")
    assert Toolbox.from_folder(root).run("bash", {"command": "echo real"}).text == "real"
    assert not (root / "planted").exists()


def test_24_without_bubblewrap_landlock_is_used_and_named_weaker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if landlock_abi() < NEEDED_ABI:
        pytest.skip(f"needs Landlock interface {NEEDED_ABI}, found {landlock_abi()}")
    monkeypatch.setenv("PATH", "")
    report = probe_now()
    assert report.name == "landlock (weaker)" and report.reason == "bwrap is not installed"


def test_24_unknown_mechanism_is_refused(root: Path) -> None:
    sandbox, report = open_sandbox(root, "chroot")
    assert sandbox is None and "bwrap and landlock" in report.hint


@pytest.mark.parametrize(
    ("abi", "lacks"),
    [
        (0, "no Landlock"),
        (2, "lacks truncating files, TCP, device control, abstract sockets and signals"),
        (4, "lacks device control, abstract sockets and signals"),
        (5, "lacks abstract sockets and signals"),
    ],
)
def test_24_older_landlock_is_refused_and_what_it_lacks_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, abi: int, lacks: str
) -> None:
    monkeypatch.setattr(landlock, "landlock_abi", lambda: abi)
    assert lacks in landlock.Landlock().missing(root)[0]


_PROBE = (
    "from tools.sandbox.probe import probe\n"
    "report = probe()\n"
    "print(report.name, report.reason, report.hint, sep='|')"
)


def probe_without_namespaces(*more: str, fds: tuple[int, ...] = ()) -> list[str]:
    """Probe inside a bubblewrap that forbids user namespaces: no special host is needed."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        pytest.skip("needs bwrap, to forbid namespaces")
    outer = [bwrap, "--dev-bind", "/", "/", "--unshare-user", "--disable-userns", "--cap-drop",
             "ALL", *more, "--"]  # fmt: skip
    process = subprocess.run(
        [*outer, sys.executable, "-c", _PROBE],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        pass_fds=fds,
    )
    if "--disable-userns" in process.stderr:
        pytest.skip("needs a bubblewrap that can forbid user namespaces")
    return process.stdout.split("|")


@pytest.mark.sandbox
def test_24_where_namespaces_are_forbidden_landlock_is_next() -> None:
    if landlock_abi() < NEEDED_ABI:
        pytest.skip(f"needs Landlock interface {NEEDED_ABI}, found {landlock_abi()}")
    name, reason, _ = probe_without_namespaces()
    assert name == "landlock (weaker)" and "namespace" in reason


@pytest.mark.sandbox
def test_24_where_landlock_is_forbidden_too_commands_are_refused() -> None:
    # A filter that says "no such call" to landlock_create_ruleset and allows everything else.
    program = [
        (0x20, 0, 0, 0),
        (0x15, 0, 1, 444),
        (0x06, 0, 0, 0x00050026),
        (0x06, 0, 0, 0x7FFF0000),
    ]
    fd = os.memfd_create("filter")
    os.write(fd, b"".join(struct.pack("<HBBI", *step) for step in program))
    os.lseek(fd, 0, os.SEEK_SET)
    name, reason, hint = probe_without_namespaces("--seccomp", str(fd), fds=(fd,))
    os.close(fd)
    assert name == "" and "namespace" in reason and "no Landlock" in reason
    assert hint.strip().endswith(".") and "disable" not in hint


def test_hint_does_not_suggest_switching_protection_off() -> None:
    mechanism = Bubblewrap()
    for reason in ("Creating new namespace failed: Operation not permitted", "odd"):
        hint = mechanism.hint(reason)
        assert hint.endswith(".") and "sysctl" not in hint
