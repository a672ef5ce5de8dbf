"""A feed-forward layer of which each position uses a few of many experts."""

import numpy as np

from mlx_kernels.reference.swiglu import swiglu


def moe(
    x: np.ndarray,
    gate: np.ndarray,
    up: np.ndarray,
    down: np.ndarray,
    n_experts: int,
    expert_ids: np.ndarray,
    expert_weights: np.ndarray,
    clamp: float | None = None,
) -> np.ndarray:
    """Sum of the chosen experts of each position.

    Args:
        x: [T, C].
        gate: [E * F, C]; expert e is rows e * F to (e + 1) * F.
        up: [E * F, C], likewise.
        down: [E * C, F]; expert e is rows e * C to (e + 1) * C.
        n_experts: E.
        expert_ids: [T, K] integers from 0 to E - 1.
        expert_weights: [T, K]. Applied to the hidden values, before the product with ``down``.
        clamp: See ``swiglu``.

    Returns:
        [T, C].
    """
    gates, ups, downs = (np.split(each.astype(np.float64), n_experts) for each in (gate, up, down))
    out = np.zeros(x.shape)
    for t, row in enumerate(x.astype(np.float64)):
        for e, weight in zip(expert_ids[t], expert_weights[t], strict=True):
            hidden = swiglu(np.concatenate([gates[e] @ row, ups[e] @ row]), clamp)
            out[t] += downs[e] @ (float(weight) * hidden)
    return out
