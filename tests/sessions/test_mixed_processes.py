"""Two agents on one folder that do everything at once: nothing is lost, nothing gets mixed up.

A conversation is told by its title, which is also the seed of its content, and a state of it by its
number of tokens. So whoever loads one knows whether every byte of it is right.
"""

import multiprocessing
import time
import traceback
from pathlib import Path

import numpy as np
import pytest

from sessions import budget, journal, transfer, upkeep
from sessions.errors import CheckpointError, TextOnly
from sessions.fork import fork
from sessions.keeper import Keeper, fold_offline
from sessions.prefix_lookup import PrefixIndex
from sessions.record import SessionRecord
from sessions.store import SessionStore
from tests.sessions.deltas import BYTES_A_TOKEN, since, text_of, whole
from tests.sessions.states import FINGERPRINT, META, assert_same

_FORK = multiprocessing.get_context("fork")
_MOST_TOKENS = 380
_GRACE_S = 60.0


def check(store: SessionStore, record: SessionRecord) -> int:
    """Load a conversation and compare all of it; return its tokens."""
    restored = store.restore(record.id)
    state, seed = restored.state, int(restored.record.title)
    assert_same(state, whole(len(state.tokens), seed=seed))
    assert restored.text == text_of(state.tokens)
    assert restored.notes == (), restored.notes
    return len(state.tokens)


class Agent:
    """One process. It remembers what it has brought to the disk."""

    def __init__(self, folder: Path, number: int) -> None:
        self.store = SessionStore(folder)
        self.index = PrefixIndex(folder)
        self.scratch = folder.parent / f"scratch-{number}"
        self.scratch.mkdir()
        self.random = np.random.default_rng(number)
        self.next_seed = 1000 * number + 1
        self.own: dict[str, int] = {}  # id -> tokens that are safe
        self.n_done: dict[str, int] = {}

    def run(self, seconds: float) -> None:
        actions = [
            (self.begin, 3),
            (self.go_on, 8),
            (self.look, 6),
            (self.fork, 2),
            (self.care, 3),
            (self.fold, 2),
            (self.remove, 1),
            (self.move, 1),
            (self.make_room, 1),
        ]
        weights = np.array([weight for _, weight in actions], float)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            action = actions[self.random.choice(len(actions), p=weights / weights.sum())][0]
            action()
            self.n_done[action.__name__] = self.n_done.get(action.__name__, 0) + 1

    def begin(self) -> None:
        seed, n = self.next_seed, int(self.random.integers(5, 60))
        self.next_seed += 1
        state = whole(n, seed=seed)
        saved = self.store.save(
            state, text_of(state.tokens), title=str(seed), created_at=1 + seed, meta=META
        )
        self.own[saved.id] = n

    def go_on(self) -> None:
        """Open any conversation, append some turns, fold it or not, close it."""
        record = self.any()
        if record is None:
            return
        try:
            with self.store.open_lock(record.id):
                restored = self.store.restore(record.id)
                assert restored.notes == (), restored.notes
                self.append(restored)
        except TextOnly:
            return
        except CheckpointError as error:
            assert "is open in" in str(error) or "no saved session" in str(error), error

    def append(self, restored) -> None:
        record, seed = restored.record, int(restored.record.title)
        keeper = Keeper(
            self.store,
            title=record.title,
            created_at=record.created_at,
            meta=META,
            restored=restored,
        )
        try:
            for _ in range(int(self.random.integers(1, 4))):
                kept = keeper.tokens
                n = kept + int(self.random.integers(1, 30))
                if n > _MOST_TOKENS:
                    return
                state = whole(n, seed=seed)
                if self.random.random() < 0.3:
                    keeper.fold(state, text_of(state.tokens))
                else:
                    keeper.append(
                        since(state, kept),
                        text_of(state.tokens[kept:]),
                        BYTES_A_TOKEN * kept,
                        kind="turn",
                        tokens_sha256=journal.tokens_sha256(state.tokens),
                    )
                if record.id in self.own:
                    self.own[record.id] = n
        finally:
            keeper.close()

    def look(self) -> None:
        record = self.any()
        if record is None:
            return
        try:
            n_tokens = check(self.store, record)
        except TextOnly:
            return
        except CheckpointError as error:
            assert "no saved session" in str(error), error
            return
        assert n_tokens >= self.own.get(record.id, 0)
        prompt = text_of(whole(n_tokens, seed=int(record.title)).tokens) + b"more"
        self.index.longest(prompt, fingerprint=FINGERPRINT, model_id=0x40, ctx=4096, min_tokens=1)

    def fork(self) -> None:
        record = self.any()
        if record is None or len(self.own) > 60:
            return
        try:
            child = fork(self.store, record.id)
            if not child.is_stripped:
                self.own[child.id] = check(self.store, child)
        except TextOnly:
            return
        except CheckpointError as error:
            assert "no saved session" in str(error), error

    def care(self) -> None:
        record = self.any()
        if record is None:
            return
        try:
            upkeep.rename(self.store, record.id, f"name {self.random.integers(9)}")
            upkeep.set_pinned(self.store, record.id, bool(self.random.integers(2)))
            list(upkeep.search(self.store, "name"))
        except CheckpointError as error:
            assert "no saved session" in str(error), error

    def fold(self) -> None:
        record = self.any()
        try:
            if record is not None:
                fold_offline(self.store, record.id)
        except TextOnly:
            return
        except CheckpointError as error:
            assert "is open in" in str(error) or "no saved session" in str(error), error

    def remove(self) -> None:
        """Delete one of our own that nobody has open."""
        if len(self.own) < 20:
            return
        identifier = str(self.random.choice(list(self.own)))
        try:
            with self.store.open_lock(identifier):
                self.store.delete(identifier)
                del self.own[identifier]
        except CheckpointError as error:
            assert "is open in" in str(error), error

    def move(self) -> None:
        record = self.any()
        if record is None or len(self.own) > 60:
            return
        try:
            path = transfer.export_session(self.store, record.id, self.scratch / "s").path
            copy = transfer.import_session(self.store, path, as_copy=True)
            self.own[copy.id] = check(self.store, copy)
        except TextOnly:
            return
        except CheckpointError as error:
            told = str(error)
            assert any(w in told for w in ("no saved session", "is open in", "is here")), told

    def make_room(self) -> None:
        plan = budget.plan(self.store, 0)
        for entry in plan.victims[:2]:
            budget.carry_out(self.store, [entry], lambda *_: None)

    def any(self) -> SessionRecord | None:
        records = self.store.list()
        assert self.store.damaged == (), self.store.damaged
        if not records:
            return None
        return records[int(self.random.integers(len(records)))]


