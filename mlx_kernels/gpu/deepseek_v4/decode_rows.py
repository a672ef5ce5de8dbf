"""Matrices of a decode launch: rows of Q8_0 and rows of float16 that read one input."""

from typing import NamedTuple

import mlx.core as mx

from mlx_kernels.gpu.deepseek_v4.decode_constants import integers, nothing
from mlx_kernels.gpu.planar_weight import PlanarWeight

# Simdgroups that are on an H100 or H200 at a time, of up to 64 registers a lane: 32 for each of its
# 132 multiprocessors.
_MAX_SIMDGROUPS = 32 * 132
_HALF_BYTES, _BYTE_BYTES = 2.0, 34 / 32  # of a value


class Way(NamedTuple):
    """How the rows of a launch are done.

    Attributes:
        simdgroups: Of a group.
        at_once: Rows that a simdgroup takes at a time.
        in_flight: 16-byte loads of each, even.
    """

    simdgroups: int
    at_once: int
    in_flight: int

    def template(self, n_columns: int, n_parts: int = 1) -> dict[str, int]:
        """The values of the kernels' templates; see ``rows_of``."""
        sizes = {"N_COLUMNS": n_columns // n_parts, "PARTS": n_parts, "SIMDS": self.simdgroups}
        return {**sizes, "RW": self.at_once, "UN": self.in_flight}


class Rows(NamedTuple):
    """What a launch of ``v4_rows`` is given, and how many groups it has.

    Attributes:
        inputs: quants, factors, halves, sizes.
        n_rows: Of both kinds.
        n_groups: Groups that do rows.
    """

    inputs: tuple[mx.array, mx.array, mx.array, mx.array]
    n_rows: int
    n_groups: int


def rows_of(
    packed: PlanarWeight | None,
    halves: mx.array | None,
    way: Way,
    *,
    part_rows: int = 0,
    n_parts: int = 1,
    n_partials: int = 0,
    max_groups: int = 0,
) -> Rows:
    """Divide the rows among groups by their bytes.

    Args:
        packed: [R, C] of Q8_0.
        halves: [R, C] float16, behind it.
        way: of the launch.
        part_rows: rows that read a part of the input of their own, 0 for all; a group stays within
            them, and they are a multiple of its least rows.
        n_parts: into which ``packed`` is cut by columns, so that less of the input has to be staged
            at a time: the launch gives n_parts times R results, whose sum by parts is the product.
        n_partials: of a hyper-connection's products, which a staging sums.
        max_groups: more only where parts ask for it; 0: as many as there is room for.
    """
    n8 = 0 if packed is None else n_parts * packed.shape[0]
    if n_parts > 1:
        part_rows = n8 // n_parts
    n16 = 0 if halves is None else halves.shape[0]
    total = n8 * _BYTE_BYTES + n16 * _HALF_BYTES
    least = way.simdgroups * way.at_once
    max_groups = max_groups or _MAX_SIMDGROUPS // way.simdgroups

    def divided(n_rows: int, share: float) -> tuple[int, int]:
        if not n_rows:
            return 0, least
        groups = max(1, round(max_groups * share))
        rows = -(-n_rows // (groups * least)) * least
        while part_rows and part_rows % rows:
            rows -= least
        return -(-n_rows // rows), rows

    groups8, rows8 = divided(n8, n8 * _BYTE_BYTES / total)
    groups16, rows16 = divided(n16, n16 * _HALF_BYTES / total)
    none = nothing(mx.uint8)
    planes = (none, none) if packed is None else (packed.planes[0], packed.planes[3])
    inputs = (
        *planes,
        nothing(mx.float16) if halves is None else halves,
        integers(n8, n16, groups8, rows8, rows16, part_rows or n_partials),
    )
    return Rows(inputs, n8 + n16, groups8 + groups16)
