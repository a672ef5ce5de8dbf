"""Causal attention over cached keys and values."""

import numpy as np


def attention(
    queries: np.ndarray,
    keys: np.ndarray,
    values: np.ndarray,
    window: int | None = None,
    sinks: np.ndarray | None = None,
) -> np.ndarray:
    """Causal attention of the last T of N positions.

    Args:
        queries: [T, H, D].
        keys: [N, Hkv, D], rounded to float16 before use, as a cache holds them.
        values: [N, Hkv, D], likewise.
        window: The query at position p sees positions p - window + 1 to p; all up to p when None.
        sinks: [H]. A score, not scaled, that each head attends to beside the rows: it takes part
            in the softmax and adds nothing to the mixture.

    Returns:
        [T, H * D].
    """
    n_new, n_heads, width = queries.shape
    n_rows, n_kv_heads, _ = keys.shape
    keys, values = (rows.astype(np.float16).astype(np.float64) for rows in (keys, values))
    mixed = np.zeros((n_new, n_heads, width))
    for t in range(n_new):
        stop = n_rows - n_new + t + 1
        start = 0 if window is None else max(0, stop - window)
        for h in range(n_heads):
            kv_head = h * n_kv_heads // n_heads
            scores = keys[start:stop, kv_head] @ queries[t, h] / np.sqrt(width)
            every = scores if sinks is None else np.append(scores, sinks[h])
            weights = np.exp(scores - every.max())
            total = np.exp(every - every.max()).sum()
            mixed[t, h] = weights @ values[start:stop, kv_head] / total
    return mixed.reshape(n_new, n_heads * width)
