"""Listing and searching: sorted, bounded, without what is hidden or ignored."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from tools.grep_walk import parse_ignore
from tools.search import SearchTool
from tools.toolbox import Toolbox
from tools.workspace import Workspace

RIPGREP = shutil.which("rg") or ""


def search(root: Path, ripgrep: str, **arguments: object) -> list[str]:
    tool = SearchTool(Workspace(root), 32768, ripgrep)
    complete = {"path": ".", "regex": False, "glob": ""} | arguments
    return tool.run(complete, threading.Event(), print).text.splitlines()


@pytest.fixture(params=["ripgrep", "walk"])
def ripgrep(request: pytest.FixtureRequest) -> str:
    if request.param == "ripgrep" and not RIPGREP:
        pytest.skip("needs ripgrep")
    return RIPGREP if request.param == "ripgrep" else ""


@pytest.fixture
def tree(root: Path) -> Path:
    files = {
        "a.py": "needle one\nother\nneedle two\n",
        "a/x.py": "needle in a\n",
        "b.txt": "needle (b)\n",
        ".hidden/c.py": "needle in dot folder\n",
        ".env": "needle secret\n",
        "key.pem": "needle secret\n",
        ".git/config": "needle git\n",
        "build/out.py": "needle built\n",
        "sub/keep.log": "needle kept\n",
        "sub/drop.log": "needle dropped\n",
        "sub/deep/drop.log": "needle dropped\n",
        ".gitignore": "/build/\n*.log\n",
        "sub/.gitignore": "!keep.log\n",
        "crlf.txt": "needle crlf\r\nx\r\n",
    }
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8"))
    (root / "data.bin").write_bytes(b"\0needle\n")
    (root / "link").symlink_to("a")
    return root


def test_list_shows_folders_first_with_sizes(toolbox: Toolbox, tree: Path) -> None:
    lines = toolbox.run("list", {}).text.splitlines()
    assert lines[:5] == [".git/", ".hidden/", "a/", "build/", "sub/"]
    assert "a.py 28 B" in lines and "link -> a" in lines
    assert not any(line.startswith((".env", "key.pem")) for line in lines)


def test_list_is_bounded_and_says_so(toolbox: Toolbox, root: Path) -> None:
    for n in range(1000):
        (root / f"f{n:04}").touch()
    lines = toolbox.run("list", {"path": "."}).text.splitlines()
    assert len(lines) == 301 and "700 more entries" in lines[-1]


def test_list_of_a_file_hints_at_read(toolbox: Toolbox, tree: Path) -> None:
    result = toolbox.run("list", {"path": "a.py"})
    assert not result.ok and "Use read" in result.text


def test_names_with_control_characters_are_cleaned(toolbox: Toolbox, root: Path) -> None:
    (root / "x\x1b[31my\n").touch()
    assert toolbox.run("list", {}).text == "xy 0 B"


def test_search_finds_sorted_lines_and_nothing_hidden(tree: Path, ripgrep: str) -> None:
    assert search(tree, ripgrep, query="needle") == [
        ".hidden/c.py:1: needle in dot folder",
        "a/x.py:1: needle in a",
        "a.py:1: needle one",
        "a.py:3: needle two",
        "b.txt:1: needle (b)",
        "crlf.txt:1: needle crlf",
        "sub/keep.log:1: needle kept",
    ]


def test_search_takes_text_literally_unless_asked(tree: Path, ripgrep: str) -> None:
    assert search(tree, ripgrep, query="(b)") == ["b.txt:1: needle (b)"]
    assert search(tree, ripgrep, query=r"\(b\)|two$", regex=True) == [
        "a.py:3: needle two",
        "b.txt:1: needle (b)",
    ]


@pytest.mark.parametrize(
    ("glob", "n_found"), [("*.py", 4), ("a/*", 1), ("**/*.py", 4), ("*.none", 0)]
)
def test_search_glob_filters_files(tree: Path, ripgrep: str, glob: str, n_found: int) -> None:
    lines = search(tree, ripgrep, query="needle", glob=glob)
    assert len(lines) == max(1, n_found)
    assert (lines == ["No match."]) == (n_found == 0)


def test_search_in_a_folder_and_in_a_file(tree: Path, ripgrep: str) -> None:
    assert search(tree, ripgrep, query="needle", path="a") == ["a/x.py:1: needle in a"]
    assert search(tree, ripgrep, query="two", path="a.py") == ["a.py:3: needle two"]


def test_search_that_looks_like_an_option_is_text(tree: Path, ripgrep: str) -> None:
    (tree / "o.txt").write_text("use --files here\n", encoding="utf-8")
    assert search(tree, ripgrep, query="--files") == ["o.txt:1: use --files here"]
    assert search(tree, ripgrep, query="-e--pre=touch x", path="a") == ["No match in a."]


def test_search_wrong_pattern_is_one_line(toolbox: Toolbox, tree: Path, ripgrep: str) -> None:
    toolbox.tools["search"] = SearchTool(toolbox.workspace, 32768, ripgrep)
    result = toolbox.run("search", {"query": "(", "regex": True})
    assert not result.ok and "no regular expression" in result.text
    assert "\n" not in result.text


def test_search_is_bounded_and_says_so(root: Path, ripgrep: str) -> None:
    (root / "many.txt").write_text("needle\n" * 5000, encoding="utf-8")
    lines = search(root, ripgrep, query="needle")
    assert len(lines) == 101 and "only the first 100" in lines[-1]


def test_search_cuts_long_lines(root: Path, ripgrep: str) -> None:
    (root / "min.js").write_text("needle" + "x" * 1_000_000 + "\n", encoding="utf-8")
    (line,) = search(root, ripgrep, query="needle")
    assert len(line) < 300


def test_search_does_not_leave_by_a_link(root: Path, tmp_path: Path, ripgrep: str) -> None:
    (tmp_path / "secret.txt").write_text("needle\n", encoding="utf-8")
    (root / "out").symlink_to(tmp_path)
    (root / "file").symlink_to(tmp_path / "secret.txt")
    assert search(root, ripgrep, query="needle") == ["No match."]


def test_pattern_that_could_hang_is_refused(root: Path) -> None:
    (root / "a").write_text("a" * 200, encoding="utf-8")
    result = Toolbox(root, None).run("search", {"query": "(a+)+$x", "regex": True, "path": "a"})
    assert not result.ok and "simpler pattern" in result.text


def test_ripgrep_configuration_is_ignored(
    tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not RIPGREP:
        pytest.skip("needs ripgrep")
    (tmp_path / "rc").write_text("--invert-match\n", encoding="utf-8")
    monkeypatch.setenv("RIPGREP_CONFIG_PATH", str(tmp_path / "rc"))
    assert search(tree, RIPGREP, query="needle", path="a") == ["a/x.py:1: needle in a"]


def test_program_in_the_workspace_is_never_our_ripgrep(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = root / "rg"
    fake.write_text("#!/bin/sh\ntouch planted\n", encoding="utf-8")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{root}:.:{os.environ['PATH']}")
    monkeypatch.chdir(root)
    Toolbox(root, None).run("search", {"query": "x"})
    assert not (root / "planted").exists()


@pytest.mark.parametrize(
    ("rule", "path", "matches"),
    [
        ("*.log", "a/b.log", True),
        ("/a", "b/a", False),
        ("a/b", "a/b", True),
        ("a/b", "x/a/b", False),
        ("**/b", "x/y/b", True),
        ("a/**", "a/x/y", True),
        ("a/**/b", "a/b", True),
        ("[ab].c", "b.c", True),
        ("[!ab].c", "b.c", False),
        ("x?", "xy", True),
        ("x?", "x/", False),
    ],
)
def test_ignore_rule(rule: str, path: str, matches: bool) -> None:
    (parsed,) = parse_ignore(rule)
    assert bool(parsed.pattern.fullmatch(path)) == matches
