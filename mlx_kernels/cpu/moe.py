"""Mixture of experts: each position asks its chosen feed-forward networks and adds them up.

With the compiled kernels the chosen experts' blocks are read where they lie in the mapped file. One
position multiplies the gates and ups of all its experts in one call, as a stack of matrices; many
positions are grouped by expert. The rule of ``native`` holds: up to 16 positions of an expert round
activations to 8 bits, more are exact.
"""

from dataclasses import dataclass

import numpy as np

from mlx_kernels.blocks import PackedMatrix, check_matrix, dequantize
from mlx_kernels.cpu import native
from mlx_kernels.cpu.linear import touch
from mlx_kernels.cpu.native_library import MAX_MATRICES
from mlx_kernels.cpu.swiglu import swiglu
from mlx_kernels.errors import TensorError


@dataclass(frozen=True, slots=True)
class CpuExperts:
    """The packed matrices of one layer; expert e is the contiguous slice e of each."""

    gate: PackedMatrix  # [E * F, C]
    up: PackedMatrix  # [E * F, C]
    down: PackedMatrix  # [E * C, F]
    n_experts: int
    is_native: bool = False  # by the compiled kernels, which know the types of all three

    @property
    def n_in(self) -> int:
        """C, the channels of a position."""
        return self.gate.shape[1]

    @property
    def n_hidden(self) -> int:
        """F, the width of an expert."""
        return self.down.shape[1]


def experts(
    gate: PackedMatrix,
    up: PackedMatrix,
    down: PackedMatrix,
    n_experts: int,
    is_native: bool | None = None,
) -> CpuExperts:
    """Take over the experts of one layer, packed as they lie in the file.

    Args:
        gate: [E * F, C].
        up: [E * F, C].
        down: [E * C, F].
        n_experts: E.
        is_native: Use the compiled kernels; None: where they are installed.

    Raises:
        TensorError: the shapes do not belong together, or a matrix is not what it says.
    """
    if n_experts < 1:
        raise TensorError(f"{n_experts} experts, expected at least 1")
    parts = (gate, up, down)
    for part in parts:
        check_matrix(part)
    n_in, n_hidden = gate.shape[1], down.shape[1]
    inner, outer = (n_experts * n_hidden, n_in), (n_experts * n_in, n_hidden)
    for part, role, shape in zip(parts, ("gate", "up", "down"), (inner, inner, outer), strict=True):
        if part.shape != shape:
            raise TensorError(
                f"{part.name or f'the {role} of the experts'} has shape {list(part.shape)}, "
                f"expected {list(shape)} for {n_experts} experts"
            )
        touch(part.raw)
    wanted = native.is_available() if is_native is None else is_native
    known = all(native.can_multiply(part.type_id, part.shape[1]) for part in parts)
    return CpuExperts(gate, up, down, n_experts, wanted and known)


def moe(
    x: np.ndarray,
    experts: CpuExperts,
    expert_ids: np.ndarray,
    expert_weights: np.ndarray,
    clamp: float | None = None,
) -> np.ndarray:
    """Weighted sum of the chosen experts' outputs; see ``Ops.moe``.

    Grouped by expert, so that each chosen one is decoded once.

    Raises:
        TensorError: a shape, a dtype or an id is wrong, or activations are not finite.
    """
    check_choice(x, experts, expert_ids, expert_weights)
    if not np.isfinite(x).all():
        name = experts.gate.name or "the gate of the experts"
        raise TensorError(f"activations of {name} hold NaN or infinity, expected finite numbers")
    if experts.is_native:
        if len(x) == 1 and 0 < 2 * expert_ids.size <= MAX_MATRICES:
            return _one_position(x, experts, expert_ids[0], expert_weights[0], clamp)
        return _by_expert(x, experts, expert_ids, expert_weights, clamp)
    out = np.zeros(x.shape, np.float32)
    for expert in np.unique(expert_ids):
        position, slot = np.nonzero(expert_ids == expert)
        both = [_slice(part, expert, experts.n_experts) for part in (experts.gate, experts.up)]
        hidden = swiglu(x[position] @ np.concatenate(both).T, clamp)
        hidden *= expert_weights[position, slot][:, None]
        down = _slice(experts.down, expert, experts.n_experts)
        np.add.at(out, position, hidden @ down.T)
    return out


