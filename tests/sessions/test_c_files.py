"""Two files of the C program: read, written again byte by byte, and gone on with to its tokens.

Products are exact here as they were there, so what follows is the same to a thousandth; only after
a choice of rows was turned over by the last bit, in the long one, does a logit differ by more.
"""

import dataclasses
import hashlib
import io
import json
import lzma
import stat
import struct
from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from engine.families.registry import plan_for
from engine.gguf_file import GgufFile
from mlx_kernels.cpu.operations import CpuOps
from sessions import checkpoint, journal
from sessions.identity import text_id
from sessions.keeper import Keeper
from sessions.kvc import Profile, Reason
from sessions.record import SessionMeta
from sessions.store import SessionStore

FIXTURES = Path(__file__).parents[1] / "fixtures" / "v4_tiny"
MODEL = FIXTURES / "tiny-v4-q.gguf"
CASES = json.loads((FIXTURES / "tokens.json").read_text(encoding="utf-8"))


@dataclasses.dataclass
class CFile:
    case: str
    name: str
    data: bytes
    path: Path


@pytest.fixture(params=["short", "long"])
def c_file(request, tmp_path) -> CFile:
    (packed,) = FIXTURES.glob(f"ds4sim_{request.param}_*.kv.xz")
    path = tmp_path / "c.kv"
    path.write_bytes(lzma.open(packed).read())
    return CFile(request.param, packed.name[-46:-6], path.read_bytes(), path)


@pytest.fixture(scope="module")
def model():
    with GgufFile.open(MODEL) as gguf:
        yield plan_for(gguf).load(CpuOps(exact_products=True), None, None)


def opened(c_file: CFile):
    return checkpoint.opened(c_file.path, of_may21=True)


def test_read_and_written_again_byte_by_byte(c_file: CFile) -> None:
    with opened(c_file) as found:
        text, header = found.text(), found.header
        state = found.state(text)
        assert text_id(text) == c_file.name
        assert (header.profile, header.reason) == (Profile.DS4_MAY21, Reason.COLD)
    out = io.BytesIO()
    checkpoint.write(
        out,
        state,
        text,
        reason=Reason(header.reason),
        created_at=header.created_at,
        last_used=header.last_used,
        profile=Profile.DS4_MAY21,
    )
    assert out.getvalue() == c_file.data


def test_tokens_and_text_are_the_recorded_ones(c_file: CFile) -> None:
    case = CASES[c_file.case]
    with opened(c_file) as found:
        assert list(found.state(found.text()).tokens) == case["tokens"][: case["prefill"]]
        assert list(found.token_ids()) == case["tokens"][: case["prefill"]]
        with Engine.open(MODEL, "cpu", 1024) as engine:
            assert engine.tokenizer.render(found.token_ids()) == found.text()


class Continued:
    """A state that reads one token after the other."""

    def __init__(self, model, state) -> None:
        self.model, self.logits = model, state.logits
        self.cache = model.new_cache(1024)
        self.cache.load(state.arrays, len(state.tokens))

    def read(self, token: int) -> np.ndarray:
        ids = np.array([token], np.int32)
        hidden = self.model.layers(0, self.model.n_layers, self.model.embed(ids), self.cache, ids)
        self.logits = self.model.head(hidden)[0]
        return self.logits


def test_it_goes_on_with_the_recorded_logits(c_file: CFile, model) -> None:
    with opened(c_file) as found:
        state = found.state(found.text())
    recorded = np.load(FIXTURES / "ds4sim.npz")[f"{c_file.case}.decode"]
    assert np.array_equal(state.logits, recorded[0])
    going_on = Continued(model, state)
    rest = CASES[c_file.case]["tokens"][len(state.tokens) :]
    errors = []
    for token, expected in zip(rest, recorded[1:], strict=True):
        logits = going_on.read(token)
        assert logits.argmax() == expected.argmax()
        errors.append(np.abs(logits - expected).max())
    assert np.median(errors) < 1e-3  # logits have a deviation of 4


def test_its_greedy_tokens_are_the_recorded_ones(model, tmp_path) -> None:
    (packed,) = FIXTURES.glob("ds4sim_short_*.kv.xz")
    path = tmp_path / "c.kv"
    path.write_bytes(lzma.open(packed).read())
    with checkpoint.opened(path, of_may21=True) as found:
        going_on = Continued(model, found.state(found.text()))
    tokens = []
    while len(tokens) < 48:
        tokens.append(int(going_on.logits.argmax()))
        going_on.read(tokens[-1])
    assert tokens == CASES["greedy"]["greedy_ds4sim"]


