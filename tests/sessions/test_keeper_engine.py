"""Real networks, both families: a conversation kept turn by turn goes on bit by bit."""

from pathlib import Path

import numpy as np
import pytest

from engine.engine import Engine
from engine.session import Session
from sessions import checkpoint, journal
from sessions.keeper import Keeper
from sessions.record import SessionMeta
from sessions.store import SessionStore
from tests.fakes.tiny_gguf import write_tiny_gguf

V4 = Path(__file__).parents[1] / "fixtures" / "v4_tiny" / "tiny-v4-q.gguf"
CREATED_AT = 1_779_364_800


@pytest.fixture(scope="module", params=["llama", "deepseek_v4"])
def engine(request, tmp_path_factory):
    path = V4
    if request.param == "llama":
        path = write_tiny_gguf(tmp_path_factory.mktemp("m") / "tiny.gguf", ctx_train=1024)
    with Engine.open(path, "cpu", 1024) as engine:
        yield engine


def render(engine: Engine, tokens) -> bytes:
    return engine.tokenizer.render(tokens)


def keeper_of(store: SessionStore, restored=None) -> Keeper:
    meta = SessionMeta("/home/me", "tiny")
    return Keeper(store, title="Hello", created_at=CREATED_AT, meta=meta, restored=restored)


def append(keeper: Keeper, engine: Engine, session: Session, kind: str = "turn") -> int:
    delta = session.delta()
    n_bytes = keeper.append(
        delta,
        render(engine, delta.tokens),
        len(render(engine, session.tokens[: delta.kept])),
        kind=kind,
        tokens_sha256=journal.tokens_sha256(session.tokens),
    )
    session.mark()
    return n_bytes


def fold(keeper: Keeper, engine: Engine, session: Session) -> None:
    keeper.fold(session.state(), render(engine, session.tokens))
    session.mark()


def assert_goes_on_alike(
    engine: Engine, session: Session, store: SessionStore, id: str, n_decoded: int = 0
) -> None:
    """The restored state is the live one, bit by bit, and so are the logits of what follows."""
    restored = store.restore(id)
    assert restored.text == render(engine, session.tokens)
    assert restored.notes == ()
    again = engine.restore(restored.state, consume=True)
    expected = session.state()
    found = again.state()
    assert found.tokens == expected.tokens
    for name, array in expected.arrays.items():
        assert array.tobytes() == found.arrays[name].tobytes(), name
    assert np.array_equal(found.logits, expected.logits)
    other = engine.restore(expected) if n_decoded else session
    for _ in range(n_decoded):  # greedy
        assert np.array_equal(again.logits, other.logits)
        token = int(other.logits.argmax()) % engine.tokenizer.n_vocab
        again.extend([token])
        other.extend([token])


# Across the window of V4 (128), both kinds of compressed rows, and single tokens.
@pytest.mark.parametrize(
    "turns",
    [
        (3, 1, 1, 2),
        (100, 28, 1, 130),
        pytest.param((120, 7, 300), marks=pytest.mark.slow),
        pytest.param((5, 123, 4, 4), marks=pytest.mark.slow),
    ],
)
def test_save_append_restore_decode(engine, tmp_path, turns) -> None:
    rng, store, session = np.random.default_rng(turns), SessionStore(tmp_path), engine.new_session()
    keeper = keeper_of(store)
    for i, n in enumerate(turns):
        session.extend(rng.integers(0, engine.tokenizer.n_vocab, n).tolist())
        if i:
            append(keeper, engine, session)
        else:
            fold(keeper, engine, session)
        # Nine tokens go through two compressed rows of V4.
        assert_goes_on_alike(engine, session, store, keeper.id, 9 if i == len(turns) - 1 else 0)
    fold(keeper, engine, session)
    assert_goes_on_alike(engine, session, store, keeper.id, 1)
    keeper.close()


