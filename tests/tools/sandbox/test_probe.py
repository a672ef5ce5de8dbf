"""Finding the mechanism, and refusing without one."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.sandbox.bubblewrap import Bubblewrap
from tools.sandbox.probe import probe_now
from tools.toolbox import Toolbox

REPOSITORY = Path(__file__).parents[3]


def test_24_without_the_program_there_is_no_shell_and_a_reason(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    report = probe_now()
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


@pytest.mark.sandbox
def test_24_where_namespaces_are_forbidden_commands_are_refused(sandbox: None) -> None:
    program = (
        "from tools.sandbox.probe import probe\n"
        "report = probe()\n"
        "print(report.name, report.reason, report.hint, sep='|')"
    )
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    outer = [bwrap, "--dev-bind", "/", "/", "--unshare-user", "--disable-userns", "--cap-drop",
             "ALL", "--"]  # fmt: skip
    process = subprocess.run(
        [*outer, sys.executable, "-c", program],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    if "--disable-userns" in process.stderr:
        pytest.skip("needs a bubblewrap that can forbid user namespaces")
    name, reason, hint = process.stdout.split("|")
    assert name == "" and "namespace" in reason
    assert hint.strip().endswith(".") and "disable" not in hint


def test_hint_does_not_suggest_switching_protection_off() -> None:
    mechanism = Bubblewrap()
    for reason in ("Creating new namespace failed: Operation not permitted", "odd"):
        hint = mechanism.hint(reason)
        assert hint.endswith(".") and "sysctl" not in hint
