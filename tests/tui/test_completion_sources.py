"""Fuzzy ranking, the index of files, the file of sent messages."""

import contextlib
import errno
import os
import subprocess
from pathlib import Path

import pytest

from ds4agent.completion.file_index import FileIndex, walk
from ds4agent.completion.fuzzy import best, rank
from ds4agent.tui import input_history
from ds4agent.tui.input_history import InputHistory


def plant(top: Path, *names: str) -> None:
    for number, name in enumerate(names):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x", encoding="utf-8")
        os.utime(path, (1000 + number, 1000 + number))


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return tmp_path / "top"


def index(top: Path) -> FileIndex:
    made = FileIndex(lambda: top)
    made.refresh(lambda: None)
    made._thread.join()
    return made


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("", "src/app.py", 0),
        ("src", "src/app.py", 2),
        ("src/", "src/app.py", 0),
        ("app", "src/app.py", 0),
        ("pp", "src/app.py", 1),
        ("rc", "src/app.py", 2),
        ("sap", "src/app.py", 3),
        ("xyz", "src/app.py", None),
        ("pa", "ap", None),
    ],
)
def test_rank(query: str, text: str, expected: int | None) -> None:
    assert rank(query, text, text.rfind("/") + 1) == expected


def test_best_is_what_a_plain_loop_finds() -> None:
    names = [f"{a}{b}{c}" for a in "abc" for b in "abc" for c in "abc"]
    fitting = [name for name in names if rank("ab", name) is not None]
    found = best("ab", fitting, str, lambda name: (name,), 4)
    plainly = sorted((r, name) for name in names if (r := rank("ab", name)) is not None)
    assert found == [name for _, name in plainly[:4]]


def test_walk_leaves_out_what_git_ignores_and_what_cannot_be_shown(top: Path) -> None:
    plant(top, "a.py", "build/x.o", "deep/b.py", "deep/c.log", "deep/keep.log", ".git/config")
    plant(top, "bad\x1b[31m.py", "new\nline.py", "zero\u200bwidth.py", "rtl\u202e.py")
    (top / ".gitignore").write_text("build/\n*.log\n", encoding="utf-8")
    (top / "deep" / ".gitignore").write_text("!keep.log\n", encoding="utf-8")
    (top / "link").symlink_to(top / "deep")
    assert {entry.path for entry in walk(top)} == {
        ".gitignore",
        "a.py",
        "deep/",
        "deep/.gitignore",
        "deep/b.py",
        "deep/keep.log",
    }


def test_walk_ends_at_a_number_of_names(top: Path) -> None:
    plant(top, *(f"d{number}/f" for number in range(20)))
    assert len(list(walk(top, max_names=7))) == 7


def test_walk_of_a_folder_that_is_not_there_finds_nothing(top: Path) -> None:
    assert list(walk(top / "no")) == []


def test_index_ranks_names_before_paths_and_new_before_old(top: Path) -> None:
    plant(top, "test/other.py", "old_test.py", "new_test.py", "test.py")
    found = [entry.path for entry in index(top).find("test")]
    assert found[:2] == ["test.py", "test/"]
    assert found.index("new_test.py") < found.index("old_test.py") < found.index("test/other.py")


def test_index_without_a_query_lists_what_changed_last(top: Path) -> None:
    plant(top, "one", "two", "three")
    assert [entry.path for entry in index(top).find("", 2)] == ["three", "two"]


def test_index_finds_the_same_whether_typed_letter_by_letter_or_at_once(top: Path) -> None:
    plant(top, *(f"{a}/{b}{c}.py" for a in "ab" for b in "abc" for c in "abc"))
    slowly = index(top)
    for end in range(1, 6):
        found = slowly.find("a/bc."[:end])
    assert found == index(top).find("a/bc.")
    assert slowly.find("b") == index(top).find("b")  # and back again


def test_history_is_kept_bounded_and_survives_other_peoples_lines(tmp_path: Path) -> None:
    path = tmp_path / "state" / "history.jsonl"
    history = InputHistory(path)
    assert history.read() == []
    for text in ("one\nline", "two", "two", "é\udc80", " "):
        history.add(text)
    with path.open("ab") as file:
        file.write(b'{"no": 1}\n\xff\xfe\nnot json\n"cut')
    assert history.read() == ["one\nline", "two", "é\udc80"]


def test_history_drops_its_older_half_when_it_grows(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(input_history, "_LARGEST_BYTES", 2000)
    monkeypatch.setattr(input_history, "LIMIT", 5)
    history = InputHistory(tmp_path / "history.jsonl")
    for number in range(400):
        history.add(f"message {number}")
    assert history.read() == [f"message {number}" for number in range(395, 400)]
    assert (tmp_path / "history.jsonl").stat().st_size < 3000


def test_history_that_cannot_be_written_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    history = InputHistory(tmp_path / "file" / "history.jsonl")
    assert history.add("x") == "not kept for the next run: File exists"
    assert history.add("y") == ""  # once is enough
    assert history.read() == []


def test_full_disk_costs_the_new_message_alone(small_disk: Path) -> None:
    path = small_disk / "history.jsonl"
    history = InputHistory(path)
    assert history.add("kept") == ""
    kept = path.read_bytes()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    assert history.add("a") == "not kept for the next run: Read-only file system"
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    assert history.add("kept too") == ""
    kept += b'"kept too"\n'
    ballast = b"." * (1 << 20)
    with contextlib.suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as file:
        while ballast:
            ballast = ballast[file.write(ballast) :]
    long = "x" * 10_000  # more than what is left of the last page of the file
    assert history.add(long) == "not kept for the next run: No space left on device"
    assert history.add(long) == "" and path.read_bytes() == kept
    (small_disk / "ballast").unlink()
    assert history.add(long) == "" and history.read() == ["kept", "kept too", long]


def test_history_that_grew_loses_nothing_new_on_a_full_disk(tmp_path: Path, monkeypatch) -> None:
    """The older half goes, and only then the message finds no room."""
    monkeypatch.setattr(input_history, "_LARGEST_BYTES", 2000)
    monkeypatch.setattr(input_history, "LIMIT", 5)
    path = tmp_path / "history.jsonl"
    path.write_text("".join(f'"message {n}"\n' for n in range(200)), encoding="utf-8")

    def full(file: int, data: bytes, at: int) -> int:
        if at + len(data) > os.fstat(file).st_size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return plain(file, data, at)

    plain = os.pwrite
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert "No space left" in InputHistory(path).add("new")
    newest = [f"message {n}" for n in range(195, 200)]
    assert InputHistory(path).read() == newest
    path.write_bytes(path.read_bytes() + b'"torn')
    assert InputHistory(path).add("new") == ""
    assert InputHistory(path).read() == [*newest[1:], "new"]
