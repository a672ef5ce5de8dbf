"""A full disk and a read-only one: nothing that was there is lost, and one line says it."""

import errno
import os
import subprocess
from pathlib import Path

import pytest

from tools.errors import ToolError
from tools.undo import restore
from tools.undo.log import UndoLog


def change(log: UndoLog, path: Path, text: str) -> str:
    """Change a file in a step of its own and return what is told."""
    log.begin_turn(text[:9])
    with log.step([path.name]):
        path.write_text(text, encoding="utf-8")
    problem, log.problem = log.problem, ""
    return problem


def remounted(disk: Path, how: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{how}", disk], check=True)


def test_log_on_a_small_disk(root: Path, small_disk: Path) -> None:
    log = UndoLog(small_disk / "undo", root)
    path = root / "a"
    path.write_text("0", encoding="utf-8")
    assert change(log, path, "1") == ""
    with (small_disk / "ballast").open("wb", buffering=0) as file:
        while file.write(bytes(4096)) == 4096:
            if os.statvfs(small_disk).f_bavail < 4:
                break
    noise = os.urandom(40_000).hex()  # its content does not fit
    told = change(log, path, noise)
    assert told.startswith("a change cannot be undone: No space left on device")
    assert "\n" not in told and path.read_text(encoding="utf-8") == noise
    assert [title for _, title, _, _ in log.turns()] == ["1"]
    log.close()
    log = UndoLog(small_disk / "undo", root)  # what was there is whole
    with pytest.raises(ToolError, match="a was changed since, so nothing was touched"):
        log.undo()
    path.write_text("1", encoding="utf-8")
    (small_disk / "ballast").unlink()
    assert change(log, path, "2") == ""
    log.close()
    remounted(small_disk, "ro")
    log = UndoLog(small_disk / "undo", root)
    assert "cannot be undone: Read-only file system" in change(log, path, "2")
    with pytest.raises(ToolError, match="restored, but that cannot be noted: Read-only") as caught:
        log.undo()
    assert caught.value.hint == "Mend that and do it again."
    assert path.read_text(encoding="utf-8") == "1"
    remounted(small_disk, "rw")
    assert log.undo().title == "2"
    assert log.undo().title == "1"
    assert path.read_text(encoding="utf-8") == "0"
    log.close()


def test_note_of_the_running_step_that_cannot_be_removed_hinders_nobody(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = UndoLog(tmp_path / "undo", root)
    assert change(log, root / "a", "1") == ""

    def refused(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(self))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        log.close()
    (left,) = (tmp_path / "undo/pending").iterdir()
    assert left.stat().st_size == 0
    again = UndoLog(tmp_path / "undo", root)
    assert again.problem == "" and not left.exists()
    assert [title for _, title, _, _ in again.turns()] == ["1"]
    again.close()


def test_project_on_a_full_disk_keeps_its_files(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = UndoLog(tmp_path / "undo", root)
    log.begin_turn("both")
    for name in "ab":
        (root / name).write_text("old", encoding="utf-8")
    with log.step(["a", "b"]):
        for name in "ab":
            (root / name).write_text("new", encoding="utf-8")
    n_left = 1  # files that still fit

    def full(descriptor: int) -> None:
        nonlocal n_left
        if not n_left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        n_left -= 1

    with monkeypatch.context() as patch:
        patch.setattr(restore.os, "fsync", full)
        with pytest.raises(ToolError, match="b cannot be restored: No space left") as caught:
            log.undo()
    assert caught.value.hint == "Mend that and do it again: it goes on where it stopped."
    assert {path.name: path.read_text(encoding="utf-8") for path in root.iterdir()} == {
        "a": "old",
        "b": "new",
    }
    log.undo()
    assert [(root / name).read_text(encoding="utf-8") for name in "ab"] == ["old", "old"]
    log.close()
