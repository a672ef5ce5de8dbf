// Tiled product of packed weights and rows of halves on tensor cores.
//
// A block multiplies WARPS x 32 weight rows with up to 8 * NT rows of x. Each warp unpacks its own
// weights from device memory to registers, once, in the layout of the A operand; the rows of x lie in
// shared memory in the order in which the B operand wants them, so a lane's load is 16 bytes for two
// products. Each result is one fixed sequence of sums over k: it depends on no other row of x, nor
// on how many there are.

template <int NT>
struct XStage {
  // Chunks of eight halves: step s, row, t. 16 bytes more per step spread the writes over the banks.
  static constexpr int STEP_BYTES = NT * 8 * 64 + 16;
  static constexpr int BYTES = 8 * STEP_BYTES;
  static __device__ __forceinline__ int at(int s, int row, int t) {
    return s * STEP_BYTES + row * 64 + t * 16;
  }
};

// Start copying 256 columns of n_rows rows of x. x_rows: row of x of each row of the tile.
template <class W, int NT, int THREADS>
__device__ __forceinline__ void
copy_x(uint8_t* stage, const __half* x, const int* x_rows, int n_rows, int n_columns, int unit) {
  for (int i = threadIdx.x; i < n_rows * 32; i += THREADS) {
    int t = (i >> 3) & 3, s = i & 7, row = i >> 5;
    // Neighbours in i are near neighbours in k for every order of k in use.
    int k = 256 * unit + W::k_offset(t, s);
    bool exists = k < n_columns;
    const __half* from = x + int64_t(x_rows[row]) * n_columns + (exists ? k : 0);
    copy_16_async(stage + XStage<NT>::at(s, row, t), from, exists);
  }
}

// Sums [2][NT][4] of this warp: rows row_a + g, + 8 of planes a, and row_b + g, + 8 of planes b, with
// the rows of x. last_row bounds the weight rows that are read.
template <class W, int NT, int WARPS>
__device__ __forceinline__ void tile_product(
    float (&sums)[2][NT][4], uint8_t* shared, const Planes& a, const Planes& b, int64_t row_a,
    int64_t row_b, int64_t last_row_a, int64_t last_row_b, float scale_a, float scale_b,
    const __half* x, const int* x_rows, int n_rows, int n_columns, const uint2* table) {
  constexpr int THREADS = 32 * WARPS;
  int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  int n_units = (n_columns + 255) / 256;
  int n_tiles = (n_rows + 7) / 8;
  int64_t rows[4] = {row_a + g, row_a + g + 8, row_b + g, row_b + g + 8};
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int64_t last = i < 2 ? last_row_a : last_row_b;
    rows[i] = rows[i] < last ? rows[i] : last;
  }
#pragma unroll
  for (int m = 0; m < 2; m++)
#pragma unroll
    for (int j = 0; j < NT; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) sums[m][j][i] = 0.0f;

  copy_x<W, NT, THREADS>(shared, x, x_rows, n_rows, n_columns, 0);
  copies_commit();
  typename W::Packed packed[4];
#pragma unroll
  for (int i = 0; i < 4; i++)
    packed[i] = W::load(i < 2 ? a : b, rows[i], n_columns, 0, t, i < 2 ? scale_a : scale_b);

  for (int unit = 0; unit < n_units; unit++) {
    copies_wait_all();
    __syncthreads();
    typename W::Packed next[4];
    if (unit + 1 < n_units) {
      copy_x<W, NT, THREADS>(shared + ((unit + 1) & 1) * XStage<NT>::BYTES, x, x_rows, n_rows,
                             n_columns, unit + 1);
      copies_commit();
#pragma unroll
      for (int i = 0; i < 4; i++)
        next[i] = W::load(i < 2 ? a : b, rows[i], n_columns, unit + 1, t, i < 2 ? scale_a : scale_b);
    }
    const uint8_t* stage = shared + (unit & 1) * XStage<NT>::BYTES;
#pragma unroll
    for (int s = 0; s < 8; s++) {
      uint32_t w[4][4];
#pragma unroll
      for (int i = 0; i < 4; i++) W::unpack(packed[i], s, table, w[i]);
#pragma unroll
      for (int j = 0; j < NT; j++) {
        if (j < n_tiles) {
          uint4 xs = *reinterpret_cast<const uint4*>(stage + XStage<NT>::at(s, j * 8 + g, t));
#pragma unroll
          for (int m = 0; m < 2; m++) {
            uint32_t* u = w[2 * m];
            uint32_t* v = w[2 * m + 1];
            mma_16x8x16(sums[m][j], u[0], v[0], u[1], v[1], xs.x, xs.y);
            mma_16x8x16(sums[m][j], u[2], v[2], u[3], v[3], xs.z, xs.w);
          }
        }
      }
    }
    if (unit + 1 < n_units) {
#pragma unroll
      for (int i = 0; i < 4; i++) packed[i] = next[i];
    }
  }
}

// Eight magnitudes of IQ2_XXS as bytes, from their levels in nibbles.
__device__ __forceinline__ uint2 magnitudes_of(uint32_t levels) {
  uint32_t words[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 8; i++) {
    uint32_t level = (levels >> (4 * i)) & 3u;
    words[i / 4] |= (level == 0 ? 8u : level == 1 ? 25u : 43u) << (8 * (i % 4));
  }
  return uint2{words[0], words[1]};
}

