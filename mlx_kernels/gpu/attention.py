"""Causal attention over a key-value buffer, with a sliding window and sinks: MLX's own."""

import mlx.core as mx

from mlx_kernels.gpu.kv_buffer import MlxKvBuffer


def attention(
    queries: mx.array,
    buffer: MlxKvBuffer,
    window: int | None = None,
    sinks: mx.array | None = None,
) -> mx.array:
    """Attention of the last T positions, [T, H, D] -> [T, H * D]; see ``Ops.attention``."""
    n_new, n_heads, width = queries.shape
    # Rows before the first query's window are cut off; what is left is masked a query.
    first = 0 if window is None else max(0, buffer.n_rows - n_new + 1 - window)
    n_seen = buffer.n_rows - first
    mask: mx.array | str | None = None
    if window is not None and n_new > 1 and n_seen > window:
        row = mx.arange(n_seen)
        position = mx.arange(n_seen - n_new, n_seen)[:, None]
        mask = (row <= position) & (row > position - window)
    elif n_new > 1:
        mask = "causal"  # MLX aligns the mask to the last key, which is what a cache needs
    mixed = mx.fast.scaled_dot_product_attention(
        mx.swapaxes(queries, 0, 1)[None],  # [1, H, T, D]
        buffer.keys[:, :, first:],
        buffer.values[:, :, first:],
        scale=width**-0.5,
        mask=mask,
        sinks=sinks,
    )
    return mx.swapaxes(mixed[0], 0, 1).reshape(n_new, n_heads * width)
