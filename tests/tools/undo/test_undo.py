"""Taking back what was done to real files."""

import errno
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tools.errors import ToolError
from tools.undo import journal, objects, snapshot
from tools.undo.log import UndoLog
from tools.undo.state import MAX_FILE_BYTES


@pytest.fixture
def log(root: Path, tmp_path: Path) -> Iterator[UndoLog]:
    log = UndoLog(tmp_path / "undo", root)
    yield log
    log.close()


def content(root: Path) -> dict[str, object]:
    """All of a workspace: contents and modes of files, targets of links, folders."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_dir():
            found[name] = "folder"
        else:
            found[name] = (path.read_bytes(), path.stat().st_mode)
    return found


def shell(log: UndoLog, root: Path, command: str, title: str = "turn") -> None:
    log.begin_turn(title)
    with log.step(None):
        subprocess.run(["/bin/sh", "-c", command], cwd=root, check=True)


def test_named_file_is_created_changed_and_brought_back(log: UndoLog, root: Path) -> None:
    log.begin_turn("write")
    with log.step(["new/sub/a.txt"]):
        (root / "new/sub").mkdir(parents=True)
        (root / "new/sub/a.txt").write_text("one\n", encoding="utf-8")
    log.begin_turn("edit")
    with log.step(["new/sub/a.txt"]):
        (root / "new/sub/a.txt").write_text("two\n", encoding="utf-8")
    done = log.undo()
    assert (done.title, done.paths) == ("edit", ("new/sub/a.txt",))
    assert (root / "new/sub/a.txt").read_text(encoding="utf-8") == "one\n"
    log.undo()
    assert content(root) == {}
    with pytest.raises(ToolError, match="nothing to undo"):
        log.undo()
    assert log.redo().title == "write"
    assert log.redo().title == "edit"
    assert (root / "new/sub/a.txt").read_text(encoding="utf-8") == "two\n"
    with pytest.raises(ToolError, match="nothing to redo"):
        log.redo()


def test_shell_command_that_destroys_everything_is_undone(log: UndoLog, root: Path) -> None:
    (root / "src/empty").mkdir(parents=True)
    (root / "src/a.py").write_bytes(b"a\r\nb\xff")
    (root / "run.sh").write_text("x", encoding="utf-8")
    (root / "run.sh").chmod(0o751)
    (root / "link").symlink_to("src/a.py")
    before = content(root)
    shell(
        log, root, "rm -rf src link; echo y > run.sh; chmod 600 run.sh; mkdir src2; echo > src2/b"
    )
    after = content(root)
    done = log.undo()
    assert content(root) == before
    assert set(done.paths) == {"link", "run.sh", "src", "src/a.py", "src/empty", "src2", "src2/b"}
    log.redo()
    assert content(root) == after


def test_file_and_folder_of_one_name_change_places(log: UndoLog, root: Path) -> None:
    (root / "x").write_text("file", encoding="utf-8")
    (root / "y").mkdir()
    (root / "y/z").write_text("z", encoding="utf-8")
    before = content(root)
    shell(log, root, "rm x; mkdir x; echo 1 > x/q; rm -r y; ln -s x y")
    after = content(root)
    log.undo()
    assert content(root) == before
    log.redo()
    assert content(root) == after


def test_file_changed_since_is_never_overwritten(log: UndoLog, root: Path) -> None:
    (root / "a").write_text("old", encoding="utf-8")
    (root / "b").write_text("old", encoding="utf-8")
    shell(log, root, "echo new > a; echo new > b")
    (root / "b").write_text("mine", encoding="utf-8")
    with pytest.raises(ToolError, match="b was changed since, so nothing was touched"):
        log.undo()
    assert (root / "a").read_text(encoding="utf-8") == "new\n"
    (root / "b").write_text("new\n", encoding="utf-8")
    log.undo()
    assert (root / "a").read_text(encoding="utf-8") == "old"


def test_what_a_person_changes_between_two_turns_stays(log: UndoLog, root: Path) -> None:
    shell(log, root, "echo 1 > a")
    (root / "mine").write_text("mine", encoding="utf-8")
    shell(log, root, "echo 2 > b")
    log.undo()
    log.undo()
    assert list(content(root)) == ["mine"]


def test_steps_of_a_turn_are_one(log: UndoLog, root: Path) -> None:
    (root / "a").write_text("0", encoding="utf-8")
    log.begin_turn("two steps")
    for text in ("1", "2"):
        with log.step(["a"]):
            (root / "a").write_text(text, encoding="utf-8")
    assert log.diff().count("@@") == 2 and "-0" in log.diff() and "+2" in log.diff()
    log.undo()
    assert (root / "a").read_text(encoding="utf-8") == "0"


def test_turn_that_ends_where_it_began_is_no_turn(log: UndoLog, root: Path) -> None:
    (root / "a").write_text("0", encoding="utf-8")
    shell(log, root, "true")
    assert log.turns() == []
    log.begin_turn("there and back")
    for text in ("1", "0"):
        with log.step(["a"]):
            (root / "a").write_text(text, encoding="utf-8")
    log.undo()
    assert (root / "a").read_text(encoding="utf-8") == "0"


def test_new_change_forgets_what_could_be_redone(log: UndoLog, root: Path) -> None:
    shell(log, root, "echo 1 > a")
    log.undo()
    shell(log, root, "echo 2 > b")
    with pytest.raises(ToolError, match="nothing to redo"):
        log.redo()


def test_restore_to_takes_back_several_turns_at_once(log: UndoLog, root: Path) -> None:
    shell(log, root, "echo 0 > keep")
    mark = log.mark()
    before = content(root)
    shell(log, root, "echo 1 > a; echo 1 >> keep")
    shell(log, root, "echo 2 > a; mkdir d; echo > d/x")
    done = log.restore_to(mark)
    assert done is not None and content(root) == before
    assert log.restore_to(mark) is None


def test_journal_survives_a_new_process_and_a_cut_line(root: Path, tmp_path: Path) -> None:
    first = UndoLog(tmp_path / "undo", root)
    shell(first, root, "echo 1 > a")
    first.close()
    with (tmp_path / "undo/journal.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"do": "change", "turn": 2, "ti')
    second = UndoLog(tmp_path / "undo", root)
    shell(second, root, "echo 2 > a")
    second.close()
    third = UndoLog(tmp_path / "undo", root)
    third.undo()
    assert (root / "a").read_text(encoding="utf-8") == "1\n"
    third.undo()
    assert content(root) == {}
    third.close()


def test_crash_in_the_middle_of_an_undo_is_finished_by_the_next(log: UndoLog, root: Path) -> None:
    for name in ("a", "b"):
        (root / name).write_text("old", encoding="utf-8")
    shell(log, root, "echo new > a; echo new > b")
    (root / "a").write_text("old", encoding="utf-8")  # as if only this one had been restored
    log.undo()
    assert (root / "b").read_text(encoding="utf-8") == "old"


def test_large_file_is_named_as_not_covered(log: UndoLog, root: Path) -> None:
    (root / "big").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (root / "small").write_text("old", encoding="utf-8")
    shell(log, root, "rm big; echo new > small")
    done = log.undo()
    assert done.not_covered == ("big",) and done.paths == ("small",)
    assert "big: removed" in log.diff(0) or log.diff(0) == ""


def test_looking_is_bounded_in_number_and_time(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        (root / f"f{number:02}").write_text("old", encoding="utf-8")
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    kept: list[bytes] = []
    found = snapshot.take_snapshot(fd, lambda data: str(kept.append(data)), max_entries=10)
    assert len(found.states) == 10 and not found.is_complete
    kept.clear()
    found = snapshot.take_snapshot(fd, lambda data: str(kept.append(data)), max_seconds=0.0)
    assert kept == [] and not any(state.is_known for state in found.states.values())
    os.close(fd)


def test_protected_secret_and_installed_files_are_not_copied(log: UndoLog, root: Path) -> None:
    for path in (".git/config", ".env", "node_modules/x/i.js", "id_rsa", "AGENTS.md", "a.py"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("x", encoding="utf-8")
    found = snapshot.take_snapshot(
        os.open(root, os.O_RDONLY | os.O_DIRECTORY), lambda data: "digest"
    )
    assert list(found.states) == ["a.py"]


def test_link_planted_in_place_of_a_folder_is_not_followed(
    log: UndoLog, root: Path, tmp_path: Path
) -> None:
    (root / "d").mkdir()
    (root / "d/a").write_text("old", encoding="utf-8")
    shell(log, root, "echo new > d/a")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a").write_text("new\n", encoding="utf-8")
    shutil.rmtree(root / "d")
    (root / "d").symlink_to(outside)
    with pytest.raises(ToolError, match="was changed since"):
        log.undo()
    assert (outside / "a").read_text(encoding="utf-8") == "new\n"


def test_store_is_bounded_and_the_oldest_turns_go_first(root: Path, tmp_path: Path) -> None:
    log = UndoLog(tmp_path / "undo", root, max_store_bytes=70_000)
    random_bytes = random.Random(1).randbytes
    for number in range(6):
        log.begin_turn(f"turn {number}")
        with log.step(["a"]):
            (root / "a").write_bytes(random_bytes(20_000))
    log.close()
    log = UndoLog(tmp_path / "undo", root)
    assert [title for _, title, _, _ in log.turns()] == ["turn 4", "turn 5"]
    log.undo()
    log.close()


def test_background_change_is_absorbed_into_the_turn(log: UndoLog, root: Path) -> None:
    shell(log, root, "echo 1 > a")
    (root / "late").write_text("by a job", encoding="utf-8")
    log.absorb()
    log.undo()
    assert content(root) == {}


def test_random_commands_are_undone_and_redone_exactly(log: UndoLog, root: Path) -> None:
    rng = random.Random(20261203)
    names = ["a", "b", "d/a", "d/b", "d/e/a", "d/e", "d"]
    history = [content(root)]
    while len(history) < 25:
        path = rng.choice(names)
        parent = f"mkdir -p $(dirname {path}) 2>/dev/null"
        commands = [
            f"{parent}; echo {rng.random()} > {path} 2>/dev/null; true",
            f"rm -rf {path}",
            f"mkdir -p {path} 2>/dev/null; true",
            f"{parent}; rm -rf {path}; ln -s {rng.random()} {path} 2>/dev/null; true",
            f"chmod 7{rng.choice('05')}0 {path} 2>/dev/null; true",
            f"mv a {path} 2>/dev/null; true",
        ]
        shell(log, root, rng.choice(commands) + "; chmod -f 755 d d/e; true")
        now = content(root)
        if now != history[-1]:
            history.append(now)
    assert len(log.turns()) >= len(history) - 1
    for wanted in reversed(history[:-1]):
        while content(root) != wanted:
            log.undo()
    for wanted in history[1:]:
        while content(root) != wanted:
            log.redo()


def test_diff_shows_text_and_names_the_rest(log: UndoLog, root: Path) -> None:
    (root / "gone").write_text("was\n", encoding="utf-8")
    shell(log, root, r"rm gone; printf 'a\nb\n' > t; printf '\0\1' > bin; ln -s t l; mkdir d")
    diff = log.diff()
    assert "+++ /dev/null" in diff and "-was" in diff
    assert "--- /dev/null\n+++ t\n" in diff and "+b" in diff
    assert "bin: created" in diff and "+link to t" in diff


def test_change_that_cannot_be_kept_goes_on_and_is_told(root: Path, tmp_path: Path) -> None:
    (tmp_path / "undo").write_text("a file where the folder should be", encoding="utf-8")
    log = UndoLog(tmp_path / "undo/log", root)
    (root / "a").write_text("old", encoding="utf-8")
    log.begin_turn("turn")
    with log.step(["a"]):
        (root / "a").write_text("new", encoding="utf-8")
    assert (root / "a").read_text(encoding="utf-8") == "new"
    assert "cannot be undone: Not a directory" in log.problem


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Fill the disk of the log, or make room: every write to it fails, or none."""
    is_full = False

    def refuse(path: str | Path, *_: object, **__: object) -> None:
        if is_full and "undo" in Path(path).parts:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))

    def wrap(module: object, name: str) -> None:
        plain = getattr(module, name)

        def wrapped(*arguments: object, **options: object) -> object:
            refuse(*arguments)
            return plain(*arguments, **options)

        monkeypatch.setattr(module, name, wrapped)

    wrap(objects.os, "replace")
    wrap(journal, "make_private_folder")

    def fill(now: bool) -> None:
        nonlocal is_full
        is_full = now

    return fill