// Shared memory before the stages of x: the table of IQ2_XXS and the rows of x of this tile.
template <int NT>
struct Shared {
  static constexpr int TABLE = 0, ROWS = 2048, STAGES = 2048 + NT * 8 * 4;
  static constexpr int BYTES = STAGES + 2 * XStage<NT>::BYTES;
};

template <class W, int NT, int THREADS>
__device__ __forceinline__ void prepare_shared(
    uint8_t* shared, const uint32_t* table, const int* order, int first_row, int n_rows, int slots) {
  if (W::HAS_TABLE) {
    for (int i = threadIdx.x; i < 256; i += THREADS)
      reinterpret_cast<uint2*>(shared)[i] = magnitudes_of(table[i]);
  }
  int* x_rows = reinterpret_cast<int*>(shared + Shared<NT>::ROWS);
  for (int i = threadIdx.x; i < NT * 8; i += THREADS) {
    int row = first_row + (i < n_rows ? i : 0);
    x_rows[i] = order ? order[row] / slots : row;
  }
  __syncthreads();
}

// mid[r, f] = weight * silu(gate) * up for the rows r of one expert. grid: f tiles, row tiles.
template <class W, int NT, int WARPS>
__device__ __forceinline__ void grouped_gate_up(
    uint8_t* shared, const __half* x, const float* x_scales, const Planes& gate, const Planes& up,
    const uint32_t* table, const float* gate_scaling, const float* up_scaling, const int* order,
    const int* tiles, const float* expert_weights, float* mid, int n_columns, int width, int slots, float clamp) {
  constexpr int THREADS = 32 * WARPS;
  int expert = tiles[3 * blockIdx.y];
  int first_row = tiles[3 * blockIdx.y + 1];
  int n_rows = tiles[3 * blockIdx.y + 2];
  if (n_rows > 0) { // the same for the whole block
    prepare_shared<W, NT, THREADS>(shared, table, order, first_row, n_rows, slots);
    const int* x_rows = reinterpret_cast<const int*>(shared + Shared<NT>::ROWS);
    int warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    int f = (blockIdx.x * WARPS + warp) * 16;
    int64_t row = int64_t(expert) * width + f, last = int64_t(expert + 1) * width - 1;
    float sums[2][NT][4];
    tile_product<W, NT, WARPS>(sums, shared + Shared<NT>::STAGES, gate, up, row, row, last, last,
                               gate_scaling[0], up_scaling[0], x, x_rows, n_rows, n_columns,
                               reinterpret_cast<const uint2*>(shared));
#pragma unroll
    for (int j = 0; j < NT; j++) {
#pragma unroll
      for (int i = 0; i < 4; i++) {
        int r = j * 8 + 2 * t + (i & 1), f_at = f + g + 8 * (i >> 1);
        if (r < n_rows && f_at < width) {
          float x_scale = x_scales[x_rows[r]];
          float gate_at = fminf(sums[0][j][i] * (x_scale * gate_scaling[1]), clamp);
          float up_at = fminf(fmaxf(sums[1][j][i] * (x_scale * up_scaling[1]), -clamp), clamp);
          float weight = expert_weights[order[first_row + r]];
          mid[int64_t(first_row + r) * width + f_at] =
              weight * (gate_at / (1.0f + expf(-gate_at)) * up_at);
        }
      }
    }
  }
}

// out[order[r], c] = down mid[r], the rows r of one expert. grid: c tiles, row tiles.
// order null: out[r, c], as a matrix of one expert needs.
template <class W, int NT, int WARPS>
__device__ __forceinline__ void grouped_product(
    uint8_t* shared, const __half* x, const float* x_scales, const Planes& w, const uint32_t* table,
    const float* scaling, const int* order, const int* tiles, float* out, int n_total,
    int n_columns, int width) {
  constexpr int THREADS = 32 * WARPS;
  int expert = 0, first_row = blockIdx.y * 8 * NT, n_rows = n_total - first_row;
  if (n_rows > 8 * NT) n_rows = 8 * NT;
  if (tiles) {
    expert = tiles[3 * blockIdx.y];
    first_row = tiles[3 * blockIdx.y + 1];
    n_rows = tiles[3 * blockIdx.y + 2];
  }
  if (n_rows > 0) { // the same for the whole block
    prepare_shared<W, NT, THREADS>(shared, table, nullptr, first_row, n_rows, 1);
    const int* x_rows = reinterpret_cast<const int*>(shared + Shared<NT>::ROWS);
    int warp = threadIdx.x >> 5, g = (threadIdx.x & 31) >> 2, t = threadIdx.x & 3;
    int c = (blockIdx.x * WARPS + warp) * 32;
    int64_t row = int64_t(expert) * width + c, last = int64_t(expert + 1) * width - 1;
    float sums[2][NT][4];
    tile_product<W, NT, WARPS>(sums, shared + Shared<NT>::STAGES, w, w, row, row + 16, last, last,
                               scaling[0], scaling[0], x, x_rows, n_rows, n_columns,
                               reinterpret_cast<const uint2*>(shared));
#pragma unroll
    for (int j = 0; j < NT; j++) {
#pragma unroll
      for (int i = 0; i < 8; i++) {
        int r = j * 8 + 2 * t + (i & 1), c_at = c + g + 8 * ((i >> 1) & 1) + 16 * (i >> 2);
        if (r < n_rows && c_at < width) {
          int out_row = order ? order[first_row + r] : first_row + r;
          out[int64_t(out_row) * width + c_at] =
              sums[i >> 2][j][i & 3] * (x_scales[first_row + r] * scaling[1]);
        }
      }
    }
  }
}
