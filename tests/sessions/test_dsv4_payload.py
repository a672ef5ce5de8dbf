"""Sessions of DeepSeek V4: the C program's file, sizes that it publishes, damage, a whole round."""

import dataclasses
import io
import json
import lzma
import struct
from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from sessions import checkpoint, kvc
from sessions.dsv4_payload import FLASH, PRO, DeepseekV4Payload, _Shape
from sessions.errors import CheckpointError, ChecksumError
from sessions.kvc import Profile
from sessions.record import SessionMeta
from sessions.store import SessionStore

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4_tiny"
C_FILE = FIXTURES / "ds4sim_short_d665f7cb023c22a6a96ffc19ffec28a7fd575b5c.kv.xz"
MODEL = FIXTURES / "tiny-v4-q.gguf"
CODEC = DeepseekV4Payload()


@pytest.fixture(scope="module")
def c_file() -> bytes:
    return lzma.open(C_FILE).read()


@pytest.fixture(scope="module")
def engine():
    with Engine.open(MODEL, "cpu", 1024) as engine:
        yield engine


def read(data: bytes):
    file = io.BytesIO(data)
    envelope = kvc.read_envelope(file)
    text = kvc.read_text(file, envelope)
    return CODEC.read(file, envelope, text), envelope, text


def test_the_file_of_the_c_program_is_written_again_byte_by_byte(c_file):
    state, envelope, text = read(c_file)
    out = io.BytesIO()
    header = dataclasses.replace(envelope.header, payload_bytes=CODEC.n_bytes(state))
    kvc.write(out, header, text, lambda to: CODEC.write(state, text, to, Profile.DS4_MAY21))
    assert out.getvalue() == c_file


def test_the_file_of_the_c_program_goes_on_with_its_tokens(c_file, engine):
    state, _, text = read(c_file)
    tokens, equal = list(state.tokens), []
    assert text == engine.tokenizer.render(tokens)
    session = engine.restore(dataclasses.replace(state, fingerprint=engine.info.fingerprint))
    assert list(session.tokens) == tokens
    cases = json.loads((FIXTURES / "tokens.json").read_text(encoding="utf-8"))
    assert tokens == cases["short"]["tokens"][: cases["short"]["prefill"]]
    oracle = np.load(FIXTURES / "ds4sim.npz")["short.decode"]
    assert np.array_equal(session.logits, oracle[0])
    for i, token in enumerate(cases["short"]["tokens"][len(tokens) :], 1):
        session.extend([token])
        equal.append(session.logits.argmax() == oracle[i].argmax())
    assert np.mean(equal) >= 0.75  # activations of single positions are rounded to 8 bits


def test_an_earlier_revision_is_not_offered_as_a_session(c_file, tmp_path):
    path = tmp_path / "file.kv"
    path.write_bytes(c_file)
    with pytest.raises(checkpoint.ForeignFile), checkpoint.opened(path):
        pass


