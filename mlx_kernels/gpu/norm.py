"""Root-mean-square norm: MLX's own."""

import mlx.core as mx


def rms_norm(x: mx.array, weight: mx.array, eps: float) -> mx.array:
    """Divide x [..., N] by the root of its mean square (plus eps), times weight [N]."""
    return mx.fast.rms_norm(x, weight, eps)
