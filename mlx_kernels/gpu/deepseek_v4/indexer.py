"""The indexer; the algorithm is told in the cpu world's file."""

import mlx.core as mx

from mlx_kernels.gpu.deepseek_v4.attention import complete_rows
from mlx_kernels.gpu.deepseek_v4.top_k import top_k

_PIECE_VALUES = 16 << 20  # float32 products of queries and rows at a time: 64 MB
_NOT_THERE = -float("inf")  # a row that the position's past does not hold: the last to be chosen


def best_rows(
    queries: mx.array, weights: mx.array, rows: mx.array, first: int, ratio: int, k: int
) -> mx.array:
    """Return the rows that positions from ``first`` on read, ascending -> [T, k] int32.

    Args:
        queries: [T, Hi, di].
        weights: [T, Hi], scaled.
        rows: [N, di] float32, N > k.
        first: the position of the first query.
        ratio: tokens a row.
        k: rows to choose. A position with fewer gets them all, and higher indices behind them.
    """
    n_new, n_heads, _ = queries.shape
    step = max(1, _PIECE_VALUES // (n_heads * rows.shape[0]))
    pieces = []
    for t in range(0, n_new, step):
        products = mx.maximum(queries[t : t + step] @ rows.T, 0.0)  # [t, Hi, N]
        scores = (weights[t : t + step, None] @ products)[:, 0]  # [t, N]
        count = complete_rows(first + t, scores.shape[0], ratio)[:, None]
        is_there = mx.arange(rows.shape[0], dtype=mx.int32)[None] < count
        pieces.append(top_k(mx.where(is_there, scores, _NOT_THERE), k))
    return pieces[0] if len(pieces) == 1 else mx.concatenate(pieces)
