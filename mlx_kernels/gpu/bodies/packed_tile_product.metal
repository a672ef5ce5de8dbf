// out[order[p], row] = sum over columns of weight[row, column] x[p, column], for 64 rows and a tile of
// up to 32 places p. With HAS_EXPERTS tiles holds the tile's expert, first place and number of places
// (0: nothing to do), and the weights are those of the expert. Without, the tiles follow each other,
// and order is not read. Template: HAS_EXPERTS. sizes: rows, columns, places.
threadgroup float weights_tile[TILE_ROWS * TILE_STRIDE];
threadgroup float x_tile[TILE_POSITIONS * TILE_STRIDE];
threadgroup uint words[Format::TABLE_WORDS + 1];
if (Format::TABLE_WORDS > 0) {
  Format::fill(table, words, thread_index_in_threadgroup, threads_per_threadgroup.x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
const uint n_rows = uint(sizes[0]);
const uint n_columns = uint(sizes[1]);
const uint i = thread_index_in_threadgroup;
const uint s = simdgroup_index_in_threadgroup;
const uint tile = threadgroup_position_in_grid.y;
const uint first_row = threadgroup_position_in_grid.x * uint(TILE_ROWS);
uint expert = 0u;
uint first_place = tile * uint(TILE_POSITIONS);
uint n_places = min(uint(sizes[2]) - first_place, uint(TILE_POSITIONS));
if (HAS_EXPERTS) {
  expert = uint(tiles[3u * tile]);
  first_place = uint(tiles[3u * tile + 1u]);
  n_places = uint(tiles[3u * tile + 2u]);
}
if (n_places > 0u) {
  Planes planes;
  planes.quants = quants;
  planes.high = high;
  planes.scales = scales;
  planes.factors = factors;
  // Rows and places past the last: the last again, and what comes of it is not stored.
  const uint64_t row =
      uint64_t(expert) * uint64_t(n_rows) + uint64_t(min(first_row + i / 2u, n_rows - 1u));
  const device float* row_x =
      x + uint64_t(first_place + min(i & 31u, n_places - 1u)) * uint64_t(n_columns);
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
  for (uint at = i; at < uint(TILE_ROWS * TILE_POSITIONS); at += 128u) {
    const uint r = at % uint(TILE_ROWS);
    const uint p = at / uint(TILE_ROWS);
    if (first_row + r < n_rows && p < n_places) {
      const uint to = HAS_EXPERTS ? uint(order[first_place + p]) : first_place + p;
      out[uint64_t(to) * uint64_t(n_rows) + uint64_t(first_row + r)] =
          weights_tile[r * uint(TILE_STRIDE) + p];
    }
  }
}
