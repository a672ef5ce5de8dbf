"""A matrix whose groups of rows read different parts of the input: whole, and group by group."""

from dataclasses import dataclass
from typing import Any

from mlx_kernels.gpu.planar_linear import StackedWeight
from mlx_kernels.gpu.planar_weight import PlanarWeight


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """[G Ro, in / G] for one launch, and its groups [Ro, in / G] in the same memory."""

    whole: StackedWeight
    groups: tuple[Any, ...]


def grouped_weight(whole: StackedWeight, n_groups: int) -> GroupedWeight:
    """Cut a matrix of one part into groups of rows."""
    (part,) = whole.parts
    n_rows, width = whole.shape[0] // n_groups, whole.shape[1]
    groups = []
    for start in range(0, whole.shape[0], n_rows):
        if isinstance(part, PlanarWeight):
            own = part.rows(start, start + n_rows).evaluated()
        else:
            own = part[start : start + n_rows]
        groups.append(StackedWeight((n_rows, width), (own,), None))
    return GroupedWeight(whole, tuple(groups))


def groups_of(weight: GroupedWeight | list[Any]) -> tuple[Any, ...] | list[Any]:
    """The matrix of each group."""
    return weight.groups if isinstance(weight, GroupedWeight) else weight
