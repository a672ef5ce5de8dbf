"""The edit tool: exact where it can be, tolerant where it is safe, helpful where it fails."""

import random
import time
from pathlib import Path

import pytest

from tools.base import ToolResult
from tools.toolbox import Toolbox

PYTHON = b"def f(x):\n    if x:\n        return 1\n    return 2\n"


def edit(toolbox: Toolbox, old: str, new: str, path: str = "a.py") -> ToolResult:
    return toolbox.run("edit", {"path": path, "old": old, "new": new})


def test_exact_text_is_replaced_with_a_diff(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(PYTHON)
    result = edit(toolbox, "return 1", "return 10")
    assert result.ok and "line 3" in result.text
    assert (root / "a.py").read_bytes() == PYTHON.replace(b"return 1", b"return 10")
    assert "-        return 1\n" in result.diff and "+        return 10\n" in result.diff


@pytest.mark.parametrize(
    ("content", "old", "new", "wanted", "how"),
    [
        # line endings
        (b"a\r\nb\r\nc\r\n", "a\nb\n", "x\ny\n", b"x\r\ny\r\nc\r\n", "line endings"),
        (b"a\nb\nc\n", "a\r\nb\r\n", "x\r\ny\r\n", b"x\ny\nc\n", "line endings"),
        (b"a\r\nb\r\n", "b", "x\ny", b"a\r\nx\r\ny\r\n", ""),
        # trailing blanks
        (b"a  \nb\t\nc\n", "a\nb", "x\ny", b"x\ny\nc\n", "trailing blanks"),
        (b"a\nb\nc\n", "a \nb ", "x\ny", b"x\ny\nc\n", "trailing blanks"),
        # final newline that only one side has
        (b"a\nb", "a\nb\n", "x\ny\n", b"x\ny", "trailing blanks"),
        (b"a\nb\n", "a\nb", "x\ny", b"x\ny\n", ""),
        # uniform indent
        (
            b"class A:\n    def f(self):\n        pass\n",
            "def f(self):\n    pass\n",
            "def g(self):\n    return 1\n",
            b"class A:\n    def g(self):\n        return 1\n",
            "indent",
        ),
        (b"a:\n\tb\n\tc\n", "    b\n    c\n", "    x\n        y\n", b"a:\n\tx\n\t\ty\n", "indent"),
        (b"a:\n    b\n    c\n", "\tb\n\tc\n", "\tx\n\n\ty\n", b"a:\n    x\n\n    y\n", "indent"),
        # line numbers copied from read
        (b"a\nb\nc\n", "1 a\n2 b\n", "1 x\n2 y\n", b"x\ny\nc\n", ""),
    ],
)
def test_tolerant_passes_keep_the_style_of_the_file(
    toolbox: Toolbox, root: Path, content: bytes, old: str, new: str, wanted: bytes, how: str
) -> None:
    (root / "a.py").write_bytes(content)
    result = edit(toolbox, old, new)
    assert result.ok, result.text
    assert (root / "a.py").read_bytes().rstrip(b"\n") == wanted.rstrip(b"\n")
    assert (root / "a.py").read_bytes().endswith(b"\n") == content.endswith(b"\n")
    assert how in result.text


def test_mixed_line_endings_outside_the_edit_are_kept(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(b"a\r\nb\nc\r\nd\r\n")
    assert edit(toolbox, "c\nd", "x\ny").ok
    assert (root / "a.py").read_bytes() == b"a\r\nb\nx\r\ny\r\n"


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-be", "latin-1"])
def test_encoding_and_mark_are_kept(toolbox: Toolbox, root: Path, encoding: str) -> None:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    (root / "a.py").write_bytes((mark + "größe = 1\nzwei = 2\n").encode(encoding))
    assert edit(toolbox, "zwei = 2", "drei = 3").ok
    assert (root / "a.py").read_bytes() == (mark + "größe = 1\ndrei = 3\n").encode(encoding)


def test_character_the_encoding_lacks_is_refused(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes("größe\n".encode("latin-1"))
    result = edit(toolbox, "größe", "€")
    assert not result.ok and "latin-1" in result.text


def test_several_places_are_counted_and_named(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(b"x = 1\ny = 2\nx = 1\n")
    result = edit(toolbox, "x = 1", "x = 3")
    assert not result.ok and "2 times" in result.text and "lines 1, 3" in result.text
    assert (root / "a.py").read_bytes() == b"x = 1\ny = 2\nx = 1\n"


def test_tolerant_match_must_be_unique_too(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(b"if a:\n  go()\nif b:\n    go()\n")
    assert "2 times" in edit(toolbox, "      go()\n", "stop()\n").text


def test_overlapping_places_are_not_unique(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(b"aaa\n")
    assert "2 times" in edit(toolbox, "aa", "b").text


def test_miss_shows_the_nearest_lines(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(PYTHON)
    result = edit(toolbox, "    if y:\n        return 1\n", "pass\n")
    assert not result.ok and "2     if x:" in result.text and "3         return 1" in result.text


def test_applied_edit_is_recognised(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(PYTHON)
    assert edit(toolbox, "return 1", "return 10").ok
    result = edit(toolbox, "if x:\n        return 1\n", "if x:\n        return 10\n")
    assert not result.ok and "already there at line 2" in result.text


def test_equal_texts_are_refused(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(PYTHON)
    assert "old equals new" in edit(toolbox, "return 1", "return 1").text


def test_empty_old_is_refused(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(PYTHON)
    assert "old is empty" in edit(toolbox, "", "x").text


def test_empty_new_deletes(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(PYTHON)
    assert edit(toolbox, "    return 2\n", "").ok
    assert (root / "a.py").read_bytes() == PYTHON.replace(b"    return 2\n", b"")


def test_edit_of_a_file_read_before_lets_it_be_written(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_bytes(PYTHON)
    toolbox.run("read", {"path": "a.py"})
    assert edit(toolbox, "return 1", "return 10").ok
    assert toolbox.run("write", {"path": "a.py", "content": "pass\n"}).ok


def test_miss_in_a_long_file_answers_in_time(toolbox: Toolbox, root: Path) -> None:
    lines = [f"    value_{n} = compute({n}, {n * 7})" for n in range(60_000)]
    (root / "a.py").write_text("\n".join(lines), encoding="utf-8")
    started = time.perf_counter()
    result = edit(toolbox, "    valve_30000 = compute(30000)\n    x\n", "pass\n")
    assert not result.ok
    assert time.perf_counter() - started < 4  # 0.6 s alone


def test_file_of_equal_lines_does_not_hang(toolbox: Toolbox, root: Path) -> None:
    (root / "a.py").write_text("x\n" * 50_000, encoding="utf-8")
    started = time.perf_counter()
    assert not edit(toolbox, "x\n" * 2_000 + "y", "z").ok
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize("seed", range(20))
def test_random_edits_equal_plain_replacement(toolbox: Toolbox, root: Path, seed: int) -> None:
    rng = random.Random(seed)
    words = ["alpha", "beta", "größe", "  x", "\ty", "", "{", "}", "return 1", "日本"]
    for _ in range(20):
        newline = rng.choice(["\n", "\r\n"])
        lines = [f"{rng.choice(words)} {n}" for n in range(rng.randint(1, 30))]
        text = newline.join(lines) + rng.choice(["", newline])
        (root / "a.py").write_bytes(text.encode("utf-8"))
        first = rng.randrange(len(lines))
        last = rng.randint(first, len(lines) - 1)
        old = newline.join(lines[first : last + 1])
        new = newline.join(rng.choice(words) for _ in range(rng.randint(0, 4)))
        result = edit(toolbox, old, new)
        if text.count(old) == 1 and old != new:
            wanted = text.replace(old, new)
            assert result.ok, (text, old, result.text)
            assert (root / "a.py").read_bytes() == wanted.encode("utf-8")
        else:
            assert not result.ok
            assert (root / "a.py").read_bytes() == text.encode("utf-8")


@pytest.mark.parametrize("seed", range(20))
def test_random_distortions_change_only_the_target(toolbox: Toolbox, root: Path, seed: int) -> None:
    rng = random.Random(1000 + seed)
    for _ in range(10):
        indents = [0]
        for _ in range(rng.randint(3, 25)):
            indents.append(max(0, indents[-1] + rng.choice([-1, 0, 0, 1])))
        lines = [f"{'    ' * indent}statement_{n}()" for n, indent in enumerate(indents)]
        (root / "a.py").write_bytes(("\r\n".join(lines) + "\r\n").encode("utf-8"))
        first = rng.randrange(len(lines))
        last = rng.randint(first, len(lines) - 1)
        shift = "    " * rng.randint(0, 2)
        target = [f"{shift}{line}{' ' * rng.randint(0, 2)}" for line in lines[first : last + 1]]
        result = edit(toolbox, "\n".join(target) + "\n", f"{shift}done()\n")
        assert result.ok, result.text
        after = (root / "a.py").read_bytes().decode("utf-8").split("\r\n")
        assert after[:first] == lines[:first]
        assert after[first].strip() == "done()"
        assert after[first + 1 :] == [*lines[last + 1 :], ""]


def test_short_new_text_that_stands_somewhere_is_no_sign_of_an_applied_edit(root, toolbox) -> None:
    (root / "calc.py").write_text("def add(a, b):\n    return a - b\n", encoding="utf-8")
    missed = toolbox.run("edit", {"path": "calc.py", "old": "subtract", "new": "add"})
    assert not missed.ok and "applied already" not in missed.text
