"""Conversations of DeepSeek V4 Flash with random content, in the shapes of the real ones.

Rows are Gaussian numbers rounded as the network rounds its cache: FP8 for 448 values of a row and
float16 for the 64 rotated ones, FP4 for the rows of the indexer. One block of rows is drawn and
repeated from changing places on, because drawing gigabytes takes longer than saving them.
"""

import numpy as np

from engine.state import SessionState, StateDelta

N_LAYERS, WIDTH, INDEX_WIDTH, N_VOCAB, WINDOW = 43, 512, 128, 129280, 128
_N_ROTATED = 64
_N_DRAWN = 4096  # rows of a block
_STEPS = {8: (-5, 4, 448.0, 64), 4: (1, 2, 6.0, 32)}  # least exponent, mantissa, largest, group


def flash_state(n_tokens: int, ctx: int = 1 << 17, seed: int = 0) -> SessionState:
    """Return a state of ``n_tokens``; it takes some 7 kB of memory for each, and 20 MB."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((_N_DRAWN, WIDTH)).astype(np.float32)
    rows[:, :-_N_ROTATED] = rounded(rows[:, :-_N_ROTATED], 8)
    rows = rows.astype(np.float16)
    index_rows = rounded(random.standard_normal((_N_DRAWN, INDEX_WIDTH)), 4).astype(np.float16)
    arrays = {}
    for i in range(N_LAYERS):
        prefix, ratio = f"layers.{i}.", _ratio(i)
        arrays[f"{prefix}window"] = _repeated(rows, min(n_tokens, WINDOW), i)
        if ratio:
            arrays[f"{prefix}compressed"] = _repeated(rows, n_tokens // ratio, i)
            arrays |= _frontier(random, f"{prefix}compressor.", ratio, n_tokens, WIDTH)
        if ratio == 4:
            arrays[f"{prefix}indexer.compressed"] = _repeated(index_rows, n_tokens // 4, i)
            arrays |= _frontier(random, f"{prefix}indexer.compressor.", 4, n_tokens, INDEX_WIDTH)
    return SessionState(
        family="deepseek_v4",
        fingerprint="5e" * 32,
        ctx=max(ctx, n_tokens),
        # A longer state begins with the tokens of a shorter one.
        tokens=tuple(np.random.default_rng(seed + 1).integers(0, N_VOCAB, n_tokens).tolist()),
        logits=random.standard_normal(N_VOCAB).astype(np.float32),
        arrays=arrays,
        expert_bits=2,
    )


def delta_between(before: SessionState, after: SessionState) -> StateDelta:
    """Return what ``after`` has beyond ``before``: new rows, and whole what changes as a whole."""
    kept = len(before.tokens)
    first_rows = {
        name: len(before.arrays[name]) if name.endswith("compressed") else 0
        for name in after.arrays
    }
    return StateDelta(
        family=after.family,
        fingerprint=after.fingerprint,
        ctx=after.ctx,
        kept=kept,
        tokens=after.tokens[kept:],
        logits=after.logits,
        arrays={name: after.arrays[name][first:] for name, first in first_rows.items()},
        first_rows=first_rows,
    )


def rounded(values: np.ndarray, bits: int) -> np.ndarray:
    """Round [n, width] to FP8 E4M3 (8) or FP4 E2M1 (4) in groups with a power of two each."""
    least, mantissa, largest, group = _STEPS[bits]
    groups = values.reshape(len(values), -1, group)
    fractions, powers = np.frexp(np.abs(groups).max(axis=2, keepdims=True) / largest)
    powers -= fractions == 0.5  # the ceiling of the logarithm, also of a power of two
    scaled = np.ldexp(groups, -powers)
    _, exponents = np.frexp(scaled)
    steps = np.maximum(exponents, least) - mantissa
    return np.ldexp(np.rint(np.ldexp(scaled, -steps)), steps + powers).reshape(values.shape)


def _ratio(layer: int) -> int:
    if layer < 2:
        return 0
    return 4 if layer % 2 == 0 else 128


def _repeated(block: np.ndarray, n_rows: int, seed: int) -> np.ndarray:
    out = np.empty((n_rows, block.shape[1]), block.dtype)
    at, shift = 0, 997 * seed
    while at < n_rows:
        start = shift % (len(block) - 1)
        n = min(n_rows - at, len(block) - start)
        out[at : at + n] = block[start : start + n]
        at, shift = at + n, shift + 1361
    return out


def _frontier(
    random: np.random.Generator, prefix: str, ratio: int, n_tokens: int, width: int
) -> dict[str, np.ndarray]:
    """Values and scores of the tokens whose group is not complete; other places are empty."""
    c = 2 if ratio == 4 else 1
    shape = (c * ratio, c * width)
    kv, score = np.zeros(shape, np.float32), np.full(shape, -1e30, np.float32)
    first = ratio if c == 2 else 0
    live = slice(first, first + n_tokens % ratio)
    for array in (kv, score):
        array[live] = random.standard_normal(array[live].shape)
        if c == 2 and n_tokens >= ratio:  # the group before, its first half
            array[:ratio, :width] = random.standard_normal((ratio, width))
    return {f"{prefix}kv": kv, f"{prefix}score": score}
