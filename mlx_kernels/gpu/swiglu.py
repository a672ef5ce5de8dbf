"""The gate of a feed-forward network."""

import mlx.core as mx


def swiglu(gate_up: mx.array, clamp: float | None = None) -> mx.array:
    """silu(first half) * second half of [T, 2 F] -> [T, F].

    With a clamp the gate is first cut above it, and up on both sides.
    """
    width = gate_up.shape[-1] // 2
    gate, up = gate_up[..., :width], gate_up[..., width:]
    if clamp is not None:
        gate, up = mx.minimum(gate, clamp), mx.clip(up, -clamp, clamp)
    return gate * mx.sigmoid(gate) * up
