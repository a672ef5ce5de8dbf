"""Reading model files: what a good one gives, and one clear error for each kind of bad one."""

import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.gguf_file import GgufFile

ROOT = Path(__file__).parents[2]
F32, Q8_0 = 0, 8
U32, STRING, ARRAY = 4, 8, 9


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str, type_id: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", type_id) + value


def tensor(name: str, dims: list[int], type_id: int, offset: int) -> bytes:
    head = text(name) + struct.pack("<I", len(dims))
    return head + struct.pack(f"<{len(dims)}QIQ", *dims, type_id, offset)


def gguf(
    pairs: list[bytes] = (),
    tensors: list[bytes] = (),
    data: bytes = b"",
    version: int = 3,
    alignment: int = 32,
) -> bytes:
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(pairs))
    head += b"".join(pairs) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data


GOOD_PAIRS = [
    pair("general.architecture", STRING, text("llama")),
    pair("llama.block_count", U32, struct.pack("<I", 7)),
    pair("some.flag", 7, b"\x01"),
    pair("some.floats", ARRAY, struct.pack("<IQ3f", 6, 3, 1, 2, 3)),
    pair("some.words", ARRAY, struct.pack("<IQ", STRING, 2) + text("é") + text("")),
]
VALUES = np.arange(24, dtype="<f4").tobytes()  # 96 bytes
GOOD_TENSORS = [tensor("a", [4, 6], F32, 0), tensor("b", [64], Q8_0, 96)]
GOOD_DATA = VALUES + bytes(range(68))


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good.gguf"
    path.write_bytes(gguf(GOOD_PAIRS, GOOD_TENSORS, GOOD_DATA))
    return path


def error_of(tmp_path: Path, content: bytes) -> ModelFileError:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as caught:
        GgufFile.open(path)
    assert caught.value.hint
    assert "\n" not in str(caught.value)
    return caught.value


def test_open_reads_metadata_and_tensors(good: Path) -> None:
    with GgufFile.open(good) as file:
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata["llama.block_count"] == 7
        assert file.metadata["some.flag"] is True
        assert file.metadata["some.floats"] == [1.0, 2.0, 3.0]
        assert file.metadata["some.words"] == ["é", ""]
        assert file.tensors["a"].shape == (6, 4)
        assert file.tensors["b"].n_bytes == 68
        assert file.data("a").view("<f4").tolist() == list(range(24))
        assert not file.data("a").flags.writeable


def test_open_reads_version_2(tmp_path: Path) -> None:
    path = tmp_path / "two.gguf"
    path.write_bytes(gguf(GOOD_PAIRS, GOOD_TENSORS, GOOD_DATA, version=2))
    assert set(GgufFile.open(path).tensors) == {"a", "b"}


def test_require_names_both_shapes_when_they_differ(good: Path) -> None:
    file = GgufFile.open(good)
    assert file.require("a", (6, 4)).offset % 32 == 0
    with pytest.raises(ModelFileError, match=r"shape \[6, 4\], expected \[4, 6\]"):
        file.require("a", (4, 6))
    with pytest.raises(ModelFileError, match="no tensor c"):
        file.require("c", (1,))


def test_close_keeps_arrays_alive(good: Path) -> None:
    file = GgufFile.open(good)
    array = file.data("a")
    file.close()
    assert array[4:8].view("<f4")[0] == 1.0


@pytest.mark.parametrize("file_type, name", [(15, "Q4_K_M"), (3, "Q4_1"), (None, "F32")])
def test_quant_name(tmp_path: Path, file_type: int | None, name: str) -> None:
    pairs = list(GOOD_PAIRS)
    if file_type is not None:
        pairs.append(pair("general.file_type", U32, struct.pack("<I", file_type)))
    path = tmp_path / "q.gguf"
    path.write_bytes(gguf(pairs, GOOD_TENSORS, GOOD_DATA))
    assert GgufFile.open(path).quant_name == name