def test_kept_as_a_session_it_goes_on_through_a_journal_alike(c_file: CFile, tmp_path) -> None:
    """The state of the C program, taken over, then one appended turn, read back: bit by bit."""
    with Engine.open(MODEL, "cpu", 1024) as engine:
        with opened(c_file) as found:
            text = found.text()
            state = dataclasses.replace(found.state(text), fingerprint=engine.info.fingerprint)
        store = SessionStore(tmp_path / "kv")
        keeper = Keeper(store, title="From C", created_at=5, meta=SessionMeta())
        keeper.fold(state, text)
        session = engine.restore(state)
        session.mark()
        session.extend(CASES["short"]["tokens"][:20])
        delta = session.delta(session.n_kept)
        keeper.append(
            delta,
            engine.tokenizer.render(delta.tokens),
            len(text),
            kind="turn",
            tokens_sha256=journal.tokens_sha256(session.tokens),
        )
        keeper.close()
        again = engine.restore(store.restore(keeper.id).state)
        assert again.tokens == session.tokens
        for token in (7, 8, 9):
            assert np.array_equal(again.logits, session.logits)
            again.extend([token])
            session.extend([token])


def untitled(c_file: CFile, folder: Path, **options) -> Path:
    """The same state as a file of the present revision without a title, named by its text."""
    folder.mkdir(exist_ok=True)
    with opened(c_file) as found:
        text = found.text()
        path = folder / f"{text_id(text)}.kv"
        with path.open("w+b") as out:
            state = found.state(text)
            checkpoint.write(out, state, text, created_at=7, last_used=8, **options)
    return path


def test_a_session_without_a_title_is_listed_by_its_first_prompt(c_file, tmp_path) -> None:
    path = untitled(c_file, tmp_path / "kv", reason=Reason.AGENT_SESSION)
    store = SessionStore(tmp_path / "kv")
    (record,) = store.list()
    assert (record.id, record.title) == (path.stem, "(no user prompt)")
    assert not record.is_titled and store.damaged == ()
    assert len(store.load(path.stem[:8])[0].tokens) == CASES[c_file.case]["prefill"]
    path.rename(path.with_name("0" * 40 + ".kv"))
    assert store.list() == []
    assert "its text doesn't belong" in store.damaged[0].reason


@pytest.mark.parametrize("reason", [Reason.COLD, Reason.EVICT, Reason.CONTINUED, Reason.SHUTDOWN])
def test_files_of_a_server_are_passed_over(c_file, tmp_path, reason) -> None:
    untitled(c_file, tmp_path / "kv", reason=reason, tool_map=[("call_1", b"<x>")])
    store = SessionStore(tmp_path / "kv")
    assert store.list() == [] and store.damaged == ()


def test_our_session_has_all_that_the_c_program_asks_for(c_file, tmp_path) -> None:
    """Its checklist, read from the bytes alone; the shapes here are those of the tiny model."""
    with opened(c_file) as found:
        state, text = found.state(found.text()), found.text()
    saved = SessionStore(tmp_path / "kv").save(
        state, text, title=" Größe  prüfen\n", created_at=1_779_800_000, meta=SessionMeta("/x", "m")
    )
    data = saved.path.read_bytes()
    magic, version, quant, reason, flags, model, tokens, hits, ctx, revision, zeros = struct.unpack(
        "<3sBBBBBIIIB3s", data[:24]
    )
    created, used, n_payload, n_text = struct.unpack("<QQQI", data[24:52])
    assert (magic, version, revision, zeros) == (b"KVC", 1, 2, bytes(3))
    assert (reason, flags, model, hits) == (6, 8, 0, 0) and quant in (2, 4)
    assert data[52 : 52 + n_text] == text
    payload = data[52 + n_text : 52 + n_text + n_payload]
    words = struct.unpack("<13I", payload[:52])
    assert words[:3] == (0x34565344, 2, ctx) and words[7] == tokens == len(state.tokens)
    assert words[5] == 128 and words[12] == min(tokens, 128) and words[6] == ctx // 4 + 2
    title = "Größe prüfen".encode()
    assert data[52 + n_text + n_payload :] == struct.pack("<I", len(title)) + title
    assert saved.path.stem == hashlib.sha1(title + struct.pack("<Q", created)).hexdigest()
    assert created == 1_779_800_000 and used >= created
    assert stat.S_IMODE(saved.path.stat().st_mode) == 0o600
    # Besides words 1 and 3, the payload is the one that the C program wrote, and so are its sizes.
    with opened(c_file) as found:
        start = found.envelope.payload_offset
    theirs = c_file.data[start : start + n_payload]
    assert payload[16:] == theirs[16:] and payload[8:12] == theirs[8:12]
