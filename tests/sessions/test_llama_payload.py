"""The payload of the llama family: layout, round trips, refusals."""

import hashlib
import io
import struct
from dataclasses import replace

import numpy as np
import pytest

from engine.state import SessionState
from sessions import checkpoint
from sessions.errors import CheckpointError, ChecksumError
from sessions.kvc import Reason
from tests.sessions.states import CREATED_AT, TEXT, assert_same, make_state

PAYLOAD = 52 + len(TEXT)  # offset in the file


def written(state: SessionState) -> bytes:
    out = io.BytesIO()
    checkpoint.write(
        out,
        state,
        TEXT,
        reason=Reason.AGENT_SESSION,
        created_at=CREATED_AT,
        last_used=CREATED_AT,
        title=b"t",
    )
    return out.getvalue()


def read(data: bytes) -> SessionState:
    file = io.BytesIO(data)
    envelope = checkpoint.kvc.read_envelope(file)
    codec = checkpoint.codec_for_model_id(envelope.header.model_id)
    assert codec is not None
    return codec.read(file, envelope, checkpoint.kvc.read_text(file, envelope))


def patched(data: bytes, offset: int, value: bytes) -> bytes:
    """Change bytes and make the digest right again: what a careful forger would do."""
    data = data[:offset] + value + data[offset + len(value) :]
    end = PAYLOAD + int.from_bytes(data[40:48], "little") - 32
    digest = hashlib.sha256(len(TEXT).to_bytes(8, "little") + TEXT + data[PAYLOAD:end]).digest()
    return data[:end] + digest + data[end + 32 :]


def test_layout_is_the_documented_one() -> None:
    state = make_state(n_tokens=3, n_layers=2, n_heads=1, head_dim=2, n_vocab=5, ctx=64)
    expected = (
        b"DS4LLAMA"
        + struct.pack("<8I", 1, 2, 1, 2, 5, 3, 64, 64)
        + b"5c" * 32
        + struct.pack("<3I", *state.tokens)
        + state.logits.tobytes()
        + b"".join(state.arrays[f"layers.{i}.{name}"].tobytes() for i in (0, 1) for name in "kv")
    )
    digest = hashlib.sha256(len(TEXT).to_bytes(8, "little") + TEXT + expected).digest()
    data = written(state)
    assert data[PAYLOAD:-5] == expected + digest
    assert data[-5:] == b"\1\0\0\0t"
    assert data[7] == 0x40
    assert data[4] == 4
    assert data[20:24] == b"\2\0\0\0"


@pytest.mark.parametrize(
    "shape",
    [
        {"n_tokens": 1, "n_layers": 1, "n_heads": 1, "head_dim": 1, "n_vocab": 1},
        {"n_tokens": 17, "n_layers": 3, "n_heads": 2, "head_dim": 8, "n_vocab": 1000},
        {"n_tokens": 3000, "n_layers": 2, "n_heads": 3, "head_dim": 64, "n_vocab": 70_000},
        {"n_tokens": 5, "n_layers": 0},
        {"n_tokens": 4096, "ctx": 4096, "fingerprint": "f"},
    ],
)
def test_state_comes_back_bit_by_bit(shape: dict[str, int]) -> None:
    state = make_state(**shape)
    assert_same(read(written(state)), state)


def test_special_values_keep_their_bits() -> None:
    state = make_state()
    bits = np.array([0x7E01, 0xFE00, 0x8000, 0x0001, 0x7C00, 0xFC00], np.uint16)  # NaN, -0, inf
    state.arrays["layers.1.v"] = bits.view(np.float16).reshape(3, 1, 2)
    logits = np.array([np.nan, -np.inf, -0.0, 1e-45, 3.4e38], np.float32)
    state = replace(state, logits=logits)
    assert_same(read(written(state)), state)


def test_strided_and_read_only_arrays_are_written() -> None:
    state = make_state(n_tokens=4)
    longer = np.zeros((8, 1, 4), np.float16)
    longer[::2, :, ::2] = state.arrays["layers.0.k"]
    strided = longer[::2, :, ::2]
    strided.flags.writeable = False
    arrays = {**state.arrays, "layers.0.k": strided}
    assert_same(read(written(replace(state, arrays=arrays))), state)