def test_fingerprint_follows_the_weights_only(tmp_path: Path, good: Path) -> None:
    def fingerprint(pairs: list[bytes], data: bytes) -> str:
        path = tmp_path / "other.gguf"
        path.write_bytes(gguf(pairs, GOOD_TENSORS, data))
        return GgufFile.open(path).fingerprint

    known = GgufFile.open(good).fingerprint
    renamed = [*GOOD_PAIRS, pair("general.name", STRING, text("Other"))]
    deeper = [*GOOD_PAIRS, pair("llama.context_length", U32, struct.pack("<I", 9))]
    assert len(known) == 40 and int(known, 16)
    assert fingerprint(list(reversed(renamed)), GOOD_DATA) == known
    assert fingerprint(deeper, GOOD_DATA) != known
    assert fingerprint(GOOD_PAIRS, VALUES[:-1] + b"\x01" + GOOD_DATA[96:]) != known


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "0 bytes, too small"),
        (b"GGUF\x03", "too small"),
        (b"PK\x03\x04" + bytes(40), "zip"),
        (b"<!DOCTYPE html><html><body>404</body></html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", "git-lfs"),
        (struct.pack("<Q", 30) + b'{"a":{"dtype":"F32"}}' + bytes(40), "safetensors"),
        (b'{"error": "Repository not found"}' + bytes(10), "JSON"),
        (bytes(64), "unknown format"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "version 9"),
        (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "1152921504606846976 tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 62), "metadata values"),
        (gguf([pair("k", 99, b"")]) + bytes(16), "value type 99"),
        (gguf([pair("k", STRING, text(b"\xff\xfe"))]), "UTF-8"),
        (gguf([pair("k", ARRAY, struct.pack("<IQ", STRING, 1) + text(b"\xff"))]), "UTF-8"),
        (gguf([pair("k", STRING, struct.pack("<Q", 1 << 50))]), "claims"),
        (gguf([pair("k", ARRAY, struct.pack("<IQ", 6, 1 << 50))]), "needs"),
        (gguf([pair("k", ARRAY, struct.pack("<IQ", STRING, 1 << 50))]), "needs"),
        (gguf([pair("k", U32, bytes(4))] * 2), "twice"),
        (gguf([pair("split.count", 2, struct.pack("<H", 3))]), "3 parts"),
        (gguf([pair("general.alignment", U32, struct.pack("<I", 24))]), "alignment"),
        (gguf([], [tensor("t", [4], 77, 0)], bytes(64)), "type 77"),
        (gguf([], [tensor("t", [1] * 5, F32, 0)], bytes(64)), "5 dimensions"),
        (gguf([], [tensor("t", [33], Q8_0, 0)], bytes(64)), "whole blocks of 32"),
        (gguf([], [tensor("t", [0], F32, 0)], bytes(64)), "shape"),
        (gguf([], [tensor("t", [1 << 40, 1 << 40], F32, 0)], bytes(64)), "tensors need"),
        (gguf([], [tensor("t", [4], F32, 8)], bytes(64)), "not a multiple of 32"),
        (gguf([], [tensor("t", [4], F32, 0)] * 2, bytes(64)), "t occurs twice"),
        (
            gguf([], [tensor("s", [16], F32, 0), tensor("t", [4], F32, 32)], bytes(64)),
            "s and t overlap",
        ),
        (gguf([], [tensor("t", [16], F32, 32)], bytes(64)), "tensors need"),
    ],
)
def test_open_says_what_is_wrong(tmp_path: Path, content: bytes, said: str) -> None:
    assert said in str(error_of(tmp_path, content))


def test_open_refuses_nested_arrays_without_end(tmp_path: Path) -> None:
    nested = struct.pack("<IQ", ARRAY, 1) * 50
    assert "deep" in str(error_of(tmp_path, gguf([pair("k", ARRAY, nested)])))


def test_open_says_that_a_file_is_missing_or_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="no model file"):
        GgufFile.open(tmp_path / "absent.gguf")
    with pytest.raises(ModelFileError, match="folder"):
        GgufFile.open(tmp_path)


def test_open_says_that_a_file_may_not_be_read(good: Path) -> None:
    good.chmod(0)
    # Permissions do not bind root: a child opens it that has given its rights up.
    program = (
        "import os, sys; from pathlib import Path; from engine.gguf_file import GgufFile\n"
        "file = os.open(Path(sys.argv[1]).parent, os.O_RDONLY); os.fchdir(file)\n"
        "if os.geteuid() == 0: os.setresuid(65534, 65534, 65534)\n"
        "try: GgufFile.open(Path(Path(sys.argv[1]).name))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(good)], capture_output=True, text=True, cwd=ROOT
    )
    assert "ModelFileError" in done.stdout and "may not be read" in done.stdout, done.stderr


def test_every_truncation_is_a_model_file_error(tmp_path: Path) -> None:
    whole = gguf(GOOD_PAIRS, GOOD_TENSORS, GOOD_DATA)
    for n_bytes in range(len(whole)):
        error_of(tmp_path, whole[:n_bytes])


def test_no_damage_raises_anything_else(tmp_path: Path) -> None:
    whole = gguf(GOOD_PAIRS, GOOD_TENSORS, GOOD_DATA)
    random = np.random.default_rng(7)
    path = tmp_path / "fuzz.gguf"
    n_refused = 0
    for _ in range(600):
        damaged = bytearray(whole)
        for at in random.integers(4, len(whole), size=int(random.integers(1, 4))):
            damaged[at] = int(random.integers(0, 256))
        path.write_bytes(damaged)
        try:
            GgufFile.open(path).close()
        except ModelFileError:
            n_refused += 1
    assert n_refused > 200  # most of a file this small is its header


@pytest.mark.model
def test_real_model_agrees_with_the_gguf_package(smollm2_path: Path) -> None:
    reader = pytest.importorskip("gguf").GGUFReader(smollm2_path)
    file = GgufFile.open(smollm2_path)
    assert file.quant_name == "Q4_1"
    assert len(file.tensors) == len(reader.tensors) == 272
    for theirs in reader.tensors:
        ours = file.tensors[theirs.name]
        assert (ours.offset, ours.n_bytes) == (theirs.data_offset, theirs.n_bytes)
        assert ours.shape == tuple(int(size) for size in reversed(theirs.shape))
