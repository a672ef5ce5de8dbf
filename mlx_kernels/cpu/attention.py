"""Causal attention over a key-value buffer, with a sliding window and sinks."""

import numpy as np

from mlx_kernels.cpu import native
from mlx_kernels.cpu.kv_buffer import CpuKvBuffer
from mlx_kernels.errors import TensorError

# Query rows whose scores exist at once: [G * 128, T] floats, 25 MB at 8192 positions and G = 6.
_QUERY_TILE = 128


def attention(
    queries: np.ndarray,
    buffer: CpuKvBuffer,
    window: int | None,
    sinks: np.ndarray | None,
    is_native: bool,
) -> np.ndarray:
    """Attention of the last T positions, [T, H, D] -> [T, H * D]; see ``Ops.attention``."""
    if window is not None and window < 1:
        raise TensorError(f"a window of {window} positions, expected at least 1")
    if is_native:
        keys, values = buffer.keys, buffer.values
        return native.attention(queries, keys, values, window=window or 0, sinks=sinks)
    n_new, n_heads, width = queries.shape
    keys, values = buffer.keys, buffer.values  # [Hkv, N, D]
    n_kv_heads = len(keys)
    group = n_heads // n_kv_heads
    n_old = buffer.n_rows - n_new
    grouped = queries.reshape(n_new, n_kv_heads, group, width)
    result = np.empty((n_new, n_kv_heads, group, width), np.float32)
    for start in range(0, n_new, _QUERY_TILE):
        tile = grouped[start : start + _QUERY_TILE]
        n_tile = len(tile)
        stop = n_old + start + n_tile  # rows that the last query of the tile sees
        first = 0 if window is None else max(0, stop - n_tile - window + 1)
        hidden = _hidden_from(n_tile, first, stop, window)
        for head in range(n_kv_heads):
            scaled = tile[:, head].reshape(n_tile * group, width) * np.float32(width**-0.5)
            scores = scaled @ keys[head, first:stop].T  # [T G, N]
            if hidden is not None:
                masked = scores.reshape(n_tile, group, stop - first)
                masked += hidden
            top = scores.max(axis=1, keepdims=True)
            if sinks is not None:
                sink = np.tile(sinks[head * group : (head + 1) * group], n_tile)[:, None]
                top = np.maximum(top, sink)
            scores -= top
            np.exp(scores, out=scores)
            mixed = scores @ values[head, first:stop]  # [T G, D]
            total = scores.sum(axis=1, keepdims=True)
            if sinks is not None:
                total += np.exp(sink - top)  # a share of the attention that goes nowhere
            mixed /= total
            result[start : start + n_tile, head] = mixed.reshape(n_tile, group, width)
    return result.reshape(n_new, n_heads * width)


def _hidden_from(n_tile: int, first: int, stop: int, window: int | None) -> np.ndarray | None:
    """[T, 1, stop - first] float32: minus infinity where a query does not see a row, else 0.

    None when every query sees all rows.
    """
    if n_tile == 1:
        return None
    position = np.arange(stop - n_tile, stop)[:, None]
    row = np.arange(first, stop)
    is_hidden = row > position
    if window is not None:
        is_hidden |= row <= position - window
    return np.where(is_hidden, np.float32(-np.inf), np.float32(0))[:, None]