def test_turns_of_several_processes_are_one_conversation(engine, tmp_path) -> None:
    rng, store, session = np.random.default_rng(1), SessionStore(tmp_path), engine.new_session()
    keeper = keeper_of(store)
    session.extend(rng.integers(0, 250, 40).tolist())
    fold(keeper, engine, session)
    for n in (30, 60, 2):
        keeper.close()
        restored = store.restore(keeper.id)
        keeper = keeper_of(store, restored)
        session = engine.restore(restored.state, consume=True)
        session.mark()
        session.extend(rng.integers(0, 250, n).tolist())
        append(keeper, engine, session, "result")
        assert_goes_on_alike(engine, session, store, keeper.id, 1)
    assert [b.tokens for b in keeper.boundaries] == [40, 70, 130, 132]
    keeper.close()


def test_notes_of_calls_cost_no_rows_and_the_state_is_the_same(engine, tmp_path) -> None:
    rng, store, session = np.random.default_rng(5), SessionStore(tmp_path), engine.new_session()
    keeper = keeper_of(store)
    session.extend(rng.integers(0, 250, 131).tolist())
    fold(keeper, engine, session)
    n_logits = 4 * len(session.logits)
    for n in (9, 2):
        session.extend(rng.integers(0, 250, n).tolist())
        append(keeper, engine, session, "call")
        for _ in range(2):
            assert append(keeper, engine, session, "call") < n_logits + 4096  # a head
            assert_goes_on_alike(engine, session, store, keeper.id)
    session.sync([*session.tokens, 7, 8])
    session.rewind(142)  # back to what is on the disk; the logits are computed again
    append(keeper, engine, session, "call")
    assert_goes_on_alike(engine, session, store, keeper.id, 9)
    keeper.close()


def test_going_back_is_kept(engine, tmp_path) -> None:
    rng, store, session = np.random.default_rng(2), SessionStore(tmp_path), engine.new_session()
    keeper = keeper_of(store)
    session.extend(rng.integers(0, 250, 133).tolist())
    fold(keeper, engine, session)
    session.extend(rng.integers(0, 250, 12).tolist())
    append(keeper, engine, session)
    session.sync([*session.tokens[:141], 7, 8, 9])  # back by 4 tokens
    append(keeper, engine, session)
    assert_goes_on_alike(engine, session, store, keeper.id)
    session.sync([*session.tokens[:20], *range(100, 150)])  # V4 reads it again from the beginning
    append(keeper, engine, session)
    assert_goes_on_alike(engine, session, store, keeper.id)
    keeper.close()


def test_every_boundary_of_a_journal_is_a_state_to_go_back_to(engine, tmp_path) -> None:
    """Records up to the j-th give the state of that moment, without computing anything."""
    rng, store, session = np.random.default_rng(3), SessionStore(tmp_path), engine.new_session()
    keeper = keeper_of(store)
    session.extend(rng.integers(0, 250, 60).tolist())
    fold(keeper, engine, session)
    moments = []
    for n in (30, 70, 9):
        session.extend(rng.integers(0, 250, n).tolist())
        append(keeper, engine, session)
        moments.append((session.state(), journal.path_for(keeper.path).stat().st_size))
    keeper.close()
    for state, n_bytes in reversed(moments):
        os_path = journal.path_for(keeper.path)
        with os_path.open("r+b") as file:
            file.truncate(n_bytes)
        assert_goes_on_alike(engine, engine.restore(state), store, keeper.id)


def test_a_record_of_v4_grows_with_the_new_tokens_only(tmp_path) -> None:
    with Engine.open(V4, "cpu", 1024) as engine:
        rng, store, session = np.random.default_rng(4), SessionStore(tmp_path), engine.new_session()
        keeper = keeper_of(store)
        session.extend(rng.integers(0, 250, 130).tolist())
        fold(keeper, engine, session)
        sizes = []
        for _ in range(3):
            session.extend(rng.integers(0, 250, 128).tolist())
            sizes.append(append(keeper, engine, session))
        assert max(sizes) - min(sizes) < 600  # the rendered text, the digits of the counts
        with checkpoint.opened(keeper.path) as opened:
            rows = 2 * 32 * (256 + 128) + 2 * 256 * 2  # compressed rows of 128 new tokens, f16
            assert max(sizes) < opened.header.payload_bytes + 2 * rows
        keeper.close()