def test_file_that_could_not_be_kept_is_not_taken_for_a_new_one(
    log: UndoLog, root: Path, full: Callable[[bool], None]
) -> None:
    """The look before the command meets a full disk, the one after it does not."""
    (root / "mine").write_text("old", encoding="utf-8")
    full(True)
    log.begin_turn("makes room")
    with log.step(None):
        full(False)
    assert "cannot be undone: No space left on device" in log.problem
    assert log.turns() == []
    with pytest.raises(ToolError, match="nothing to undo"):
        log.undo()
    assert (root / "mine").read_text(encoding="utf-8") == "old"
    shell(log, root, "echo new > mine")
    log.undo()
    assert (root / "mine").read_text(encoding="utf-8") == "old"


def test_full_disk_leaves_no_half_contents_and_no_work_is_hindered(
    log: UndoLog, root: Path, tmp_path: Path, full: Callable[[bool], None]
) -> None:
    shell(log, root, "echo 1 > a")
    full(True)
    shell(log, root, "echo 2 > a")
    assert "cannot be undone" in log.problem
    (root / "late").write_text("by a job", encoding="utf-8")
    log.problem = ""
    log.absorb()
    assert "cannot be undone" in log.problem
    assert [path.name for path in (tmp_path / "undo").rglob("*.tmp")] == []
    log._max_store_bytes = 0
    log.close()  # what is too old stays for now
    full(False)
    again = UndoLog(tmp_path / "undo", root)
    assert [title for _, title, _, _ in again.turns()] == ["turn"]
    again.close()
    log._root_fd = os.open(root, os.O_RDONLY)  # for the fixture


