"""Exported sessions: what comes back, what is refused, passphrases."""

import dataclasses
import hashlib
import io
import json
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

from sessions import export_file, sealed
from sessions.errors import CheckpointError, ChecksumError
from sessions.export_file import Facts
from sessions.grids import FP4, FP8
from tests.sessions.states import TEXT, assert_same, make_state
from tests.sessions.test_squeeze import on_grid

FACTS = Facts("Größe prüfen", 1_779_364_800, "name", "/home/me", "tiny", "ds4-agent 0", 77)


def written(path: Path, state, text=TEXT, passphrase="") -> bytes:
    with path.open("w+b") as file:
        export_file.write(file, state, text, FACTS, passphrase)
    return path.read_bytes()


def read(path: Path, data: bytes, passphrase=""):
    path.write_bytes(data)
    with path.open("rb") as file:
        return export_file.read(file, passphrase)


def v4_state(n: int = 700, ctx: int = 4096):
    """Arrays with the names and types of DeepSeek V4, on its grids."""
    random = np.random.default_rng(n)
    arrays = {}
    for i in range(2):
        rows = random.standard_normal((n, 512)).astype(np.float16)
        rows[:, :448] = on_grid(random, n, 448, FP8)
        arrays[f"layers.{i}.window"] = rows[-128:]
        arrays[f"layers.{i}.compressed"] = rows
        arrays[f"layers.{i}.indexer.compressed"] = on_grid(random, n, 128, FP4)
        score = np.full((8, 256), -1e30, np.float32)
        score[:4] = random.standard_normal((4, 256))
        arrays[f"layers.{i}.compressor.score"] = score
    tokens = tuple(random.integers(0, 500, n).tolist())
    logits = random.standard_normal(500).astype(np.float32)
    state = make_state()
    return dataclasses.replace(
        state, family="deepseek_v4", ctx=ctx, tokens=tokens, logits=logits, arrays=arrays
    )


@pytest.mark.parametrize(
    "state",
    [
        make_state(),
        make_state(n_tokens=300, n_layers=3, n_heads=2, head_dim=64),
        make_state(n_layers=0),
        v4_state(),
        dataclasses.replace(make_state(), arrays={"a": np.zeros((0, 512), np.float16)}),
    ],
    ids=["tiny", "llama", "no layers", "v4", "no rows"],
)
@pytest.mark.parametrize("passphrase", ["", "Größe"])
def test_a_state_comes_back_bit_by_bit(state, passphrase, tmp_path) -> None:
    data = written(tmp_path / "a", state, passphrase=passphrase)
    found, text, facts = read(tmp_path / "b", data, passphrase)
    assert_same(found, state)
    assert (text, facts, found.expert_bits) == (TEXT, FACTS, state.expert_bits)
    assert (TEXT in data) is False


def test_a_state_on_grids_takes_a_quarter_of_its_float32_file(tmp_path) -> None:
    state = v4_state(3000)
    n_float32 = sum(4 * array.size for array in state.arrays.values())
    assert len(written(tmp_path / "a", state)) < 0.3 * n_float32


def test_progress_reaches_its_end(tmp_path) -> None:
    told: list[tuple[int, int]] = []
    state = make_state(n_tokens=2000, n_heads=4, head_dim=64)
    with (tmp_path / "a").open("w+b") as file:
        export_file.write(file, state, TEXT, FACTS, progress=lambda *n: told.append(n))
        assert told[-1][0] == told[-1][1] > 0
        told.clear()
        export_file.read(file, progress=lambda *n: told.append(n))
    assert told[-1][0] == told[-1][1] > 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: b"KVC" + d[3:], "not an exported session"),
        (lambda d: d[:5], "not an exported session"),
        (lambda d: d[:8] + struct.pack("<I", 2) + d[12:], "export version 2.0"),
        (lambda d: d[:13] + struct.pack("<I", 1 << 30) + d[17:], "1 MiB at most"),
        (lambda d: d[:40] + b"?" + d[41:], "checksum of its first part"),
        (lambda d: d[:-1], "ends 1 bytes early"),
        (lambda d: d + b"\0", "its checksum is not"),
        (lambda d: d[:-40] + bytes([d[-40] ^ 1]) + d[-39:], ""),
    ],
)
def test_damage_is_named(change, told, tmp_path) -> None:
    data = written(tmp_path / "a", make_state(n_tokens=50))
    with pytest.raises(CheckpointError) as caught:
        read(tmp_path / "b", change(data))
    assert told in str(caught.value) and caught.value.hint


