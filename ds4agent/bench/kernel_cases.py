"""What ``ds4-bench kernels`` times: one operation, one type, one shape, ready to be called.

A case is prepared in several copies, which calls use in turn, so that together they are larger
than caches: in a model a weight is read once a token, and comes from memory each time.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from math import ceil
from typing import Any

import numpy as np

from ds4agent.bench.random_weights import random_matrix
from mlx_kernels.blocks import BLOCK, PackedMatrix, dequantize
from mlx_kernels.ops import Ops, RopeSpec

_ROTATED_BYTES = 256 << 20  # of weights in all copies: several times the caches of CPUs and GPUs
_MAX_COPIES = 64
_EPS = 1e-6
_CLAMP = 10.0
_N_CHOICES = 64  # different choices of experts, used in turn

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Prepared:
    """Calls of one case that differ in what they read."""

    calls: tuple[Call, ...]
    n_bytes: float  # a call must move: packed weights, activations in, result out
    n_flops: float  # of a call
    out_bytes: int  # of a call's result


@dataclass(frozen=True, slots=True)
class Case:
    """One line of the table.

    ``shape`` is [out, in] of linear, embedding and dequantize; [experts, used, C, F] of moe;
    [H, Hkv, D, rows] of attention; [H, D] of rope; the width of rms_norm and swiglu.
    """

    op: str
    tensor: str
    types: tuple[int, ...]  # of the weights; moe: gate and up, down. Empty without weights
    shape: tuple[int, ...]
    n_positions: int

    @property
    def type_name(self) -> str:
        """The types for people: "Q4_K", "IQ2_XXS/Q2_K", "-"."""
        return "/".join(BLOCK[type_id].name for type_id in self.types) or "-"

    def prepare(self, ops: Ops, random: np.random.Generator) -> Prepared:
        """Make weights and activations on the device."""
        return _PREPARE[self.op](self, ops, random)


def _activations(case: Case, width: int, ops: Ops, random: np.random.Generator) -> Any:
    return ops.vector(random.standard_normal((case.n_positions, width), np.float32))


def _copies(case: Case, random: np.random.Generator) -> list[PackedMatrix]:
    """The case's matrix, several times in memory of its own."""
    n_rows, n_columns = case.shape
    first = random_matrix(case.types[0], (n_rows, n_columns), random, case.tensor)
    n_copies = min(_MAX_COPIES, ceil(_ROTATED_BYTES / first.raw.size))
    copies = [
        PackedMatrix(first.type_id, first.raw.copy(), first.shape, case.tensor)
        for _ in range(n_copies - 1)
    ]
    return [first, *copies]


def _linear(case: Case, ops: Ops, random: np.random.Generator) -> Prepared:
    n_out, n_in = case.shape
    matrices = _copies(case, random)
    weights = [ops.matrix([matrix]) for matrix in matrices]
    x = _activations(case, n_in, ops, random)
    out_bytes = 4 * case.n_positions * n_out
    return Prepared(
        tuple(lambda weight=weight: ops.linear(x, weight) for weight in weights),
        matrices[0].raw.size + 4 * case.n_positions * n_in + out_bytes,
        2.0 * case.n_positions * n_out * n_in,
        out_bytes,
    )


def _moe(case: Case, ops: Ops, random: np.random.Generator) -> Prepared:
    n_experts, n_used, width, hidden = case.shape
    gate, up, down = (
        random_matrix(type_id, (n_experts * rows, columns), random, f"{case.tensor}.{name}")
        for type_id, rows, columns, name in (
            (case.types[0], hidden, width, "gate"),
            (case.types[0], hidden, width, "up"),
            (case.types[-1], width, hidden, "down"),
        )
    )
    experts = ops.experts(gate, up, down, n_experts)
    x = _activations(case, width, ops, random)
    shape = (_N_CHOICES, case.n_positions, n_experts)
    ids = random.random(shape).argsort(axis=2)[:, :, :n_used].astype(np.int32)
    weights = ops.vector(np.full((case.n_positions, n_used), 1 / n_used, np.float32))
    choices = [ops.vector(np.ascontiguousarray(each)) for each in ids]
    n_read = np.mean([len(np.unique(each)) for each in ids])
    expert_bytes = (gate.raw.size + up.raw.size + down.raw.size) / n_experts
    out_bytes = 4 * case.n_positions * width
    return Prepared(
        tuple(lambda each=each: ops.moe(x, experts, each, weights, _CLAMP) for each in choices),
        float(n_read * expert_bytes + 2 * out_bytes),
        6.0 * case.n_positions * n_used * width * hidden,
        out_bytes,
    )


