"""The gate of a feed-forward network."""

import numpy as np


def swiglu(gate_up: np.ndarray, clamp: float | None = None) -> np.ndarray:
    """silu(first half) * second half of [T, 2 F] -> [T, F].

    With a clamp the gate is first cut above it, and up on both sides.
    """
    width = gate_up.shape[-1] // 2
    gate, up = gate_up[:, :width], gate_up[:, width:]
    if clamp is not None:
        gate, up = np.minimum(gate, np.float32(clamp)), np.clip(up, -clamp, clamp)
    # silu(g) = g / (1 + exp(-g)); exp may overflow to infinity, which gives the right 0.
    with np.errstate(over="ignore"):
        divisor = np.exp(-gate)
    divisor += 1
    hidden = np.divide(gate, divisor, out=divisor)
    hidden *= up
    return hidden
