"""Scores of the C program, and what may be removed."""

import pytest

from sessions import budget, checkpoint, journal, kvc, upkeep
from sessions.errors import CheckpointError
from sessions.fork import fork
from sessions.identity import text_id
from sessions.kvc import Reason
from sessions.prefix_lookup import PrefixIndex, load
from sessions.store import SessionStore
from tests.sessions.deltas import append, fold, keeper_of, text_of, whole
from tests.sessions.states import FINGERPRINT, TEXT, assert_same, make_state, save

NOW = 1_779_364_800


def header(**fields: int) -> kvc.Header:
    defaults = dict(
        quant_bits=2,
        reason=Reason.UNKNOWN,
        flags=0,
        model_id=0,
        tokens=2048,
        hits=0,
        ctx=4096,
        created_at=1,
        last_used=NOW,
        payload_bytes=1,
    )
    return kvc.Header(**{**defaults, **fields})


# Published vectors of the C program: reason, hits, age in seconds, superseded, score.
@pytest.mark.parametrize(
    ("reason", "hits", "age", "superseded", "expected"),
    [
        (Reason.COLD, 0, 0, False, 7.84907997514969e-05),
        (Reason.CONTINUED, 0, 0, False, 3.924539987574845e-05),
        (Reason.CONTINUED, 0, 0, True, 1.9622699937874223e-06),
        (Reason.CONTINUED, 1, 0, True, 2.1584969931661648e-05),
        (Reason.CONTINUED, 4, 21600, True, 4.120766986953587e-05),
        (Reason.CONTINUED, 4, 43200, False, 7.84907997514969e-05),
        (Reason.EVICT, 4, 21600, False, 0.0002354723992544907),
        (Reason.SHUTDOWN, 1, 0, False, 0.0001569815995029938),
        (Reason.AGENT_SESSION, 0, 0, False, 3.924539987574845e-05),
        (Reason.CONTINUED, 200, 302400, True, 2.201804905138426e-06),
    ],
)
def test_scores_are_the_published_ones(reason, hits, age, superseded, expected) -> None:
    found = budget.score(
        header(reason=reason, hits=hits, last_used=NOW - age), 52184460, NOW, superseded
    )
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("tokens", "hits", "size", "used", "created", "expected"),
    [
        (32768, 0, 475000000, NOW - 864000, 1, 6.8985263157894731e-05),
        (1024, 10, 4096, NOW - 302400, 1, 0.25),
        (1024, 200, 4096, NOW - 302400, 1, 0.2530517578125),
        (4096, 5, 1000000, 0, NOW - 21600, 0.014336),
        (4096, 5, 1000000, 0, 0, 0.004096),
        (4096, 5, 1000000, NOW + 1000, 1, 0.024576),
        (4096, 5, 0, NOW, 1, 0),
    ],
)
def test_scores_without_a_bonus(tokens, hits, size, used, created, expected) -> None:
    fields = header(tokens=tokens, hits=hits, last_used=used, created_at=created)
    assert budget.score(fields, size, NOW) == pytest.approx(expected, rel=1e-12)


def test_a_folder_that_fits_loses_nothing(store: SessionStore) -> None:
    saved = save(store)
    plan = budget.plan(store, saved.n_bytes)
    assert plan.victims == () and plan.is_enough


def test_least_worth_goes_first_and_the_text_stays(store: SessionStore) -> None:
    small = save(store, title="small", n_tokens=3)
    large = save(store, title="large", n_tokens=500)  # more tokens for each byte
    plan = budget.plan(store, large.n_bytes)
    assert [entry.id for entry in plan.victims] == [small.id] and plan.is_enough
    problems: list[str] = []
    freed = budget.carry_out(store, plan.victims, lambda _, why: problems.append(why))
    assert problems == [] and freed > 0
    assert store.find(small.id).is_stripped and not store.find(large.id).is_stripped
    with checkpoint.opened(small.path) as opened:
        assert opened.text() == TEXT


def test_pinned_and_open_sessions_stay(store: SessionStore) -> None:
    pinned, opened, free = (save(store, title=t) for t in ("pin", "open", "free"))
    upkeep.set_pinned(store, pinned.id, True)
    with store.open_lock(opened.id):
        plan = budget.plan(store, 0)
        assert [entry.id for entry in plan.victims] == [free.id]
        assert not plan.is_enough
        reasons = sorted(entry.kept_because.split(" in ")[0] for entry in plan.kept)
        assert reasons == ["open", "pinned"]


def test_the_file_of_forks_counts_once_and_goes_with_the_last(store: SessionStore) -> None:
    saved = save(store, n_tokens=300)
    fork(store, saved.id)
    plan = budget.plan(store, saved.n_bytes)
    assert plan.total_bytes == saved.n_bytes and plan.victims == ()
    plan = budget.plan(store, 0)
    assert len(plan.victims) == 2 and plan.freed_bytes == saved.n_bytes
    upkeep.set_pinned(store, saved.id, True)
    plan = budget.plan(store, 0)
    assert len(plan.victims) == 1 and plan.freed_bytes == 0 and not plan.is_enough


