"""States built without an engine, and the folder that most tests save them to."""

import numpy as np

from engine.state import SessionState
from sessions.record import SavedFile, SessionMeta
from sessions.store import SessionStore

FINGERPRINT = "5c" * 32
TEXT = "<|im_start|>user\nGrüße<|im_end|>\n".encode()
CREATED_AT = 1_779_364_800
META = SessionMeta("/home/me/project", "smollm2-135m")


def make_state(
    n_tokens: int = 3,
    n_layers: int = 2,
    n_heads: int = 1,
    head_dim: int = 2,
    n_vocab: int = 5,
    ctx: int = 4096,
    seed: int = 0,
    fingerprint: str = FINGERPRINT,
) -> SessionState:
    """Return a random state of the llama family; every bit pattern of float16 may occur."""
    random = np.random.default_rng(seed)
    rows = (n_tokens, n_heads, head_dim)
    arrays = {
        f"layers.{layer}.{name}": random.integers(0, 2**16, rows, np.uint16).view(np.float16)
        for layer in range(n_layers)
        for name in "kv"
    }
    logits = random.standard_normal(n_vocab).astype(np.float32)
    tokens = tuple(random.integers(0, n_vocab, n_tokens).tolist())
    return SessionState("llama", fingerprint, ctx, tokens, logits, arrays)


def assert_same(left: SessionState, right: SessionState) -> None:
    """Compare bit by bit: NaN equals NaN, and zeros keep their sign."""
    assert (left.family, left.fingerprint, left.ctx) == (
        right.family,
        right.fingerprint,
        right.ctx,
    )
    assert left.tokens == right.tokens
    assert left.logits.dtype == right.logits.dtype
    assert left.logits.tobytes() == right.logits.tobytes()
    assert left.arrays.keys() == right.arrays.keys()
    for name, array in left.arrays.items():
        assert array.dtype == right.arrays[name].dtype
        assert array.shape == right.arrays[name].shape
        assert array.tobytes() == right.arrays[name].tobytes()


def save(
    store: SessionStore,
    title: str = "Fix the build",
    created_at: int = CREATED_AT,
    meta: SessionMeta = META,
    **shape: int,
) -> SavedFile:
    """Save ``make_state(**shape)``."""
    return store.save(make_state(**shape), TEXT, title=title, created_at=created_at, meta=meta)
