"""Products of activations with weights."""

import numpy as np

from mlx_kernels.reference.rms_norm import rms_norm
from mlx_kernels.reference.swiglu import swiglu


def linear(
    x: np.ndarray,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
    residual: np.ndarray | None = None,
) -> np.ndarray:
    """[T, in] times [out, in] transposed, plus [out] and [T, out] -> [T, out]."""
    product = np.zeros((len(x), len(weight)))
    for t, row in enumerate(x.astype(np.float64)):
        for o, column in enumerate(weight.astype(np.float64)):
            product[t, o] = (row * column).sum() + (0.0 if bias is None else bias[o])
    return product if residual is None else product + residual


def normed_linear(
    x: np.ndarray,
    norm: np.ndarray,
    eps: float,
    weight: np.ndarray,
    bias: np.ndarray | None = None,
) -> np.ndarray:
    """The product of the normalised input."""
    return linear(rms_norm(x, norm, eps), weight, bias)


def gated_linear(
    x: np.ndarray, norm: np.ndarray, eps: float, gate_up: np.ndarray, clamp: float | None = None
) -> np.ndarray:
    """swiglu of the product of the normalised input."""
    return swiglu(normed_linear(x, norm, eps, gate_up), clamp)
