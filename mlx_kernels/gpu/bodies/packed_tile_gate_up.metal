// out[p, row] = weights[c] * silu(gate[e] x[c / K]) * (up[e] x[c / K]) with c = order[p], for 32 rows of
// F and a tile of up to 32 places p of expert e; the 64 rows of the product are those of gate, then
// those of up. tiles holds the tile's expert, first place and number of places (0: nothing to do).
// With HAS_CLAMP the gate is cut above clamp first, and up on both sides.
// Template: K, HAS_CLAMP. sizes: F, columns.
threadgroup float weights_tile[TILE_ROWS * TILE_STRIDE];
threadgroup float x_tile[TILE_POSITIONS * TILE_STRIDE];
threadgroup uint words[Format::TABLE_WORDS + 1];
if (Format::TABLE_WORDS > 0) {
  Format::fill(table, words, thread_index_in_threadgroup, threads_per_threadgroup.x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
const uint n_hidden = uint(sizes[0]);
const uint n_columns = uint(sizes[1]);
const uint i = thread_index_in_threadgroup;
const uint s = simdgroup_index_in_threadgroup;
const uint tile = threadgroup_position_in_grid.y;
const uint first_row = threadgroup_position_in_grid.x * 32u;
const uint expert = uint(tiles[3u * tile]);
const uint first_place = uint(tiles[3u * tile + 1u]);
const uint n_places = uint(tiles[3u * tile + 2u]);
if (n_places > 0u) {
  const bool is_gate = i < 64u;
  Planes planes;
  planes.quants = is_gate ? gate_quants : up_quants;
  planes.high = is_gate ? gate_high : up_high;
  planes.scales = is_gate ? gate_scales : up_scales;
  planes.factors = is_gate ? gate_factors : up_factors;
  // Rows and places past the last: the last again, and what comes of it is not stored.
  const uint64_t row = uint64_t(expert) * uint64_t(n_hidden) +
                       uint64_t(min(first_row + (i & 63u) / 2u, n_hidden - 1u));
  const uint choice_of_x = uint(order[first_place + min(i & 31u, n_places - 1u)]);
  const device float* row_x = x + uint64_t(choice_of_x / uint(K)) * uint64_t(n_columns);
  TileSums sums;
  clear(sums);
  for (uint run = 0u; run < n_columns / 16u; run += 2u) {
    unpack_weights<Format>(planes, row, n_columns, run, i, words, weights_tile);
    place_x<Format>(row_x, n_columns, run, i, x_tile);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    multiply(weights_tile, x_tile, s, sums);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  store(sums, s, weights_tile);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint at = i; at < 32u * uint(TILE_POSITIONS); at += 128u) {
    const uint r = at % 32u;
    const uint p = at / 32u;
    if (first_row + r < n_hidden && p < n_places) {
      float g = weights_tile[r * uint(TILE_STRIDE) + p];
      float u = weights_tile[(r + 32u) * uint(TILE_STRIDE) + p];
      if (HAS_CLAMP) {
        // Not min and max: they would hide a NaN.
        g = g > clamp[0] ? clamp[0] : g;
        u = u > clamp[0] ? clamp[0] : u < -clamp[0] ? -clamp[0] : u;
      }
      const float factor = weights[uint(order[first_place + p])];
      out[uint64_t(first_place + p) * uint64_t(n_hidden) + uint64_t(first_row + r)] =
          factor * (g / (1.0f + exp(-g))) * u;
    }
  }
}