@pytest.mark.parametrize(
    ("model_id", "n_layers", "n", "n_bytes"),
    [
        (FLASH, 43, 1, 12_811_664),
        (FLASH, 43, 2048, 52_184_460),
        (FLASH, 43, 100_000, 1_400_385_548),
        (PRO, 61, 1, 19_353_120),
        (PRO, 61, 2048, 75_564_572),
        (PRO, 61, 1_000_000, 19_735_187_228),
    ],
)
def test_sizes_are_the_published_ones(model_id, n_layers, n, n_bytes):
    assert _Shape(model_id, 1 << 20, n, n_layers, 512, 128, 129280).n_bytes == n_bytes


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (_Shape(FLASH, 4096, 5, 43, 512, 128, 129280), "00100000 00100000 80000000 80000000"),
        (_Shape(PRO, 100000, 2048, 61, 512, 128, 129280), "a0860100 00200000 80000000 80000000"),
    ],
)
def test_the_header_is_that_of_the_c_program_on_a_cpu(shape, words):
    packed = shape.pack(2)
    assert packed[:8] == b"DSV4" + struct.pack("<I", 2)
    assert packed[8:24] == bytes.fromhex(words)
    counts = (shape.ctx // 4 + 2, shape.n_tokens, shape.n_layers, 512, 128, 129280)
    assert packed[24:] == struct.pack("<7I", *counts, min(shape.n_tokens, 128))


def test_a_conversation_is_saved_listed_and_goes_on_bit_by_bit(engine, tmp_path):
    store = SessionStore(tmp_path)
    session = engine.new_session()
    session.sync([int(t) for t in np.random.default_rng(3).integers(0, 500, 300)])
    session.extend([5])
    state = session.state()
    saved = store.save(
        state, b"text", title="Hello", created_at=1_779_364_800, meta=SessionMeta("/x", "tiny")
    )
    (record,) = store.list()
    assert record.fingerprint == engine.info.fingerprint and record.tokens == 301
    with checkpoint.opened(saved.path) as opened:
        assert (opened.header.model_id, opened.header.quant_bits) == (0, 2)
    loaded, _ = store.load(saved.id)
    assert loaded.arrays.keys() == state.arrays.keys()
    again = engine.restore(loaded)
    for token in (7, 8, 9):
        session.extend([token])
        again.extend([token])
        assert np.array_equal(session.logits, again.logits)
    # Without the side file nobody knows whose weights they were.
    saved.path.with_name(saved.path.name + ".meta").unlink()
    assert store.list()[0].fingerprint == ""


def test_one_changed_bit_of_a_saved_state_is_found(engine, tmp_path):
    store, session = SessionStore(tmp_path), engine.new_session()
    session.sync(list(range(1, 200)))
    saved = store.save(
        session.state(), b"text", title="Hello", created_at=1_779_364_800, meta=SessionMeta()
    )
    data = bytearray(saved.path.read_bytes())
    data[-1000] ^= 1
    saved.path.write_bytes(data)
    with pytest.raises(ChecksumError, match="checksum of the state is"):
        store.load(saved.id)


def test_the_state_of_a_system_prompt_is_kept_for_its_weights(engine, tmp_path):
    store, session = SessionStore(tmp_path), engine.new_session()
    session.sync(list(range(1, 30)))
    store.save_system(session.state(), b"prompt")
    tokens = list(range(1, 30))
    state = store.load_system(engine.info.fingerprint, b"prompt", tokens)
    assert np.array_equal(engine.restore(state).logits, session.logits)
    assert store.load_system("0" * 40, b"prompt", tokens) is None


PAYLOAD = 52 + 157  # where the payload of the C program's file begins


@pytest.mark.parametrize(
    ("at", "value", "told"),
    [
        (PAYLOAD, b"DSV5", "begins with b'DSV5'"),
        (PAYLOAD + 4, struct.pack("<I", 2), "version 2, expected b'DSV4' version 1"),
        (PAYLOAD + 8, struct.pack("<I", 2048), "the header says 37 in 1024"),
        (PAYLOAD + 20, struct.pack("<I", 64), "a window of 64"),
        (PAYLOAD + 28, struct.pack("<I", 36), "a state of 36 tokens"),
        (PAYLOAD + 32, struct.pack("<I", 7), "its counts give"),
        (PAYLOAD + 32, struct.pack("<I", 1 << 31), "layers"),
        (PAYLOAD + 44, struct.pack("<I", 513), "its counts give"),
        (PAYLOAD + 52, struct.pack("<I", 512), "token id 512, expected less than 512"),
        (PAYLOAD + 52 + 4 * 37, struct.pack("<f", np.nan), "logits of the state are not finite"),
        (PAYLOAD + 52 + 4 * (37 + 512) + 8, struct.pack("<I", 8), "counts of compressed rows"),
        (PAYLOAD + 52 + 4 * (37 + 512 + 12), struct.pack("<f", np.inf), "layers.0.window"),
    ],
)
def test_a_damaged_state_is_refused_and_the_damage_named(at, value, told, c_file):
    data = bytearray(c_file)
    data[at : at + len(value)] = value
    with pytest.raises(CheckpointError, match=r".") as caught:
        read(bytes(data))
    assert told in str(caught.value) and caught.value.hint


def test_a_state_that_is_none_of_this_family_is_not_written(c_file):
    state, _, _ = read(c_file)
    for name, array in (("layers.0.window", None), ("layers.9.k", np.zeros((1, 1)))):
        arrays = dict(state.arrays)
        if array is None:
            del arrays[name]
        else:
            arrays[name] = array
        with pytest.raises(CheckpointError, match="can't be saved"):
            CODEC.n_bytes(dataclasses.replace(state, arrays=arrays))


def test_one_changed_bit_of_a_saved_system_prompt_is_found(engine, tmp_path, caplog):
    store, session = SessionStore(tmp_path), engine.new_session()
    tokens = list(range(1, 200))
    session.sync(tokens)
    saved = store.save_system(session.state(), b"prompt")
    assert store.load_system(engine.info.fingerprint, b"prompt", tokens) is not None
    data = bytearray(saved.path.read_bytes())
    data[-1000] ^= 1  # a value that is as good as any other
    saved.path.write_bytes(data)
    assert store.load_system(engine.info.fingerprint, b"prompt", tokens) is None
    assert "checksum of the state" in caplog.text
