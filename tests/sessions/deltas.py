"""A conversation that grows without an engine, and how it is kept."""

import dataclasses

import numpy as np

from engine.state import SessionState, StateDelta
from sessions import journal
from sessions.keeper import Keeper
from sessions.store import SessionStore
from tests.sessions.states import CREATED_AT, META, make_state

TITLE = "Fix the build"
BYTES_A_TOKEN = 2  # of the text here


def whole(n_tokens: int, seed: int = 0, **shape: int) -> SessionState:
    """Return the first ``n_tokens`` of one endless conversation of the llama family.

    Its logits tell its length.
    """
    all_of_it = make_state(n_tokens=max(400, n_tokens), seed=seed, **shape)
    logits = np.random.default_rng((seed, n_tokens)).standard_normal(len(all_of_it.logits))
    return dataclasses.replace(
        all_of_it,
        tokens=all_of_it.tokens[:n_tokens],
        logits=logits.astype(np.float32),
        arrays={name: rows[:n_tokens] for name, rows in all_of_it.arrays.items()},
    )


def text_of(tokens: tuple[int, ...]) -> bytes:
    return b"".join(b"%02x" % (token % 256) for token in tokens)


def since(state: SessionState, kept: int) -> StateDelta:
    return StateDelta(
        state.family,
        state.fingerprint,
        state.ctx,
        kept,
        state.tokens[kept:],
        state.logits,
        {name: rows[kept:] for name, rows in state.arrays.items()},
        dict.fromkeys(state.arrays, kept),
    )


def keeper_of(store: SessionStore, restored=None, **options) -> Keeper:
    return Keeper(
        store, title=TITLE, created_at=CREATED_AT, meta=META, restored=restored, **options
    )


def fold(keeper: Keeper, state: SessionState, **options):
    return keeper.fold(state, text_of(state.tokens), **options)


def append(keeper: Keeper, state: SessionState, kept: int | None = None, **options) -> int:
    kept = keeper.tokens if kept is None else kept
    return keeper.append(
        since(state, kept),
        text_of(state.tokens[kept:]),
        BYTES_A_TOKEN * kept,
        tokens_sha256=journal.tokens_sha256(state.tokens),
        **{"kind": "turn", **options},
    )
