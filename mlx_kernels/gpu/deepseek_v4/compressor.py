"""The compressor; the algorithm is told in the cpu world's file. All groups of a block at once."""

import mlx.core as mx
import numpy as np

from mlx_kernels.deepseek_v4_ops import CompressorWeights
from mlx_kernels.deepseek_v4_state import NO_SCORE, CompressorState
from mlx_kernels.deepseek_v4_turns import turns
from mlx_kernels.gpu.deepseek_v4.rotation import turn


def extend(
    products: mx.array, weights: CompressorWeights, state: CompressorState
) -> tuple[mx.array | None, int, int, int]:
    """Add T tokens to the frontier, and return what the rows that they complete are pooled from.

    Args:
        products: [T, 2 w], values and then scores without ape.
        weights: ape.
        state: its frontier gets the T tokens; its rows are left to the caller.

    Returns:
        Values and scores [M, 2 w] of the groups and the tokens before that count again (None if no
        group ends), where in it the first group begins, the index of its row, the number of rows.
    """
    ratio, w = state.ratio, state.score_at
    first = state.frontier.end
    stop = first + products.shape[0]
    places = mx.array(np.arange(first, stop, dtype=np.int32) % ratio)
    scores = products[:, w:] + weights.ape[places]
    products = mx.concatenate([products[:, :w], scores], axis=1)
    first_row = first // ratio
    n = stop // ratio - first_row
    history = None
    if n:
        old = state.frontier.rows(state.first_needed(first), first)
        history = mx.concatenate([old, products])
    at = first_row * ratio - state.first_needed(first)
    state.frontier.append(products)
    return history, at, first_row, n


def compress(
    products: mx.array,
    weights: CompressorWeights,
    state: CompressorState,
    frequencies: np.ndarray,
    eps: float,
) -> mx.array:
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
    history, at, first_row, n = extend(products, weights, state)
    if history is None:
        return mx.zeros((0, width))
    own = history[at : at + n * ratio].reshape(n, ratio, 2 * w)
    if ratio == 4:
        values, scores = _with_group_before(history, own, at, width)
    else:
        values, scores = own[:, :, :w], own[:, :, w:]  # [n, R, width]
    pooled = (mx.softmax(scores, axis=1) * values).sum(axis=1)  # [n, width]
    rows = mx.fast.rms_norm(pooled, weights.norm, eps)
    cos, sin = turns(first_row * ratio, n, frequencies, step=ratio)
    return turn(rows, mx.array(cos), mx.array(sin))


def _with_group_before(
    history: mx.array, own: mx.array, at: int, width: int
) -> tuple[mx.array, mx.array]:
    """Values and scores [n, 8, width]: first halves of the group before, second ones of its own.

    The very first group has none before it: its scores are so low that exp gives 0.
    """
    n, ratio, w = own.shape[0], 4, 2 * width
    if at:
        before = history[at - ratio : at - ratio + n * ratio].reshape(n, ratio, 2 * w)
        values, scores = before[:, :, :width], before[:, :, w : w + width]
    else:
        values = mx.concatenate([mx.zeros((1, ratio, width)), own[:-1, :, :width]])
        none = mx.full((1, ratio, width), float(NO_SCORE))
        scores = mx.concatenate([none, own[:-1, :, w : w + width]])
    return (
        mx.concatenate([values, own[:, :, width:w]], axis=1),
        mx.concatenate([scores, own[:, :, w + width :]], axis=1),
    )
