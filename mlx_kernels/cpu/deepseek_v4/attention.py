"""Attention of one position at a time over window rows, selected compressed rows and a sink.

A row is key and value at once, shared by all heads. The sink is a learned logit of each head that
takes a share of the softmax and gives no value. Because values carry a rotation, the result is
turned back by the query's own position.

One position at a time: its sums then have the same order in a prompt as in decoding.
"""

import numpy as np

from mlx_kernels.cpu.deepseek_v4.rotation import turn
from mlx_kernels.deepseek_v4_ops import Layer
from mlx_kernels.deepseek_v4_state import PlainLayerState
from mlx_kernels.deepseek_v4_turns import turns


def attend(
    query: np.ndarray, window: np.ndarray, selected: np.ndarray | None, sinks: np.ndarray
) -> np.ndarray:
    """One position: query [H, d], window [n, d], selected [N, d] or None -> [H, d]."""
    scale = np.float32(query.shape[-1] ** -0.5)
    near = (query @ window.T) * scale  # [H, n]
    top = np.maximum(near.max(1, keepdims=True), sinks[:, None])
    if selected is not None and len(selected):
        far = (query @ selected.T) * scale  # [H, N]
        top = np.maximum(top, far.max(1, keepdims=True))
        np.exp(far - top, out=far)
    else:
        far = None
    np.exp(near - top, out=near)
    total = np.exp(sinks[:, None] - top) + near.sum(1, keepdims=True)
    mixed = near @ window
    if far is not None:
        total += far.sum(1, keepdims=True)
        mixed += far @ selected
    return mixed / total


def attention(
    queries: np.ndarray, selection: list[np.ndarray] | None, layer: Layer, state: PlainLayerState
) -> np.ndarray:
    """See ``DeepseekV4Ops``; selection: row indices a position, or None at R = 0."""
    n_new, n_heads, width = queries.shape
    first = state.n_tokens - n_new
    out = np.empty(queries.shape, np.float32)
    start = max(0, first - layer.shape.window + 1)
    window = state.window_of_block(n_new)
    rows = state.compressor.rows.rows if selection is not None else None
    if rows is not None and layer.ratio != 4:
        rows = rows.astype(np.float32)  # all of them are read
    for t in range(n_new):
        low = max(0, first + t - layer.shape.window + 1) - start
        selected = None
        if rows is not None:
            # Indices that begin a run from 0 need no copy.
            index = selection[t]
            is_run = not len(index) or index[-1] == len(index) - 1
            selected = (rows[: len(index)] if is_run else rows[index]).astype(
                np.float32, copy=False
            )
        out[t] = attend(
            queries[t], window[low : first + t + 1 - start], selected, layer.attention.sinks
        )
    cos, sin = turns(first, n_new, layer.frequencies)
    return turn(out, cos, -sin).reshape(n_new, n_heads * width)
