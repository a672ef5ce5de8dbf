"""Attention over window rows, compressed rows and a sink; told in the cpu world's file.

A long block goes in pieces of positions, so that scores and copies of selected rows stay small.
Masks are made from positions on the device; nothing of a selection comes to the host.
"""

from dataclasses import dataclass

import mlx.core as mx

from mlx_kernels.deepseek_v4_ops import Layer
from mlx_kernels.deepseek_v4_state import PlainLayerState
from mlx_kernels.deepseek_v4_turns import turns
from mlx_kernels.gpu.deepseek_v4.rotation import turn

_PIECE_VALUES = 16 << 20  # float32 values of a piece's selected rows and scores: 64 MB
_MASKED = -1e30  # far below any score; exp gives 0


@dataclass(frozen=True, slots=True)
class Selection:
    """The compressed rows that each position reads.

    Attributes:
        index: [T, k] int32, ascending; places from the position's number of complete rows on are
            not read. None: all complete rows are read.
        ratio: A position p has (p + 1) // ratio complete rows.
        first: The position that the first row of ``index`` is of.
    """

    index: mx.array | None
    ratio: int
    first: int


def complete_rows(first: int, n: int, ratio: int) -> mx.array:
    """Number of compressed rows that each of ``n`` positions from ``first`` may read -> [n]."""
    return (mx.arange(first + 1, first + n + 1, dtype=mx.int32)) // ratio


def attention(
    queries: mx.array, selection: Selection | None, layer: Layer, state: PlainLayerState
) -> mx.array:
    """See ``DeepseekV4Ops``."""
    n_new, n_heads, width = queries.shape
    first = state.n_tokens - n_new
    start = max(0, first - layer.shape.window + 1)
    window = state.window_of_block(n_new)
    rows = None
    if selection is not None and state.compressor.rows.n_rows:
        rows = state.compressor.rows.rows
        if selection.index is None:
            rows = rows.astype(mx.float32)  # all of them are read
    n_far = 0
    if rows is not None:
        n_far = rows.shape[0] if selection.index is None else selection.index.shape[1]
    values = n_heads * (n_far + window.shape[0])
    if rows is not None and selection.index is not None:
        values += n_far * width
    step = max(1, min(n_new, _PIECE_VALUES // values))
    pieces = []
    for t in range(0, n_new, step):
        stop = min(t + step, n_new)
        low = max(start, first + t - layer.shape.window + 1)
        near = window[low - start : first + stop - start]
        index = None
        if rows is not None and selection.index is not None:
            index = selection.index[t:stop]
        ratio = selection.ratio if selection is not None else 1
        pieces.append(_attend(queries[t:stop], first + t, near, low, rows, index, ratio, layer))
    out = pieces[0] if len(pieces) == 1 else mx.concatenate(pieces)
    cos, sin = turns(first, n_new, layer.frequencies)
    return turn(out, mx.array(cos), mx.array(-sin)).reshape(n_new, n_heads * width)


def _attend(
    queries: mx.array,
    first: int,
    window: mx.array,
    low: int,
    rows: mx.array | None,
    index: mx.array | None,
    ratio: int,
    layer: Layer,
) -> mx.array:
    """Positions from ``first`` on: queries [t, H, d], window rows of positions from ``low`` on."""
    n, n_heads, width = queries.shape
    sinks = mx.broadcast_to(layer.attention.sinks[None, :, None], (n, n_heads, 1))
    positions = mx.arange(first, first + n, dtype=mx.int32)[:, None]
    seen = mx.arange(low, low + window.shape[0], dtype=mx.int32)[None]
    is_near = (seen <= positions) & (seen > positions - layer.shape.window)
    near = _masked((queries @ window.T) * width**-0.5, is_near)  # [t, H, n]
    scores = [near]
    if rows is not None:
        count = complete_rows(first, n, ratio)[:, None]
        if index is None:
            places = mx.arange(rows.shape[0], dtype=mx.int32)[None]
            far = queries @ rows.T  # [t, H, N]
        else:
            # A place that is not read may lie behind the last row.
            places = index
            rows = rows[mx.minimum(index, rows.shape[0] - 1)].astype(mx.float32)  # [t, k, d]
            far = queries @ mx.swapaxes(rows, 1, 2)
        scores.append(_masked(far * width**-0.5, places < count))
    shares = mx.softmax(mx.concatenate([*scores, sinks], axis=-1), axis=-1)
    n_near = window.shape[0]
    mixed = shares[..., :n_near] @ window
    return mixed if rows is None else mixed + shares[..., n_near:-1] @ rows


def _masked(scores: mx.array, is_read: mx.array) -> mx.array:
    """scores [t, H, n], is_read [t, n]."""
    return mx.where(is_read[:, None], scores, _MASKED)