def test_journals_count_and_go_with_their_states(store: SessionStore) -> None:
    keeper = keeper_of(store)
    fold(keeper, whole(5))
    for n_tokens in (200, 400):
        append(keeper, whole(n_tokens))
    keeper.close()
    checkpoint_bytes = keeper.path.stat().st_size
    journal_bytes = journal.path_for(keeper.path).stat().st_size
    assert journal_bytes > 2 * checkpoint_bytes
    plan = budget.plan(store, checkpoint_bytes + journal_bytes)
    assert plan.total_bytes == checkpoint_bytes + journal_bytes and plan.victims == ()
    plan = budget.plan(store, checkpoint_bytes + journal_bytes - 1)
    assert [entry.n_bytes for entry in plan.victims] == [plan.total_bytes]
    assert plan.is_enough and plan.freed_bytes == plan.total_bytes
    freed = budget.carry_out(store, plan.victims, lambda _, why: pytest.fail(why))
    left = sum(p.stat().st_size for p in store.folder.glob("*.kv*") if p.suffix != ".meta")
    assert freed == checkpoint_bytes + journal_bytes - left
    assert left < 4 * len(text_of(whole(400).tokens))
    assert store.list()[0].tokens == 400  # what the journal said is kept as text


def test_opened_after_the_plan_is_left_alone_and_told(store: SessionStore) -> None:
    saved = save(store)
    plan = budget.plan(store, 0)
    problems: list[str] = []
    with store.open_lock(saved.id):
        assert budget.carry_out(store, plan.victims, lambda _, why: problems.append(why)) == 0
    upkeep.set_pinned(store, saved.id, True)
    assert budget.carry_out(store, plan.victims, lambda _, why: problems.append(why)) == 0
    assert "is open in process" in problems[0] and "pinned" in problems[1]
    store.load(saved.id)


def server_file(store: SessionStore, text: bytes, reason: Reason, seed: int = 0, **shape: int):
    """Write a checkpoint as a server does: no title, named after its text."""
    store.folder.mkdir(parents=True, exist_ok=True)
    path = store.folder / f"{text_id(text)}.kv"
    with path.open("w+b") as file:
        state = make_state(seed=seed, **shape)
        checkpoint.write(file, state, text, reason=reason, created_at=1, last_used=NOW)
    return path


def test_files_of_a_server_go_whole_and_covered_ones_first(store: SessionStore) -> None:
    short = server_file(store, b"abc", Reason.CONTINUED, n_tokens=400)
    long = server_file(store, b"abcdef", Reason.CONTINUED, n_tokens=300)
    plan = budget.plan(store, long.stat().st_size, now=NOW)
    assert [entry.path for entry in plan.victims] == [short]
    assert budget.carry_out(store, plan.victims, lambda *_: None) == plan.freed_bytes
    assert not short.exists() and long.exists()


# --- the longest prefix -----------------------------------------------------------------------


def longest(index: PrefixIndex, prompt: bytes, **options):
    options = {"fingerprint": FINGERPRINT, "model_id": 0x40, "ctx": 4096, "min_tokens": 1} | options
    return index.longest(prompt, **options)


def test_the_longest_text_that_a_prompt_begins_with_is_found(store: SessionStore) -> None:
    paths = [server_file(store, text, Reason.COLD) for text in (b"ab", b"abc", b"abd", b"")]
    index = PrefixIndex(store.folder)
    found = longest(index, b"abcz")
    assert [match.path for match in found] == [paths[1], paths[0], paths[3]]
    assert [match.text_bytes for match in found] == [3, 2, 0]
    paths[1].unlink()
    assert longest(index, b"abcz")[0].path == paths[0]
    session = save(store)  # its name is not the hash of its text
    assert longest(index, TEXT + b"more")[0].id == session.id
    assert longest(index, TEXT + b"more")[0].is_session
    state, text = load(longest(index, TEXT + b"more")[0])
    assert text == TEXT
    assert_same(state, make_state())
    upkeep.strip(store, session.id)
    assert longest(index, TEXT + b"more")[0].path == paths[3]


def test_a_damaged_or_replaced_match_is_an_error(store: SessionStore) -> None:
    saved = save(store, n_tokens=40)
    (match,) = longest(PrefixIndex(store.folder), TEXT)
    save(store, n_tokens=41)
    with pytest.raises(CheckpointError, match="replaced meanwhile"):
        load(match)
    (match,) = longest(PrefixIndex(store.folder), TEXT)
    data = bytearray(saved.path.read_bytes())
    data[-100] ^= 1
    saved.path.write_bytes(data)
    with pytest.raises(CheckpointError, match="checksum"):
        load(match)
    saved.path.unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        load(match)


@pytest.mark.parametrize(
    "options",
    [
        {"fingerprint": "00" * 32},
        {"model_id": 0},
        {"ctx": 4095},
        {"min_tokens": 4},
        {"quant_bits": 2},
    ],
)
def test_what_does_not_fit_is_not_offered(store: SessionStore, options) -> None:
    save(store)
    index = PrefixIndex(store.folder)
    assert len(longest(index, TEXT, quant_bits=4)) == 1
    assert longest(index, TEXT, **options) == []


def test_a_lookup_reads_no_file_twice(store: SessionStore, monkeypatch) -> None:
    for n in range(5):
        save(store, title=str(n))
    index = PrefixIndex(store.folder)
    assert len(longest(index, TEXT)) == 5
    monkeypatch.setattr("sessions.checkpoint.opened", None)
    assert len(longest(index, TEXT)) == 5
    assert len(longest(index, TEXT[:-1])) == 0
