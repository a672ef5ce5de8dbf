"""What people asked of other agents, one test a wish: edits, commands, safety of their work.

The numbers are the ranks of a list of public requests; what the loop and the sessions owe to it is
tested there.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.tools.sandbox.commands import alive, git
from tools.base import Access, ToolResult
from tools.sandbox.probe import open_sandbox
from tools.toolbox import Toolbox
from tools.undo.log import UndoLog

Edit = Callable[[str, str], ToolResult]


@pytest.fixture
def file(root: Path) -> Path:
    return root / "a.py"


@pytest.fixture
def edit(toolbox: Toolbox, file: Path) -> Edit:
    return lambda old, new: toolbox.run("edit", {"path": "a.py", "old": old, "new": new})


@pytest.fixture
def undo(root: Path, tmp_path: Path) -> Iterator[UndoLog]:
    log = UndoLog(tmp_path / "undo", root)
    yield log
    log.close()


@pytest.fixture
def box(root: Path, undo: UndoLog, sandbox: None) -> Iterator[Toolbox]:
    confined, report = open_sandbox(root)
    box = Toolbox(root, confined, report, undo=undo)
    yield box
    box.close()


def bash(box: Toolbox, command: str, **arguments: object) -> ToolResult:
    return box.run("bash", {"command": command, **arguments})


@pytest.mark.parametrize("new", ["B\nC", "B\nC\n", "B\nC\n\n"])
def test_wish_22_a_superfluous_newline_at_the_end_of_old_is_no_part_of_it(
    file: Path, edit: Edit, new: str
) -> None:
    file.write_bytes(b"a\nb\nc\n")
    assert edit("b\nc\n\n", new).ok and file.read_bytes() == b"a\nB\nC\n"
    # Where another line follows, an empty line is text: the miss shows what stands there.
    file.write_bytes(b"a\nb\nc\n")
    result = edit("b\n\n", "B\n")
    assert not result.ok and "2 b\n3 c" in result.text and file.read_bytes() == b"a\nb\nc\n"


def test_wish_23_marks_of_our_own_never_get_into_a_file(
    toolbox: Toolbox, file: Path, edit: Edit
) -> None:
    file.write_text("a\nb\nc\n", encoding="utf-8")
    shown = toolbox.run("read", {"path": "a.py"}).text
    assert "2 b\n3 c" in shown  # line numbers are the only marks that a model sees
    assert edit("2 b\n3 c", "2 B\n3 C").ok
    assert file.read_text(encoding="utf-8") == "a\nB\nC\n"


@pytest.mark.parametrize(
    ("have", "old", "wanted", "ignored"),
    [
        (b"a\r\nb\r\nc\r\n", "a\nb", b"X\r\nc\r\n", "line endings"),
        (b"\xef\xbb\xbfa\nb\n", "a\nb", b"\xef\xbb\xbfX\n", ""),
        (b"a  \nb\n", "a\nb", b"X\n", "trailing blanks"),
        (b"\t\ta\n\t\tb\n", "    a\n    b", b"\t\tX\n", "indent"),
    ],
)
def test_wish_24_match_is_tolerant_keeps_the_style_and_says_how(
    file: Path, edit: Edit, have: bytes, old: str, wanted: bytes, ignored: str
) -> None:
    file.write_bytes(have)
    new = "    X" if ignored == "indent" else "X"
    result = edit(old, new)
    assert result.ok and file.read_bytes() == wanted and ignored in result.text


def test_wish_25_missing_final_newline_is_no_miss_and_stays_missing(file: Path, edit: Edit) -> None:
    file.write_bytes(b"a\nb")
    assert edit("b\n", "c\n").ok and file.read_bytes() == b"a\nc"


def test_wish_26_a_miss_says_what_is_wrong(root: Path, file: Path, edit: Edit) -> None:
    file.write_text("def total(items):\n    return sum(items)\n", encoding="utf-8")
    (root / "moved.py").write_text("import os\n\ndef elsewhere(x):\n    return x\n", "utf-8")
    assert "nearest lines are:\n1 def total(items):" in edit("def totals(items):", "x").text
    assert "applied already" in edit("gone", "return sum(items)").text
    assert "but in moved.py:3" in edit("def elsewhere(x):\n    return x", "x").text
    assert "old equals new" in edit("sum", "sum").text


def test_wish_27_reading_again_always_unblocks(root: Path, toolbox: Toolbox, file: Path) -> None:
    file.write_text("one\n", encoding="utf-8")
    toolbox.run("read", {"path": "a.py"})
    file.write_text("two\n", encoding="utf-8")
    write = {"path": "a.py", "content": "three\n"}
    assert "changed since it was read" in toolbox.run("write", write).text
    toolbox.run("read", {"path": "a.py"})
    assert toolbox.run("write", write).ok


def test_wish_28_whole_files_and_plain_pairs_are_offered(toolbox: Toolbox) -> None:
    assert set(toolbox.tools["write"].parameters["properties"]) == {"path", "content"}
    assert set(toolbox.tools["edit"].parameters["properties"]) == {"path", "old", "new"}


def test_wish_29_search_for_the_nearest_place_is_bounded_in_time(file: Path, edit: Edit) -> None:
    file.write_text("some line of code = value\n" * 60_000, encoding="utf-8")
    started = time.monotonic()
    assert not edit("same lone of cade = volue\nand more", "x").ok
    assert time.monotonic() - started < 10  # half a second is meant; the machine may be busy


@pytest.mark.sandbox
def test_wish_30_uncommitted_work_survives_destructive_commands(
    root: Path, box: Toolbox, undo: UndoLog
) -> None:
    git(root, "init")
    (root / "a").write_text("committed\n", encoding="utf-8")
    git(root, "add", ".")
    git(root, "commit", "-m", "first")
    (root / "a").write_text("hours of work\n", encoding="utf-8")
    (root / "untracked").write_text("more work\n", encoding="utf-8")
    undo.begin_turn("clean up")
    bash(box, "git checkout -- a; git reset --hard; git stash; git clean -fdx; rm -rf a untracked")
    undo.undo()
    assert (root / "a").read_text(encoding="utf-8") == "hours of work\n"
    assert (root / "untracked").read_text(encoding="utf-8") == "more work\n"


@pytest.mark.sandbox
def test_wish_31_command_gets_no_terminal_and_no_input(box: Toolbox) -> None:
    assert bash(box, "cat; tty; exec 3<>/dev/tty").text.startswith("not a tty")


@pytest.mark.sandbox
def test_wish_32_detached_child_neither_delays_nor_survives(box: Toolbox) -> None:
    mark = f"89{time.monotonic_ns() % 10**8}"
    started = time.monotonic()
    assert bash(box, f"(setsid sleep {mark} &); echo done").text == "done"
    assert time.monotonic() - started < 5 and alive(mark) == []


@pytest.mark.sandbox
def test_wish_33_milliseconds_for_seconds_are_clamped_and_told(box: Toolbox) -> None:
    result = bash(box, "echo ok", timeout_s=600_000)
    assert result.ok and "timeout_s was changed from 600000 to 1800" in result.text


@pytest.mark.sandbox
def test_wish_34_ordinary_failure_is_not_called_a_refusal(box: Toolbox) -> None:
    result = bash(box, "ls no-such-file; exit 4")
    assert result.exit_code == 4 and "sandbox" not in result.text


@pytest.mark.sandbox
def test_wish_35_shell_is_no_way_around_the_rules_of_the_edit_tool(
    root: Path, box: Toolbox
) -> None:
    (root / "AGENTS.md").write_text("rules\n", encoding="utf-8")
    assert not box.run("edit", {"path": "AGENTS.md", "old": "rules", "new": "x"}).ok
    assert not bash(box, "echo x > AGENTS.md").ok
    assert (root / "AGENTS.md").read_text(encoding="utf-8") == "rules\n"


@pytest.mark.sandbox
def test_what_a_call_can_change_is_known_before_it_runs(box: Toolbox) -> None:
    access = {name: tool.access for name, tool in box.tools.items()}
    assert access["read"] is access["git"] is Access.READ
    assert access["write"] is access["edit"] is Access.WRITE
    assert access["bash"] is Access.EXECUTE and access["git_commit"] is Access.HISTORY


def test_wish_48_model_is_told_where_to_go_on_instead_of_reading_all(
    toolbox: Toolbox, file: Path
) -> None:
    file.write_text("line\n" * 1000, encoding="utf-8")
    text = toolbox.run("read", {"path": "a.py"}).text
    assert "lines 1-200 of 1000" in text and "continue with start_line=201" in text
    assert "lines 201-400 of 1000" in toolbox.run("more", {}).text
