"""Every way in which a tool changes files is recorded."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools.sandbox.probe import open_sandbox
from tools.toolbox import Toolbox
from tools.undo.log import UndoLog


@pytest.fixture
def log(root: Path, tmp_path: Path) -> Iterator[UndoLog]:
    log = UndoLog(tmp_path / "undo", root)
    log.begin_turn("turn")
    yield log
    log.close()


@pytest.fixture
def box(root: Path, log: UndoLog, sandbox: None) -> Iterator[Toolbox]:
    confined, report = open_sandbox(root)
    box = Toolbox(root, confined, report, undo=log)
    yield box
    box.close()


@pytest.mark.sandbox
def test_write_edit_and_command_of_a_turn_are_taken_back_together(
    box: Toolbox, root: Path, log: UndoLog
) -> None:
    (root / "src").mkdir()
    (root / "src/a.py").write_text("one\n", encoding="utf-8")
    box.run("write", {"path": "new/b.py", "content": "b\n"})
    box.run("edit", {"path": "src/a.py", "old": "one", "new": "two"})
    assert box.run("bash", {"command": "rm -r src; echo c > new/c.py"}).ok
    done = log.undo()
    assert (root / "src/a.py").read_text(encoding="utf-8") == "one\n"
    assert not (root / "new").exists()
    assert set(done.paths) == {"new", "new/b.py", "new/c.py", "src", "src/a.py"}
    # The model knows another content: it has to read again before it may overwrite.
    result = box.run("write", {"path": "src/a.py", "content": "x"})
    assert not result.ok and "Read it" in result.text


@pytest.mark.sandbox
def test_command_that_is_stopped_is_recorded_too(box: Toolbox, root: Path, log: UndoLog) -> None:
    (root / "a").write_text("old", encoding="utf-8")
    box.run("bash", {"command": "echo new > a; sleep 60", "timeout_s": 1})
    log.undo()
    assert (root / "a").read_text(encoding="utf-8") == "old"


@pytest.mark.sandbox
def test_background_job_is_recorded_with_the_next_look(
    box: Toolbox, root: Path, log: UndoLog
) -> None:
    (root / "d").mkdir()
    box.run("bash", {"command": "sleep 0.5; echo late > d/late", "background": True})
    deadline = time.monotonic() + 20
    while not (root / "d/late").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    box.run("bash_stop", {"job": 1})
    box.run("write", {"path": "d/next", "content": "x"})
    log.undo()
    assert list((root / "d").iterdir()) == []


def test_refused_and_reading_calls_record_nothing(root: Path, log: UndoLog) -> None:
    box = Toolbox(root, None, undo=log)
    (root / "a").write_text("old", encoding="utf-8")
    box.run("read", {"path": "a"})
    box.run("write", {"path": "../b", "content": "x"})
    box.run("edit", {"path": "a", "old": "none", "new": "x"})
    assert log.turns() == []
    box.close()
