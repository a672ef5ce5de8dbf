"""Forks share a file and go their own ways."""

import dataclasses
import errno
import os

import numpy as np
import pytest

from sessions import journal, upkeep
from sessions.errors import CheckpointError
from sessions.fork import fork
from sessions.keeper import Keeper, fold_offline
from sessions.store import SessionStore
from tests.sessions.deltas import since, text_of, whole
from tests.sessions.states import META, TEXT, assert_same, make_state, save


def grown(store: SessionStore, identifier: str, n_tokens: int, seed: int = 0) -> None:
    """Append a turn to a session, as the agent does; another seed is another turn."""
    restored = store.restore(identifier)
    record, old = restored.record, restored.state
    keeper = Keeper(
        store, title=record.title, created_at=record.created_at, meta=META, restored=restored
    )
    assert keeper.id == identifier
    new = whole(n_tokens, seed=seed)
    n = len(old.tokens)
    longer = dataclasses.replace(
        new,
        tokens=(*old.tokens, *new.tokens[n:]),
        arrays={k: np.concatenate([old.arrays[k], a[n:]]) for k, a in new.arrays.items()},
    )
    keeper.append(
        since(longer, n),
        text_of(longer.tokens[n:]),
        len(restored.text),
        kind="turn",
        tokens_sha256=journal.tokens_sha256(longer.tokens),
    )
    keeper.close()


def test_a_fork_is_the_same_conversation_in_the_same_bytes(store: SessionStore) -> None:
    saved = save(store, n_tokens=50)
    child = fork(store, saved.id[:6])
    assert child.id != saved.id and child.label == "fork of Fix the build"
    assert (child.title, child.cwd, child.tokens) == ("Fix the build", META.cwd, 50)
    assert os.path.samefile(child.path, saved.path)
    assert_same(store.load(child.id)[0], make_state(n_tokens=50))
    assert len(store.list()) == 2 and store.damaged == ()
    grandchild = fork(store, child.id, "Mine")
    assert grandchild.label == "Mine" and len({saved.id, child.id, grandchild.id}) == 3


def test_each_goes_its_own_way(store: SessionStore) -> None:
    saved = save(store, n_tokens=50)
    grown(store, saved.id, 60, seed=1)
    child = fork(store, saved.id)
    assert child.tokens == 60
    before = store.load(child.id)[0]
    grown(store, saved.id, 70, seed=2)
    grown(store, child.id, 65, seed=3)
    mine, theirs = store.restore(child.id), store.restore(saved.id)
    assert (len(mine.state.tokens), len(theirs.state.tokens)) == (65, 70)
    for each in (mine, theirs):
        assert each.text == TEXT + text_of(each.state.tokens[50:])
    assert mine.state.tokens[:60] == before.tokens == theirs.state.tokens[:60]
    fold_offline(store, child.id)
    assert not os.path.samefile(child.path, saved.path)
    assert_same(store.load(child.id)[0], mine.state)
    assert_same(store.load(saved.id)[0], theirs.state)


@pytest.mark.parametrize("end", ["delete", "strip", "save"])
@pytest.mark.parametrize("who", ["parent", "child"])
def test_what_happens_to_one_does_not_touch_the_other(store, end, who) -> None:
    saved = save(store, n_tokens=50)
    child = fork(store, saved.id)
    one, other = (saved.id, child.id) if who == "parent" else (child.id, saved.id)
    if end == "delete":
        store.delete(one)
    elif end == "strip":
        assert upkeep.strip(store, one)[0].is_stripped
    else:
        created_at = store.find(one).created_at
        state = make_state(n_tokens=9, seed=9)
        again = store.save(state, TEXT, title="Fix the build", created_at=created_at, meta=META)
        assert again.id == one
        assert_same(store.load(one)[0], state)
    assert_same(store.load(other)[0], make_state(n_tokens=50))
    assert store.damaged == ()


def test_a_fork_without_its_side_file_is_told_and_never_taken_for_another(store) -> None:
    child = fork(store, save(store).id)
    child.path.with_name(child.path.name + ".meta").unlink()
    assert len(store.list()) == 1
    assert "creation time" in store.damaged[0].reason


def test_without_hard_links_the_file_is_copied(store, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    saved = save(store, n_tokens=50)
    monkeypatch.setattr(os, "link", refuse)
    child = fork(store, saved.id)
    assert not os.path.samefile(child.path, saved.path)
    assert_same(store.load(child.id)[0], make_state(n_tokens=50))
    monkeypatch.delattr(os, "copy_file_range", raising=False)
    assert_same(store.load(fork(store, saved.id).id)[0], make_state(n_tokens=50))


def test_a_fork_of_nothing_is_refused(store: SessionStore) -> None:
    with pytest.raises(CheckpointError, match="no saved session"):
        fork(store, "abcdef")
