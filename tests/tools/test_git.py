"""Looking at the history changes nothing; a commit runs no program of the repository."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tools.sandbox.commands import git
from tools.base import Access
from tools.sandbox.probe import open_sandbox
from tools.toolbox import Toolbox

pytestmark = pytest.mark.sandbox


def show(root: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=root, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.fixture
def box(root: Path, isolated_home: Path, sandbox: None) -> Iterator[Toolbox]:
    (isolated_home / ".gitconfig").write_text(
        "[user]\nname = Person\nemail = person@home\n", encoding="utf-8"
    )
    git(root, "init")
    (root / "a.txt").write_text("a\n", encoding="utf-8")
    git(root, "add", ".")
    git(root, "commit", "-m", "first")
    (root / "a.txt").write_text("b\n", encoding="utf-8")
    box = Toolbox.from_folder(root)
    yield box
    box.close()


def run(box: Toolbox, arguments: str) -> str:
    return box.run("git", {"arguments": arguments}).text


def test_history_is_shown(box: Toolbox) -> None:
    assert run(box, "status --short") == " M a.txt"
    assert "+b" in run(box, "diff") and "+a" in run(box, "git show HEAD")
    assert run(box, "log --format=%s -- a.txt") == "first"
    assert run(box, "stash list") == "(no output)"


@pytest.mark.parametrize(
    "arguments", ["commit -am x", "checkout .", "reset --hard", "push", "-c a.b=c status", "stash"]
)
def test_what_is_not_for_reading_is_refused(box: Toolbox, root: Path, arguments: str) -> None:
    result = box.run("git", {"arguments": arguments})
    assert not result.ok and "not for reading" in result.text
    assert (root / "a.txt").read_text(encoding="utf-8") == "b\n"


@pytest.mark.parametrize(
    "arguments",
    ["diff --output=planted", "log -1 --output=planted", "grep -Otouch\\ planted b", "branch x",
     "tag planted", "show '; touch planted'"],
)  # fmt: skip
def test_no_argument_makes_it_write(box: Toolbox, root: Path, arguments: str) -> None:
    before = show(root, "for-each-ref")
    box.run("git", {"arguments": arguments})
    assert not (root / "planted").exists() and show(root, "for-each-ref") == before


def test_configuration_of_the_repository_cannot_make_it_write(box: Toolbox, root: Path) -> None:
    git(root, "config", "core.fsmonitor", "touch planted; false")
    git(root, "config", "diff.external", "touch planted")
    git(root, "config", "diff.x.textconv", "touch planted; cat")
    (root / ".gitattributes").write_text("*.txt diff=x\n", encoding="utf-8")
    run(box, "status")
    run(box, "diff")
    run(box, "log -p")
    assert not (root / "planted").exists()


def test_commit_takes_changed_files_in_the_persons_name(box: Toolbox, root: Path) -> None:
    (root / "new.txt").write_text("new\n", encoding="utf-8")
    result = box.run("git_commit", {"message": "second\n\nwhy"})
    assert result.ok, result.text
    assert show(root, "log", "-1", "--format=%s|%an|%ae") == "second|Person|person@home"
    assert show(root, "status", "--short") == "?? new.txt"
    assert box.run("git_commit", {"message": "third", "paths": ["new.txt"]}).ok
    assert show(root, "status", "--short") == ""


def test_commit_shows_what_it_will_do_and_always_asks(box: Toolbox) -> None:
    preview = box.preview("git_commit", {"message": "why\nmore", "paths": "a.txt"})
    assert preview.title == "git commit: why more" and "(a.txt)" in preview.detail
    assert box.tools["git_commit"].access is Access.HISTORY


def test_commit_runs_no_hook_and_no_filter_reaches_beyond_the_sandbox(
    box: Toolbox, root: Path, tmp_path: Path
) -> None:
    hook = root / ".git/hooks/pre-commit"
    hook.write_text(f"#!/bin/sh\ntouch {root}/hooked\nexit 1\n", encoding="utf-8")
    hook.chmod(0o755)
    plants = [".git/hooks/post-commit", ".git/commondir", ".git/config", f"{tmp_path}/planted"]
    command = "; ".join(f"echo x >> {plant}" for plant in plants)
    git(root, "config", "filter.x.clean", f"sh -c '{command}; cat'")
    config = (root / ".git/config").read_text(encoding="utf-8")
    (root / ".gitattributes").write_text("*.txt filter=x\n", encoding="utf-8")
    box.run("git_commit", {"message": "second"})
    assert not (root / "hooked").exists() and not (tmp_path / "planted").exists()
    assert not (root / ".git/hooks/post-commit").exists()
    assert not (root / ".git/commondir").exists()
    assert (root / ".git/config").read_text(encoding="utf-8") == config


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"message": " "}, "message is empty"),
        ({"message": "x", "paths": ["../a"]}, "no path below the workspace"),
        ({"message": "x", "paths": [":/"]}, "no path below the workspace"),
        ({"message": "x", "paths": [".env"]}, "may hold secrets"),
    ],
)
def test_bad_commit_is_refused(box: Toolbox, arguments: dict, said: str) -> None:
    result = box.run("git_commit", arguments)
    assert not result.ok and said in result.text


def test_commit_outside_a_plain_repository_is_refused(root: Path, sandbox: None) -> None:
    result = Toolbox.from_folder(root).run("git_commit", {"message": "x"})
    assert not result.ok and "not the top folder of a plain git repository" in result.text


def test_commit_is_refused_by_the_weaker_mechanism(box: Toolbox, root: Path) -> None:
    weak, report = open_sandbox(root, "landlock")
    if weak is None:
        pytest.skip(f"needs landlock: {report.reason}")
    result = Toolbox(root, weak).run("git_commit", {"message": "x"})
    assert not result.ok and "Ask the user to commit" in result.text