def _embedding(case: Case, ops: Ops, random: np.random.Generator) -> Prepared:
    n_rows, width = case.shape
    table = random_matrix(case.types[0], (n_rows, width), random, case.tensor)
    ids = random.integers(0, n_rows, (_N_CHOICES, case.n_positions)).astype(np.int32)
    out_bytes = 4 * case.n_positions * width
    return Prepared(
        tuple(lambda each=each: ops.embedding(table, each) for each in ids),
        case.n_positions * table.raw.size / n_rows + out_bytes,
        float(case.n_positions * width),
        out_bytes,
    )


def _dequantize(case: Case, ops: Ops, random: np.random.Generator) -> Prepared:
    """Decoding by NumPy, which all devices share: no device computes here."""
    matrices = _copies(case, random)
    n_values = case.shape[0] * case.shape[1]
    out = np.empty(case.shape, np.float32)
    return Prepared(
        tuple(lambda each=each: dequantize(each.type_id, each.raw, each.shape, out)
              for each in matrices),
        matrices[0].raw.size + 4 * n_values,
        float(n_values),
        0,
    )  # fmt: skip


def _attention(case: Case, ops: Ops, random: np.random.Generator) -> Prepared:
    n_heads, n_kv_heads, dim, n_rows = case.shape
    row_values = n_kv_heads * dim
    n_bytes = 2 * n_rows * row_values * ops.kv_value_bytes
    rows = ops.vector(random.standard_normal((n_rows, n_kv_heads, dim), np.float32))
    buffers = []
    for _ in range(min(_MAX_COPIES, ceil(_ROTATED_BYTES / n_bytes))):
        buffers.append(ops.kv_buffer(n_kv_heads, dim, n_rows))
        buffers[-1].append(rows, rows)
        buffers[-1].read()  # evaluated before the clock runs
    shape = (case.n_positions, n_heads, dim)
    queries = ops.vector(random.standard_normal(shape, np.float32))
    out_bytes = 4 * case.n_positions * n_heads * dim
    return Prepared(
        tuple(lambda each=each: ops.attention(queries, each) for each in buffers),
        n_bytes + 2 * out_bytes,
        4.0 * case.n_positions * n_heads * n_rows * dim,
        out_bytes,
    )


def _small(case: Case, ops: Ops, random: np.random.Generator) -> Prepared:
    """Operations on activations alone, which stay in caches in a model too."""
    shape = (case.n_positions, *case.shape)
    n_values = case.n_positions * int(np.prod(case.shape))
    x = ops.vector(random.standard_normal(shape, np.float32))
    n_out = n_values
    match case.op:
        case "rms_norm":
            norm = ops.vector(np.ones(case.shape[-1], np.float32))
            calls, flops = (lambda: ops.rms_norm(x, norm, _EPS),), 4  # square, sum, two products
        case "swiglu":
            n_out = n_values // 2
            calls, flops = (lambda: ops.swiglu(x, _CLAMP),), 2.5  # five for two inputs
        case _:
            frequencies = 10000.0 ** (-np.arange(0, case.shape[-1], 2) / case.shape[-1])
            spec, position = RopeSpec(frequencies, True), count()
            # Another position each time: turns may be kept for those asked for last.
            calls, flops = (lambda: ops.rope(x, next(position), spec),), 3  # six for a pair
    return Prepared(calls, 4 * (n_values + n_out), float(flops * n_values), 4 * n_out)


_PREPARE = {
    "linear": _linear,
    "moe": _moe,
    "embedding": _embedding,
    "dequantize": _dequantize,
    "attention": _attention,
    "rms_norm": _small,
    "swiglu": _small,
    "rope": _small,
}
OPERATIONS = tuple(_PREPARE)
