"""Mixture of experts: each position asks its chosen feed-forward networks and adds them up."""

from dataclasses import dataclass

import numpy as np

from mlx_kernels.blocks import BLOCK, PackedMatrix, dequantize
from mlx_kernels.cpu.linear import touch
from mlx_kernels.cpu.swiglu import swiglu
from mlx_kernels.errors import TensorError


@dataclass(frozen=True, slots=True)
class CpuExperts:
    """The packed matrices of one layer; expert e is the contiguous slice e of each."""

    gate: PackedMatrix  # [E * F, C]
    up: PackedMatrix  # [E * F, C]
    down: PackedMatrix  # [E * C, F]
    n_experts: int

    @property
    def n_in(self) -> int:
        """C, the channels of a position."""
        return self.gate.shape[1]

    @property
    def n_hidden(self) -> int:
        """F, the width of an expert."""
        return self.down.shape[1]


def experts(gate: PackedMatrix, up: PackedMatrix, down: PackedMatrix, n_experts: int) -> CpuExperts:
    """Take over the experts of one layer, packed as they lie in the file.

    Raises:
        TensorError: the shapes do not belong together, or bytes are missing.
    """
    n_in, n_hidden = gate.shape[1], down.shape[1]
    expected = {
        "gate": (gate, (n_experts * n_hidden, n_in)),
        "up": (up, (n_experts * n_hidden, n_in)),
        "down": (down, (n_experts * n_in, n_hidden)),
    }
    if n_experts < 1:
        raise TensorError(f"{n_experts} experts, expected at least 1")
    for name, (part, shape) in expected.items():
        if part.shape != shape:
            raise TensorError(
                f"the experts' {name} has shape {list(part.shape)}, "
                f"expected {list(shape)} for {n_experts} experts"
            )
        block = BLOCK[part.type_id]
        n_bytes = shape[0] * (shape[1] // block.n_values) * block.n_bytes
        if shape[1] % block.n_values or part.raw.size != n_bytes:
            raise TensorError(
                f"the experts' {name} lies in {part.raw.size} bytes, expected {n_bytes} of "
                f"{block.name}"
            )
    for part, _ in expected.values():
        touch(part.raw)
    return CpuExperts(gate, up, down, n_experts)


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
        raise TensorError("activations of the experts hold NaN or infinity")
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


def _slice(part: PackedMatrix, expert: int, n_experts: int) -> np.ndarray:
    """Decode one expert's matrix."""
    n_rows, width = part.shape[0] // n_experts, part.shape[1]
    raw = part.raw.reshape(n_experts, -1)[expert]
    return dequantize(part.type_id, raw, (n_rows, width))