def test_step_that_was_cut_off_is_not_forgotten_while_the_disk_is_full(
    root: Path, tmp_path: Path, full: Callable[[bool], None]
) -> None:
    (root / "a").write_text("old", encoding="utf-8")
    program = (
        "import os, sys; from pathlib import Path; from tools.undo.log import UndoLog\n"
        "root = Path(sys.argv[1]); log = UndoLog(Path(sys.argv[2]), root); log.begin_turn('work')\n"
        "with log.step(None):\n"
        "    (root / 'a').write_text('new'); os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(root), str(tmp_path / "undo")])
    full(True)
    log = UndoLog(tmp_path / "undo", root)
    assert "cut off and cannot be undone now: No space left on device" in log.problem
    assert log.turns() == []
    log.close()
    full(False)
    log = UndoLog(tmp_path / "undo", root)
    assert log.undo().title == "work (cut off)"
    assert (root / "a").read_text(encoding="utf-8") == "old"
    log.close()


def test_program_killed_in_a_step_can_undo_it_at_its_next_start(root: Path, tmp_path: Path) -> None:
    (root / "a").write_text("old", encoding="utf-8")
    program = (
        "import os, signal, sys; from pathlib import Path; from tools.undo.log import UndoLog\n"
        "root = Path(sys.argv[1]); log = UndoLog(Path(sys.argv[2]), root); log.begin_turn('work')\n"
        "with log.step(None):\n"
        "    (root / 'a').unlink(); (root / 'b').write_text('new'); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(root), str(tmp_path / "undo")])
    assert done.returncode == -9 and not (root / "a").exists()
    log = UndoLog(tmp_path / "undo", root)
    assert log.undo().title == "work (cut off)"
    assert list(content(root)) == ["a"]
    log.close()
    assert UndoLog(tmp_path / "undo", root).turns()[0][3]
    assert list((tmp_path / "undo/pending").iterdir()) == []


def test_step_of_a_living_program_is_not_taken_for_a_dead_ones(log: UndoLog, root: Path) -> None:
    log.begin_turn("mine")
    with log.step(None):
        (root / "a").write_text("new", encoding="utf-8")
        other = UndoLog(Path(os.readlink(f"/proc/self/fd/{log._pending._fd}")).parents[1], root)
        assert other.turns() == []
    assert other.undo().title == "mine"  # recorded meanwhile
    other.close()


def test_job_of_an_earlier_turn_does_not_draw_in_that_turns_edits(log: UndoLog, root: Path) -> None:
    (root / "a").write_text("0", encoding="utf-8")
    shell(log, root, "true", "starts a job")
    with log.step(["a"]):
        (root / "a").write_text("1", encoding="utf-8")
    log.begin_turn("next")
    (root / "late").write_text("by the job", encoding="utf-8")
    log.absorb()
    assert log.undo().paths == ("late",)
    assert (root / "a").read_text(encoding="utf-8") == "1"
    log.absorb()
    assert [title for _, title, _, undone in log.turns() if not undone] == ["starts a job"]