def check_choice(
    x: np.ndarray, experts: CpuExperts, expert_ids: np.ndarray, expert_weights: np.ndarray
) -> None:
    """Check the arguments of ``moe``.

    Raises:
        TensorError: a shape, a dtype or an id is wrong.
    """
    if x.ndim != 2 or x.shape[1] != experts.n_in or x.dtype != np.float32:
        raise TensorError(
            f"activations of the experts are {x.dtype} {list(x.shape)}, "
            f"expected float32 [T, {experts.n_in}]"
        )
    for name, array, dtype in (
        ("expert ids", expert_ids, np.int32),
        ("expert weights", expert_weights, np.float32),
    ):
        if array.ndim != 2 or len(array) != len(x) or array.dtype != dtype:
            raise TensorError(
                f"{name} are {array.dtype} {list(array.shape)}, "
                f"expected {np.dtype(dtype)} [{len(x)}, K]"
            )
    if expert_ids.shape != expert_weights.shape:
        raise TensorError(
            f"expert ids {list(expert_ids.shape)} and weights {list(expert_weights.shape)} "
            "differ in shape, expected the same"
        )
    if expert_ids.size and not (0 <= expert_ids.min() <= expert_ids.max() < experts.n_experts):
        raise TensorError(
            f"expert ids run from {expert_ids.min()} to {expert_ids.max()}, "
            f"expected 0 to {experts.n_experts - 1}"
        )


def _one_position(
    x: np.ndarray,
    experts: CpuExperts,
    expert_ids: np.ndarray,
    expert_weights: np.ndarray,
    clamp: float | None,
) -> np.ndarray:
    """x [1, C], ids [K] -> [1, C]: every gate and up in one product, then each down."""
    chosen = [int(expert) for expert in expert_ids]
    stack = native.StackedWeight(
        [_packed(part, e, experts) for e in chosen for part in (experts.gate, experts.up)]
    )
    both = native.linear(x, stack).reshape(len(chosen), 2 * experts.n_hidden)
    hidden = swiglu(both, clamp)
    hidden *= expert_weights[:, None]
    out = None
    for k, expert in enumerate(chosen):
        down = native.StackedWeight([_packed(experts.down, expert, experts)])
        out = native.linear(hidden[k : k + 1], down, residual=out)
    assert out is not None
    return out


def _by_expert(
    x: np.ndarray,
    experts: CpuExperts,
    expert_ids: np.ndarray,
    expert_weights: np.ndarray,
    clamp: float | None,
) -> np.ndarray:
    """x [T, C], ids [T, K] -> [T, C]: each chosen expert takes all its positions at once."""
    out = np.zeros(x.shape, np.float32)
    for expert in np.unique(expert_ids):
        position, slot = np.nonzero(expert_ids == expert)
        e = int(expert)
        stack = [_packed(experts.gate, e, experts), _packed(experts.up, e, experts)]
        hidden = swiglu(native.linear(x[position], native.StackedWeight(stack)), clamp)
        hidden *= expert_weights[position, slot][:, None]
        down = native.StackedWeight([_packed(experts.down, e, experts)])
        # a position may name an expert twice
        np.add.at(out, position, native.linear(hidden, down))
    return out


def _packed(part: PackedMatrix, expert: int, experts: CpuExperts) -> PackedMatrix:
    """One expert's matrix, a view."""
    n_rows, width = part.shape[0] // experts.n_experts, part.shape[1]
    raw = part.raw.reshape(experts.n_experts, -1)[expert]
    return PackedMatrix(part.type_id, raw, (n_rows, width), part.name)


def _slice(part: PackedMatrix, expert: int, n_experts: int) -> np.ndarray:
    """Decode one expert's matrix."""
    n_rows, width = part.shape[0] // n_experts, part.shape[1]
    raw = part.raw.reshape(n_experts, -1)[expert]
    return dequantize(part.type_id, raw, (n_rows, width))
