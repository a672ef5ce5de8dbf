"""The read tool: any file, bounded, and told how to go on."""

import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from tools.toolbox import Toolbox


def test_lines_are_numbered_and_the_rest_is_announced(toolbox: Toolbox, root: Path) -> None:
    (root / "a.txt").write_text("one\ntwo\nthree\n", encoding="utf-8")
    result = toolbox.run("read", {"path": "a.txt", "max_lines": 2})
    assert result.text.splitlines() == [
        "a.txt lines 1-2 of 3",
        "1 one",
        "2 two",
        "(1 more lines; continue with start_line=3)",
    ]
    rest = toolbox.run("read", {"path": "a.txt", "start_line": 3})
    assert rest.text.splitlines() == ["a.txt lines 3-3 of 3", "3 three"]


def test_start_past_the_end_says_how_many_lines_there_are(toolbox: Toolbox, root: Path) -> None:
    (root / "a.txt").write_text("one\ntwo", encoding="utf-8")
    result = toolbox.run("read", {"path": "a.txt", "start_line": 9})
    assert not result.ok and "only 2 lines" in result.text


@pytest.mark.parametrize("content", ["", "x", "x\n", "x\ny", "\n", "\n\nx\n\n", "a\r\nb\r\n"])
@pytest.mark.parametrize("start_line", [1, 2, 3])
def test_window_equals_the_lines_of_the_text(
    toolbox: Toolbox, root: Path, content: str, start_line: int
) -> None:
    (root / "a.txt").write_bytes(content.encode("utf-8"))
    result = toolbox.run("read", {"path": "a.txt", "start_line": start_line})
    lines = content.replace("\r\n", "\n").removesuffix("\n").split("\n") if content else []
    wanted = [f"{n} {line}" for n, line in enumerate(lines, 1) if n >= start_line]
    if wanted:
        # A heading only tells what is missing: a whole file has none.
        head = [] if start_line == 1 else [f"a.txt lines {start_line}-{len(lines)} of {len(lines)}"]
        assert result.text.splitlines() == head + wanted
        assert f"of {len(lines)}" in result.title


def test_large_file_answers_fast_in_bounded_memory(toolbox: Toolbox, root: Path) -> None:
    line = b"x" * 62 + b"\n"
    n_lines = 800_000  # 50 MB
    with (root / "big.txt").open("wb") as file:
        for _ in range(100):
            file.write(line * (n_lines // 100))
    tracemalloc.start()
    started = time.perf_counter()
    result = toolbox.run("read", {"path": "big.txt"})
    elapsed_s = time.perf_counter() - started
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert f"lines 1-200 of {n_lines}" in result.text
    assert elapsed_s < 3  # 0.1 s alone; other tests may share the two cores
    assert peak_bytes < 16 << 20  # a few pieces of 1 MiB, not the file


def test_one_huge_line_is_cut_and_counted(toolbox: Toolbox, root: Path) -> None:
    (root / "min.js").write_text("y" * 5_000_000 + "\nend\n", encoding="utf-8")
    result = toolbox.run("read", {"path": "min.js"})
    assert "[4999000 more characters]" in result.text
    assert result.text.splitlines()[-1] == "2 end"
    assert len(result.text) < 3000


def test_result_is_bounded_in_bytes(root: Path) -> None:
    (root / "a.txt").write_text(("é" * 90 + "\n") * 4000, encoding="utf-8")
    result = Toolbox(root, None, max_result_bytes=4096).run(
        "read", {"path": "a.txt", "max_lines": 4000}
    )
    assert len(result.text.encode("utf-8")) < 4096 + 400
    assert "continue with start_line=" in result.text


def test_continuing_reads_every_line_once(root: Path) -> None:
    (root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 501)), encoding="utf-8")
    box = Toolbox(root, None, max_result_bytes=1024)
    seen: list[str] = []
    start = 1
    while start:
        lines = box.run("read", {"path": "a.txt", "start_line": start}).text.splitlines()
        more = lines[-1].startswith("(")
        seen += lines[1 : -1 if more else None]
        start = int(lines[-1].rpartition("=")[2].rstrip(")")) if more else 0
    assert seen == [f"{n} line {n}" for n in range(1, 501)]


@pytest.mark.parametrize(
    ("encoding", "label"),
    [("utf-8-sig", "UTF-8 with BOM"), ("utf-16", "utf-16-le"), ("latin-1", "latin-1")],
)
def test_other_encodings_are_read_and_named(
    toolbox: Toolbox, root: Path, encoding: str, label: str
) -> None:
    (root / "a.txt").write_bytes("größe\nzwei\n".encode(encoding))
    result = toolbox.run("read", {"path": "a.txt"})
    assert result.text.splitlines() == [f"a.txt lines 1-2 of 2, {label}", "1 größe", "2 zwei"]


def test_character_split_at_the_sample_border_is_no_error(toolbox: Toolbox, root: Path) -> None:
    (root / "a.txt").write_bytes(b"a" * 65535 + "é".encode() + b"\nnext\n")
    result = toolbox.run("read", {"path": "a.txt"})
    assert result.ok and "latin-1" not in result.text
    assert result.text.splitlines()[-1] == "2 next"


def test_binary_file_is_refused_with_its_size(toolbox: Toolbox, root: Path) -> None:
    (root / "x.bin").write_bytes(bytes(range(256)) * 4)
    result = toolbox.run("read", {"path": "x.bin"})
    assert not result.ok and "binary file of 1024 bytes" in result.text


def test_control_sequences_do_not_reach_the_model(toolbox: Toolbox, root: Path) -> None:
    (root / "a.log").write_bytes(b"\x1b[31mred\x1b[0m \x1b]0;title\x07ok\x08\n")
    assert toolbox.run("read", {"path": "a.log"}).text == "1 red ok"


def test_folder_is_refused_with_a_hint(toolbox: Toolbox, root: Path) -> None:
    (root / "sub").mkdir()
    result = toolbox.run("read", {"path": "sub"})
    assert not result.ok and "Use list" in result.text


def test_cancel_ends_a_long_read(toolbox: Toolbox, root: Path) -> None:
    with (root / "big").open("wb") as file:
        file.write(b"x\n" * 4_000_000)
    cancel = threading.Event()
    cancel.set()
    result = toolbox.run("read", {"path": "big"}, cancel)
    assert not result.ok and "interrupted" in result.text