def test_loaded_arrays_can_be_changed() -> None:
    state = read(written(make_state()))
    state.arrays["layers.0.k"][:] = 0
    state.logits[:] = 0


def without(state: SessionState, name: str) -> SessionState:
    return replace(state, arrays={k: v for k, v in state.arrays.items() if k != name})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (replace(make_state(), tokens=()), "0 tokens"),
        (replace(make_state(), tokens=(0, 1)), "2 tokens and rows"),
        (replace(make_state(), tokens=(0, 1, 5)), "token id 5"),
        (replace(make_state(), tokens=(0, 1, -1)), "token id -1"),
        (replace(make_state(), ctx=2), "3 tokens, expected 2"),
        (replace(make_state(), fingerprint=""), "fingerprint ''"),
        (replace(make_state(), fingerprint="0" * 65), "fingerprint"),
        (replace(make_state(), fingerprint="ä"), "fingerprint"),
        (replace(make_state(), logits=np.zeros(5)), "logits float64"),
        (replace(make_state(), logits=np.zeros((1, 5), np.float32)), "logits float32"),
        (without(make_state(), "layers.0.k"), "arrays"),
        (without(without(make_state(), "layers.0.k"), "layers.0.v"), "arrays"),
        (
            replace(make_state(), arrays={"layers.0.k": np.zeros((3, 1, 2), np.float32)}),
            "arrays",
        ),
        (
            replace(
                make_state(),
                arrays={f"layers.0.{n}": np.zeros((3, 1, 2), np.float32) for n in "kv"},
            ),
            "float32",
        ),
        (replace(make_state(), family="other"), "'other'"),
    ],
)
def test_state_of_another_form_is_not_written(state: SessionState, message: str) -> None:
    with pytest.raises(CheckpointError, match=message) as caught:
        written(state)
    assert caught.value.hint


@pytest.mark.parametrize(
    ("offset", "value", "message"),
    [
        (0, b"DS4OTHER", "begins with"),
        (8, struct.pack("<I", 2), "state version 2"),
        (12, struct.pack("<I", 2**32 - 1), "4294967295 layers"),
        (12, struct.pack("<I", 3), "its counts give"),
        (16, struct.pack("<I", 2**32 - 1), "its counts give"),
        (20, struct.pack("<I", 0), "its counts give"),
        (24, struct.pack("<I", 2**32 - 1), "its counts give"),
        (28, struct.pack("<I", 2**32 - 1), "its counts give"),
        (32, struct.pack("<I", 2), "in a context of 2"),
        (32, struct.pack("<I", 65), "in a context of 65"),
        (36, struct.pack("<I", 0), "fingerprint"),
        (36, struct.pack("<I", 65), "fingerprint"),
        (36, struct.pack("<I", 63), "fingerprint"),
        (40, b"\xff", "fingerprint"),
        (104, struct.pack("<I", 5), "token id 5"),
    ],
)
def test_lying_payload_with_a_right_digest_is_refused(
    offset: int, value: bytes, message: str
) -> None:
    data = written(make_state(ctx=64))
    assert_same(read(patched(data, PAYLOAD, b"DS4LLAMA")), make_state(ctx=64))
    with pytest.raises(CheckpointError, match=message):
        read(patched(data, PAYLOAD + offset, value))


def test_no_layers_with_empty_rows_cost_no_memory() -> None:
    # With no heads any number of layers has the same size; the limit must catch it.
    data = written(make_state(n_layers=0))
    with pytest.raises(CheckpointError, match="layers"):
        read(patched(data, PAYLOAD + 12, struct.pack("<I", 2**31)))


def test_payload_shorter_than_its_header_is_refused() -> None:
    data = written(make_state())
    with pytest.raises(CheckpointError, match="expected 136 at least"):
        read(data[:40] + (135).to_bytes(8, "little") + data[48:])


def test_changed_text_is_noticed() -> None:
    data = written(make_state())
    with pytest.raises(ChecksumError, match="checksum"):
        read(data[:60] + b"?" + data[61:])
