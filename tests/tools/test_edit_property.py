"""A unique edit changes exactly the intended bytes: random files, encodings and line endings.

The expected bytes are put together here from pieces, without any code of the tool.
"""

import random
from pathlib import Path

import pytest

from tools.toolbox import Toolbox

_ENCODINGS = {
    "utf-8": b"",
    "utf-8 with mark": b"\xef\xbb\xbf",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "latin-1": b"",
}
_WORDS = ("def", "x", "return", "{", "}", "  ", "\t", "é", "ü", "=", "a-b", "#", "if:", "")
_WIDE = ("日本", "🙂", "ß→", "naïve")  # not in latin-1


def words(rng: random.Random, encoding: str) -> str:
    pool = _WORDS if encoding == "latin-1" else _WORDS + _WIDE
    return " ".join(rng.choice(pool) for _ in range(rng.randint(0, 6)))


def make_file(rng: random.Random, encoding: str) -> list[tuple[str, str]]:
    """Lines as (text, ending): one ending throughout, or mixed; perhaps none at the end."""
    style = rng.choice(["\n", "\r\n", "mixed"])
    lines = []
    for number in range(rng.randint(1, 30)):
        ending = rng.choice(["\n", "\r\n"]) if style == "mixed" else style
        unique = f"{number:02}" if rng.random() < 0.7 else ""
        lines.append((unique + words(rng, encoding), ending))
    if rng.random() < 0.4:
        lines[-1] = (lines[-1][0], "")
    if encoding == "latin-1":
        lines[0] = ("é" + lines[0][0], lines[0][1])  # else it would be UTF-8
    return lines


def encode(encoding: str, text: str) -> bytes:
    return _ENCODINGS[encoding] + text.encode(encoding.removesuffix(" with mark"))


def ending_of(lines: list[tuple[str, str]], first: int, fallback: str) -> str:
    """The ending of the place: that of the first changed line that has one, else before it."""
    after = [ending for _, ending in lines[first:] if ending]
    before = [ending for _, ending in lines[:first] if ending]
    return (after or before[::-1] or [fallback])[0]


def check(root: Path, toolbox: Toolbox, rng: random.Random) -> bool:
    """Make a file and an edit of whole lines or within one; True when it was a unique one."""
    encoding = rng.choice(list(_ENCODINGS))
    lines = make_file(rng, encoding)
    first = rng.randrange(len(lines))
    flat = "".join(text + ("\n" if ending else "") for text, ending in lines)
    new_lines = [words(rng, encoding) for _ in range(rng.randint(1, 4))]
    new = "\n".join(new_lines)
    if rng.random() < 0.5:  # whole lines
        last = rng.randint(first, min(len(lines) - 1, first + 5))
        old = "\n".join(text for text, _ in lines[first : last + 1])
        head = "".join(text + ending for text, ending in lines[:first])
        tail = lines[last][1] + "".join(text + ending for text, ending in lines[last + 1 :])
    else:  # a part of one line
        text, ending = lines[first]
        start, end = sorted((rng.randint(0, len(text)), rng.randint(0, len(text))))
        old = text[start:end]
        head = "".join(t + e for t, e in lines[:first]) + text[:start]
        tail = text[end:] + ending + "".join(t + e for t, e in lines[first + 1 :])
    n_places = sum(flat.startswith(old, i) for i in range(len(flat))) if old else 0
    before = encode(encoding, "".join(text + ending for text, ending in lines))
    path = root / "file.txt"
    path.write_bytes(before)
    result = toolbox.run("edit", {"path": "file.txt", "old": old, "new": new})
    if n_places != 1 or old == new:
        assert not result.ok or path.read_bytes() != before
        if n_places > 1:
            assert path.read_bytes() == before, "an ambiguous edit changed the file"
        return False
    wanted = encode(encoding, head + ending_of(lines, first, "\n").join(new_lines) + tail)
    if wanted == before:
        return False
    assert result.ok, (old, flat, result.text)
    assert path.read_bytes() == wanted, (encoding, old, new, lines)
    return True


@pytest.mark.parametrize("seed", range(3))
def test_unique_edit_changes_exactly_the_intended_bytes(
    root: Path, toolbox: Toolbox, seed: int
) -> None:
    rng = random.Random(seed)
    assert sum(check(root, toolbox, rng) for _ in range(100)) > 50


@pytest.mark.slow
def test_unique_edit_changes_exactly_the_intended_bytes_in_10000_files(
    root: Path, toolbox: Toolbox
) -> None:
    rng = random.Random(20261203)
    n_unique = 0
    while n_unique < 10_000:
        n_unique += check(root, toolbox, rng)


@pytest.mark.parametrize("old", ["\nb", "\nb\n", "a\n", "\n"])
def test_line_ending_at_the_edge_of_old_stays_whole(root: Path, toolbox: Toolbox, old: str) -> None:
    (root / "file.txt").write_bytes(b"a\r\nb\r\n" if old != "\n" else b"a\r\nb")
    result = toolbox.run(
        "edit", {"path": "file.txt", "old": old, "new": old.replace("b", "c\nd") + "x"}
    )
    data = (root / "file.txt").read_bytes()
    assert result.ok and b"\r\r" not in data and data.replace(b"\r\n", b"").count(b"\n") == 0
