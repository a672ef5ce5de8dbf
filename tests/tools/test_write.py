"""The write tool: new files freely, old ones only when they were seen."""

import threading
from pathlib import Path

from tools.toolbox import Toolbox


def test_new_file_is_created_with_its_folders(toolbox: Toolbox, root: Path) -> None:
    result = toolbox.run("write", {"path": "a/b.txt", "content": "x\ny\n"})
    assert result.ok and "2 lines" in result.text
    assert (root / "a/b.txt").read_text(encoding="utf-8") == "x\ny\n"
    assert "+x" in result.diff and "--- /dev/null" in result.diff


def test_unread_file_is_not_overwritten(toolbox: Toolbox, root: Path) -> None:
    (root / "a.txt").write_text("precious\n", encoding="utf-8")
    result = toolbox.run("write", {"path": "a.txt", "content": "invented\n"})
    assert not result.ok and "not read" in result.text
    assert (root / "a.txt").read_text(encoding="utf-8") == "precious\n"


def test_read_file_is_overwritten(toolbox: Toolbox, root: Path) -> None:
    (root / "a.txt").write_text("old\n", encoding="utf-8")
    toolbox.run("read", {"path": "a.txt"})
    result = toolbox.run("write", {"path": "./a.txt", "content": "new\n"})
    assert result.ok
    assert "-old" in result.diff and "+new" in result.diff
    assert toolbox.run("write", {"path": "a.txt", "content": "newer\n"}).ok


def test_file_changed_after_reading_is_not_overwritten(toolbox: Toolbox, root: Path) -> None:
    (root / "a.txt").write_text("old\n", encoding="utf-8")
    toolbox.run("read", {"path": "a.txt"})
    (root / "a.txt").write_text("edited by the person\n", encoding="utf-8")
    result = toolbox.run("write", {"path": "a.txt", "content": "new\n"})
    assert not result.ok and "changed since" in result.text
    toolbox.run("read", {"path": "a.txt"})
    assert toolbox.run("write", {"path": "a.txt", "content": "new\n"}).ok


def test_touching_a_read_file_does_not_block_writing(toolbox: Toolbox, root: Path) -> None:
    (root / "a.txt").write_text("old\n", encoding="utf-8")
    toolbox.run("read", {"path": "a.txt"})
    (root / "a.txt").write_text("old\n", encoding="utf-8")
    assert toolbox.run("write", {"path": "a.txt", "content": "new\n"}).ok


def test_same_content_is_no_conflict(toolbox: Toolbox, root: Path) -> None:
    (root / "a.txt").write_text("same\n", encoding="utf-8")
    result = toolbox.run("write", {"path": "a.txt", "content": "same\n"})
    assert result.ok and result.diff == "" and "Unchanged" in result.text


def test_preview_shows_the_diff_and_changes_nothing(toolbox: Toolbox, root: Path) -> None:
    preview = toolbox.preview("write", {"path": "a.txt", "content": "x\n"})
    assert preview.title == "create a.txt" and "+x" in preview.diff
    assert list(root.iterdir()) == []


def test_cancelled_write_changes_nothing(toolbox: Toolbox, root: Path) -> None:
    cancel = threading.Event()
    cancel.set()
    assert not toolbox.run("write", {"path": "a.txt", "content": "x"}, cancel).ok
    assert list(root.iterdir()) == []


def test_half_a_surrogate_pair_is_written_as_replacement(toolbox: Toolbox, root: Path) -> None:
    assert toolbox.run("write", {"path": "a.txt", "content": "a\ud800b"}).ok
    assert (root / "a.txt").read_bytes() == b"a?b"


def test_numbers_copied_from_read_do_not_get_into_the_file(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_text("x = 1\ny = 2\n", encoding="utf-8")
    toolbox.run("read", {"path": "a.py"})
    result = toolbox.run("write", {"path": "a.py", "content": "1 x = 1\n2 y = 3\n"})
    assert result.ok and "+y = 3" in result.diff
    assert (root / "a.py").read_text(encoding="utf-8") == "x = 1\ny = 3\n"


def test_numbers_that_belong_to_a_file_stay(toolbox: Toolbox, root: Path) -> None:
    toolbox.run("write", {"path": "list.txt", "content": "1 one\n2 two\n"})
    assert (root / "list.txt").read_text(encoding="utf-8") == "1 one\n2 two\n"
    toolbox.run("write", {"path": "list.txt", "content": "1 eins\n2 zwei\n"})
    assert (root / "list.txt").read_text(encoding="utf-8") == "1 eins\n2 zwei\n"
