"""Normalisation by the root mean square."""

import numpy as np


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    """Divide x [..., N] by the root of its mean square (plus eps), times weight [N]."""
    mean_square = np.einsum("...i,...i->...", x, x)[..., None] / np.float32(x.shape[-1])
    normed = x / np.sqrt(mean_square + np.float32(eps))
    normed *= weight
    return normed