def act(folder: Path, number: int, seconds: float, results) -> None:
    agent = Agent(folder, number)
    try:
        agent.run(seconds)
    except BaseException as error:
        results.put((number, traceback.format_exc()[-3000:] + repr(error), {}))
        raise
    results.put((number, "", {"own": agent.own, "done": agent.n_done}))


def run_agents(folder: Path, seconds: float, n_agents: int = 2) -> None:
    folder.mkdir(parents=True)
    results = _FORK.Queue()
    children = [
        _FORK.Process(target=act, args=(folder, number, seconds, results))
        for number in range(1, n_agents + 1)
    ]
    for child in children:
        child.start()
    told = [results.get(timeout=seconds + _GRACE_S) for _ in children]
    for child in children:
        child.join(_GRACE_S)
    problems = [problem for _, problem, _ in told if problem]
    assert not problems, "\n".join(problems)
    store = SessionStore(folder)
    records = {record.id: record for record in store.list()}
    assert store.damaged == ()
    for number, _, found in told:
        assert {"begin", "go_on", "look"} <= found["done"].keys()
        for identifier, n_tokens in found["own"].items():
            assert identifier in records, f"agent {number} lost {identifier}"
            record = records[identifier]
            if record.is_stripped:  # somebody made room: the text is there, up to that moment
                assert record.tokens >= n_tokens
            else:
                assert check(store, record) >= n_tokens
    assert all(not verified.problem for verified in upkeep.verify(store))
    assert [path.name for path in folder.iterdir() if ".tmp." in path.name] == []
    assert [path.name for path in folder.iterdir() if ".corrupt" in path.name] == []


def test_two_agents_on_one_folder(tmp_path) -> None:
    run_agents(tmp_path / "kv", 3.0)


@pytest.mark.slow
def test_two_agents_on_one_folder_for_a_minute(tmp_path) -> None:
    run_agents(tmp_path / "kv", 60.0)
