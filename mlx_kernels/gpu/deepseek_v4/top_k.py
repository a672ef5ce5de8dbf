"""The k largest of a row, the lowest index first among equals, on the device.

MLX promises no order among equals when it sorts indices. So values are sorted only for the k-th
largest, and which of its equals are chosen is counted from the left.
"""

import mlx.core as mx


def top_k(scores: mx.array, k: int) -> mx.array:
    """Return the indices of the k largest of scores [T, N], k <= N, ascending -> [T, k] int32."""
    n = scores.shape[1]
    least = mx.sort(scores, axis=1)[:, n - k, None]  # the k-th largest
    above = scores > least
    ties = scores == least
    n_above = above.astype(mx.int32).sum(axis=1, keepdims=True)
    rank = mx.cumsum(ties.astype(mx.int32), axis=1)  # from 1
    chosen = above | (ties & (rank <= k - n_above))
    places = mx.where(chosen, mx.arange(n, dtype=mx.int32), n)  # all differ but the last
    return mx.sort(places, axis=1)[:, :k]
