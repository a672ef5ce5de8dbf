"""What a case of a Metal kernel is: one use of it, and what must come out."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import mlx.core as mx
import numpy as np


class Comparison(NamedTuple):
    """A result of kernels beside the right one."""

    result: mx.array
    expected: np.ndarray  # same shape; from a slow and obvious computation, float64 for sums
    bound: float | np.ndarray  # largest allowed |result - expected|, for all or by element


class Traffic(NamedTuple):
    """The bytes that a launch of a decode kernel can't do without.

    Every buffer is in one of the two. ``cached`` are those that all groups share and that stay in
    a cache: activations, tables, sizes. Weights and cached rows are never among them.
    """

    least: Mapping[str, int]  # buffer -> bytes; the sum over the launches of the case
    cached: tuple[str, ...] = ()


class Run(NamedTuple):
    """What came out of a case."""

    comparisons: Sequence[Comparison]
    traffic: Mapping[str, Traffic] = {}  # by the kernel's ``name`` as given to metal_kernel
    # Kernel -> outputs that are not written as a whole: stand-ins, room behind the last row.
    unwritten: Mapping[str, tuple[str, ...]] = {}


class Case(NamedTuple):
    """One use of kernels.

    ``run`` gets a stand-in for ``mx.fast.metal_kernel``, and a generator for its inputs. It goes
    through the project's own launching code, so that grids and template values are tested too.
    """

    name: str  # unique; the kernel first, then what is special
    run: Callable[[Callable[..., Any], np.random.Generator], Run]


def worst_share(comparison: Comparison) -> float:
    """Largest difference as a share of its bound: at most 1 is right. A NaN or a shape is inf."""
    result = comparison.result
    if result.dtype == mx.bfloat16:
        result = result.astype(mx.float32)
    got = np.array(result)
    if got.shape != comparison.expected.shape:
        return float("inf")
    if got.size == 0:
        return 0.0
    with np.errstate(all="ignore"):
        difference = np.abs(got.astype(np.float64) - comparison.expected.astype(np.float64))
        same = got.astype(np.float64) == comparison.expected  # infinities and a bound of 0
        shares = np.where(same, 0.0, difference / comparison.bound)
    return float(np.where(np.isnan(shares), np.inf, shares).max())


def random_for(name: str) -> np.random.Generator:
    """The generator of a case: the same inputs in every run and on every device."""
    return np.random.default_rng(list(name.encode()))
