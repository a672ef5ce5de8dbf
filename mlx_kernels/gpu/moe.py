"""Mixture of experts with dense weights: device mlx-cpu, and types without a kernel on a GPU."""

from collections.abc import Sequence
from dataclasses import dataclass

import mlx.core as mx

from mlx_kernels.blocks import PackedMatrix, check_matrix
from mlx_kernels.errors import TensorError
from mlx_kernels.gpu.dense_linear import dense_linear, dense_matrix
from mlx_kernels.gpu.swiglu import swiglu


@dataclass(frozen=True, slots=True)
class DenseExperts:
    """The weights of one layer's E experts, decoded (see ``dense_matrix``)."""

    gate: mx.array  # [E, F, C]
    up: mx.array  # [E, F, C]
    down: mx.array  # [E, C, F]


def check_experts(
    gate: PackedMatrix, up: PackedMatrix, down: PackedMatrix, n_experts: int
) -> tuple[int, int]:
    """Check that three matrices are the experts of one layer, and return C and F.

    Raises:
        TensorError: a matrix is not what it says, or the shapes do not belong together.
    """
    if n_experts < 1:
        raise TensorError(f"{n_experts} experts, expected at least 1")
    for part in (gate, up, down):
        check_matrix(part)
    n_in, n_hidden = gate.shape[1], down.shape[1]
    expected = {
        "gate": (gate, (n_experts * n_hidden, n_in)),
        "up": (up, (n_experts * n_hidden, n_in)),
        "down": (down, (n_experts * n_in, n_hidden)),
    }
    for name, (part, shape) in expected.items():
        if tuple(part.shape) != shape:
            raise TensorError(
                f"{part.name or name + ' of the experts'} has shape {list(part.shape)}, "
                f"expected {list(shape)} for {n_experts} experts"
            )
    if gate.type_id != up.type_id:
        raise TensorError(
            f"{gate.name or 'gate'} and {up.name or 'up'} of the experts differ in type, "
            "expected one type for both"
        )
    return n_in, n_hidden


def check_choice(x: mx.array, n_in: int, expert_ids: mx.array, expert_weights: mx.array) -> None:
    """Check the shapes and dtypes of the arguments of ``moe``; ids are not looked at.

    Raises:
        TensorError: one of them is wrong.
    """
    if x.ndim != 2 or x.shape[0] < 1 or x.shape[1] != n_in or x.dtype != mx.float32:
        raise TensorError(
            f"activations of the experts are {x.dtype} {list(x.shape)}, "
            f"expected float32 [T, {n_in}]"
        )
    for name, array, dtype in (
        ("expert ids", expert_ids, mx.int32),
        ("expert weights", expert_weights, mx.float32),
    ):
        if array.ndim != 2 or array.shape[0] != x.shape[0] or array.dtype != dtype:
            raise TensorError(
                f"{name} are {array.dtype} {list(array.shape)}, expected {dtype} [{len(x)}, K]"
            )
    if expert_ids.shape != expert_weights.shape:
        raise TensorError(
            f"expert ids {list(expert_ids.shape)} and weights {list(expert_weights.shape)} "
            "differ in shape, expected the same"
        )


def dense_experts(parts: Sequence[PackedMatrix], n_experts: int, is_half: bool) -> DenseExperts:
    """Decode gate, up and down, checked before, to one matrix an expert."""
    return DenseExperts(
        *(dense_matrix([part], is_half).reshape(n_experts, -1, part.shape[1]) for part in parts)
    )


def dense_moe(
    x: mx.array,
    experts: DenseExperts,
    expert_ids: mx.array,
    expert_weights: mx.array,
    clamp: float | None = None,
) -> mx.array:
    """Weighted sum of the chosen experts' outputs; see ``Ops.moe``.

    Position by position, since the ids are not known when the graph is made: each takes copies of
    its own K experts' weights.
    """
    check_choice(x, experts.gate.shape[2], expert_ids, expert_weights)
    rows = []
    for t in range(len(x)):
        chosen = expert_ids[t]
        both = mx.concatenate([experts.gate[chosen], experts.up[chosen]], axis=1)  # [K, 2 F, C]
        n_chosen, n_both, n_in = both.shape
        gate_up = dense_linear(x[t : t + 1], both.reshape(-1, n_in)).reshape(n_chosen, n_both)
        hidden = swiglu(gate_up, clamp) * expert_weights[t][:, None]  # [K, F]
        down = mx.swapaxes(experts.down[chosen], 1, 2)  # [K, F, C]
        rows.append(dense_linear(hidden.reshape(1, -1), down.reshape(-1, n_in).T))
    return mx.concatenate(rows)