def test_a_lie_about_sizes_costs_no_memory(tmp_path) -> None:
    data = written(tmp_path / "a", make_state())
    (n,) = struct.unpack_from("<I", data, 13)
    facts = json.loads(data[17 : 17 + n])
    facts["arrays"][0][2] = [1 << 30, 1 << 10]
    packed = json.dumps(facts).encode()
    digest = hashlib.sha256(packed).digest()
    lie = data[:13] + struct.pack("<I", len(packed)) + packed + digest + data[17 + n + 32 :]
    with pytest.raises(CheckpointError, match="cannot hold"):
        read(tmp_path / "b", lie)
    for broken in ({"title": 3}, {"n_tokens": -1}, {"arrays": [["a", "int8", [1]]]}, {"ctx": True}):
        packed = json.dumps(facts | broken).encode()
        digest = hashlib.sha256(packed).digest()
        lie = data[:13] + struct.pack("<I", len(packed)) + packed + digest
        with pytest.raises(CheckpointError, match="not what this version writes"):
            read(tmp_path / "b", lie)


def test_only_the_right_passphrase_opens_a_file(tmp_path) -> None:
    data = written(tmp_path / "a", make_state(), passphrase="right")
    assert export_file.is_sealed(io.BytesIO(data))
    with pytest.raises(CheckpointError, match="under a passphrase"):
        read(tmp_path / "b", data)
    with pytest.raises(CheckpointError, match="passphrase is wrong"):
        read(tmp_path / "b", data, "wrong")
    again = written(tmp_path / "a", make_state(), passphrase="right")
    assert data[13:] != again[13:]  # another salt


def test_a_sealed_file_cannot_be_changed_cut_or_reordered(tmp_path) -> None:
    state = make_state(n_tokens=9000, n_heads=2, head_dim=64, n_layers=1)
    data = written(tmp_path / "a", state, passphrase="p")
    start = 13 + 19
    chunk = 4 + sealed.CHUNK_BYTES + 16
    assert len(data) > start + 3 * chunk
    pieces = [data[at : at + chunk] for at in range(start, len(data), chunk)]
    for broken in (
        data[:start] + pieces[1] + pieces[0] + b"".join(pieces[2:]),
        data[: start + chunk],  # whole chunks, and the last one is missing
        data[:start] + b"".join(pieces[1:]),
        data[: start + 99] + bytes([data[start + 99] ^ 1]) + data[start + 100 :],
        data[:-1],
        data[:13] + bytes([data[13] ^ 1]) + data[14:],  # salt
    ):
        with pytest.raises(CheckpointError):
            read(tmp_path / "b", broken, "p")


@pytest.mark.parametrize("parameters", [b"\x19\x08\x01", b"\x00\x08\x01", b"\x10\x00\x01"])
def test_a_file_cannot_ask_for_more_memory_than_it_may(parameters, tmp_path) -> None:
    data = written(tmp_path / "a", make_state(), passphrase="p")
    with pytest.raises(CheckpointError, match="scrypt"):
        read(tmp_path / "b", data[: 13 + 16] + parameters + data[13 + 19 :], "p")


def test_without_the_package_a_passphrase_is_one_clear_error(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(CheckpointError, match="not installed") as caught:
        written(tmp_path / "a", make_state(), passphrase="p")
    assert "pip install cryptography" in caught.value.hint
    read(tmp_path / "b", written(tmp_path / "a", make_state()))  # and nothing else


def test_a_changed_number_is_found_by_the_checksum(tmp_path) -> None:
    state = make_state(n_tokens=400, n_heads=2, head_dim=64)  # bits at random: stored as they are
    data = written(tmp_path / "a", state)
    at = len(data) - 2000
    with pytest.raises(ChecksumError, match="not that of its content"):
        read(tmp_path / "b", data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :])
