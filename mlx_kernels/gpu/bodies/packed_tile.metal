// Products of 64 packed weight rows with 32 positions, 32 columns at a time, by four simdgroups. Both
// sides are float32 in threadgroup memory. Which 32 columns come together doesn't matter for a sum
// over all, so they are taken in the order in which the format stores them.
//
// weights_tile [64 rows][36], x_tile [32 columns][36]: 4 more than needed, against bank conflicts.

enum { TILE_ROWS = 64, TILE_POSITIONS = 32, TILE_STRIDE = 36 };

struct TileSums {
  simdgroup_float8x8 m[4][2];  // of 32 rows and 16 positions
};

inline void clear(thread TileSums& sums) {
  for (uint i = 0u; i < 4u; i++) {
    for (uint j = 0u; j < 2u; j++) {
      sums.m[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    }
  }
}

// Thread i of 128 unpacks one of the two runs of 16 columns for row i / 2 of the tile.
template <typename F>
inline void unpack_weights(Planes w, uint64_t row, uint n_columns, uint first_run, uint i,
                           const threadgroup uint* words, threadgroup float* weights_tile) {
  const uint run = first_run + (i & 1u);
  Chunk k;
  k.w0 = float4(0.0f);
  k.w1 = k.w0;
  k.w2 = k.w0;
  k.w3 = k.w0;
  k.scale = 0.0f;
  k.offset = 0.0f;
  if (run < n_columns / 16u) {
    const uint step = run / uint(F::CHUNKS);
    k = F::chunk(F::load(w, row, n_columns, step), step, run % uint(F::CHUNKS), words);
  }
  threadgroup float4* to =
      (threadgroup float4*)(weights_tile + (i / 2u) * uint(TILE_STRIDE) + 16u * (i & 1u));
  to[0] = k.w0 * k.scale - k.offset;
  to[1] = k.w1 * k.scale - k.offset;
  to[2] = k.w2 * k.scale - k.offset;
  to[3] = k.w3 * k.scale - k.offset;
}

// Thread i of 128 brings 4 columns of each of the two runs, for position i % 32; row_x is its row.
template <typename F>
inline void place_x(const device float* row_x, uint n_columns, uint first_run, uint i,
                    threadgroup float* x_tile) {
  for (uint h = 0u; h < 2u; h++) {
    const uint run = first_run + h;
    const uint first = 4u * (i / 32u);
    float4 v = float4(0.0f);
    if (run < n_columns / 16u) {
      const uint column = F::column(run / uint(F::CHUNKS), run % uint(F::CHUNKS)) + first;
      v = *(const device float4*)(row_x + column);
    }
    threadgroup float* to = x_tile + (16u * h + first) * uint(TILE_STRIDE) + (i & 31u);
    to[0] = v.x;
    to[TILE_STRIDE] = v.y;
    to[2 * TILE_STRIDE] = v.z;
    to[3 * TILE_STRIDE] = v.w;
  }
}

// Simdgroup s of four: rows 32 (s / 2) to + 31, positions 16 (s % 2) to + 15.
inline void multiply(const threadgroup float* weights_tile, const threadgroup float* x_tile, uint s,
                     thread TileSums& sums) {
  for (uint k = 0u; k < 32u; k += 8u) {
    simdgroup_float8x8 left[4];
    simdgroup_float8x8 right[2];
    for (uint i = 0u; i < 4u; i++) {
      simdgroup_load(left[i], weights_tile + (32u * (s / 2u) + 8u * i) * uint(TILE_STRIDE) + k,
                     TILE_STRIDE);
    }
    for (uint j = 0u; j < 2u; j++) {
      simdgroup_load(right[j], x_tile + k * uint(TILE_STRIDE) + 16u * (s % 2u) + 8u * j,
                     TILE_STRIDE);
    }
    for (uint i = 0u; i < 4u; i++) {
      for (uint j = 0u; j < 2u; j++) {
        simdgroup_multiply_accumulate(sums.m[i][j], left[i], right[j], sums.m[i][j]);
      }
    }
  }
}

// The sums to threadgroup memory: [64 rows][36], a position a column.
inline void store(thread const TileSums& sums, uint s, threadgroup float* tile) {
  for (uint i = 0u; i < 4u; i++) {
    for (uint j = 0u; j < 2u; j++) {
      simdgroup_store(sums.m[i][j],
                      tile + (32u * (s / 2u) + 8u * i) * uint(TILE_STRIDE) + 16u * (s % 2u) + 8u * j,
                      TILE_STRIDE);
    }
  }
}
