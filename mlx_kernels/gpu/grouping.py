"""Choices of experts put in the order of experts and cut into tiles, all on the device.

No shape depends on the choices: the list of tiles is as long as the worst case needs, and what is
left over has no rows.
"""

from dataclasses import dataclass

import mlx.core as mx


@dataclass(frozen=True, slots=True)
class Groups:
    """T positions' choices of K experts each, expert by expert, an expert's in rising order."""

    order: mx.array  # [T K] int32: the choice, t K + k, at each place
    tiles: mx.array  # [n, 3] int32: expert, first place, number of places (0: no tile)
    n_experts: int
    tile_rows: int  # the most places of a tile


def grouped(expert_ids: mx.array, n_experts: int, tile_rows: int) -> Groups:
    """Group expert ids [T, K] int32; they must be from 0 to ``n_experts`` - 1."""
    ids = expert_ids.reshape(-1)
    n = ids.shape[0]
    # MLX promises no order among equals when it sorts indices, so the keys are made to differ.
    keys = mx.sort(ids.astype(mx.int64) * n + mx.arange(n, dtype=mx.int64))
    order = (keys % n).astype(mx.int32)
    experts = mx.arange(n_experts, dtype=mx.int32)
    counts = (ids[None] == experts[:, None]).astype(mx.int32).sum(axis=1)  # [E]
    stops = mx.cumsum(counts)
    n_tiles = (counts + (tile_rows - 1)) // tile_rows
    last_tiles = mx.cumsum(n_tiles)
    n_most = n // tile_rows + min(n_experts, n)  # every expert may leave one tile unfilled
    tile = mx.arange(n_most, dtype=mx.int32)
    expert = (tile[:, None] >= last_tiles[None]).astype(mx.int32).sum(axis=1)  # E: left over
    e = mx.minimum(expert, n_experts - 1)
    first = (stops - counts)[e] + (tile - (last_tiles - n_tiles)[e]) * tile_rows
    rows = mx.where(expert < n_experts, mx.minimum(stops[e] - first, tile_rows), 0)
    first = mx.where(expert < n_experts, first, 0)
    return Groups(order, mx.stack([e, first, rows], axis=1), n_experts, tile_rows)
