"""The gated activation of a feed-forward layer."""

import numpy as np


def swiglu(gate_up: np.ndarray, clamp: float | None = None) -> np.ndarray:
    """silu(gate) * up, the two halves of the last axis, both limited first if ``clamp`` is given.

    The gate is limited from above only: silu is near 0 for a very negative one anyway.
    """
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=-1)
    if clamp is not None:
        gate = np.minimum(gate, clamp)
        up = np.clip(up, -clamp, clamp)
    return gate / (1.0 + np.exp(-gate)) * up
