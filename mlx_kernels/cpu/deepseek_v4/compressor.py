"""The compressor: each R tokens become one row, channel by channel a softmax-weighted mean.

A token gives a value and a score for every channel. At R = 128 a row pools the 128 tokens of its
group. At R = 4 groups overlap: a token has a second value and score, the first half of its
projections, for the row of the *next* group, so a row pools 8 tokens. The pooled row is normalised,
turned to the position of the group's first token, and rounded.
"""

import numpy as np

from mlx_kernels.cpu.deepseek_v4.rotation import turn
from mlx_kernels.cpu.norm import rms_norm
from mlx_kernels.deepseek_v4_ops import CompressorWeights
from mlx_kernels.deepseek_v4_state import CompressorState
from mlx_kernels.deepseek_v4_turns import turns


def compress(
    products: np.ndarray,
    weights: CompressorWeights,
    state: CompressorState,
    frequencies: np.ndarray,
    eps: float,
) -> np.ndarray:
    """Add T tokens and return the turned rows that they complete, not yet rounded.

    Args:
        products: [T, 2 w], values and then scores without ape.
        weights: ape and norm.
        state: its frontier gets the T tokens; its rows are left to the caller.
        frequencies: of the layer's rotation.
        eps: of the norm.

    Returns:
        [n, width], n = the number of groups that end within the T tokens.
    """
    ratio, width, w = state.ratio, state.width, state.score_at
    first = state.frontier.end
    stop = first + len(products)
    products = products.copy()
    products[:, w:] += weights.ape[np.arange(first, stop) % ratio]
    start = state.first_needed(first)
    history = None
    first_row, stop_row = first // ratio, stop // ratio
    if first_row < stop_row:
        history = np.concatenate([state.frontier.rows(start, first), products])
    state.frontier.append(products)
    pooled = np.empty((stop_row - first_row, width), np.float32)
    for c in range(first_row, stop_row):
        at = c * ratio - start
        own = history[at : at + ratio]
        if ratio == 4:
            values, scores = own[:, width:w], own[:, w + width :]
            if c:
                before = history[at - ratio : at]
                values = np.concatenate([before[:, :width], values])  # [8, width]
                scores = np.concatenate([before[:, w : w + width], scores])
        else:
            values, scores = own[:, :w], own[:, w:]  # [R, width]
        shares = np.exp(scores - scores.max(0))
        pooled[c - first_row] = (shares * values).sum(0) / shares.sum(0)
    rows = rms_norm(pooled, weights.norm, eps)
    cos, sin = turns(first_row * ratio, len(rows), frequencies, step=ratio)
    return turn(rows, cos, sin)
