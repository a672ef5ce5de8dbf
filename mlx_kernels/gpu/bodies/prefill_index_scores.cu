// scores[t, c] = sum over heads of weights[t, h] max(0, queries[t, h] . rows[c]); -infinity for a row
// that the past of position t does not hold. A block takes 256 rows, 32 a warp in registers, and
// GROUP positions one after the other. queries [T, HEADS, 128], rows [N, 128] half.
// sizes: T, N, first position, tokens a row.
constexpr int ROW = 128 * 2 + 16; // bytes of a head in shared memory: rows start at different banks
constexpr int STAGE = HEADS * ROW;
extern __shared__ uint4 index_shared[];
uint8_t* stages = reinterpret_cast<uint8_t*>(index_shared);
float* shares = reinterpret_cast<float*>(stages + 2 * STAGE); // [2][HEADS]
const int n_positions = sizes[0], n_rows = sizes[1], ratio = sizes[3];
const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
const int first_row = blockIdx.x * 256 + threadIdx.x / 32 * 32;
const int start = blockIdx.y * GROUP, stop = start + GROUP < n_positions ? start + GROUP : n_positions;
const int last_count = (sizes[2] + stop) / ratio; // rows of the last position
if (int(blockIdx.x) * 256 >= last_count) { // the same for the whole block
  for (int i = start; i < stop; i++) {
    int row = blockIdx.x * 256 + threadIdx.x;
    if (row < n_rows) out[int64_t(i) * n_rows + row] = __uint_as_float(0xff800000u);
  }
} else {
  uint32_t a[2][8][4];
#pragma unroll
  for (int m = 0; m < 2; m++) {
    int low = first_row + 16 * m + g, high = low + 8;
    low = low < n_rows ? low : n_rows - 1;
    high = high < n_rows ? high : n_rows - 1;
    const uint32_t* from = reinterpret_cast<const uint32_t*>(rows) + int64_t(low) * 64 + t;
    const uint32_t* from_high = reinterpret_cast<const uint32_t*>(rows) + int64_t(high) * 64 + t;
#pragma unroll
    for (int s = 0; s < 8; s++) {
      a[m][s][0] = __ldg(from + 8 * s);
      a[m][s][1] = __ldg(from_high + 8 * s);
      a[m][s][2] = __ldg(from + 8 * s + 4);
      a[m][s][3] = __ldg(from_high + 8 * s + 4);
    }
  }
  for (int i = start; i <= stop; i++) {
    if (i > start) {
      copies_wait_all();
      __syncthreads();
    }
    if (i < stop) {
      uint8_t* stage = stages + (i & 1) * STAGE;
      for (int c = threadIdx.x; c < HEADS * 16; c += blockDim.x)
        copy_16_async(stage + c / 16 * ROW + c % 16 * 16, queries + (int64_t(i) * HEADS * 16 + c) * 8, true);
      copies_commit();
      if (threadIdx.x < HEADS) shares[(i & 1) * HEADS + threadIdx.x] = weights[int64_t(i) * HEADS + threadIdx.x];
    }
    if (i == start) continue;
    const uint8_t* stage = stages + ((i - 1) & 1) * STAGE;
    const float* share = shares + ((i - 1) & 1) * HEADS;
    float sums[4] = {0.0f, 0.0f, 0.0f, 0.0f}; // of rows g, g + 8, g + 16, g + 24
#pragma unroll
    for (int h = 0; h < HEADS; h += 16) {
      float c[2][2][4] = {};
#pragma unroll
      for (int s = 0; s < 8; s++) {
        uint32_t b[4];
        int row = h + (lane & 7) + 8 * (lane >> 4), at = 16 * s + 8 * ((lane >> 3) & 1);
        load_blocks(b, stage + row * ROW + at * 2);
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
          for (int n = 0; n < 2; n++)
            mma_16x8x16(c[m][n], a[m][s][0], a[m][s][1], a[m][s][2], a[m][s][3], b[2 * n], b[2 * n + 1]);
      }
#pragma unroll
      for (int n = 0; n < 2; n++) {
        float w = share[h + 8 * n + 2 * t], w1 = share[h + 8 * n + 2 * t + 1];
#pragma unroll
        for (int m = 0; m < 2; m++) {
          sums[2 * m] += w * fmaxf(c[m][n][0], 0.0f) + w1 * fmaxf(c[m][n][1], 0.0f);
          sums[2 * m + 1] += w * fmaxf(c[m][n][2], 0.0f) + w1 * fmaxf(c[m][n][3], 0.0f);
        }
      }
    }
    int count = (sizes[2] + i) / ratio; // of position i - 1
#pragma unroll
    for (int r = 0; r < 4; r++) {
      sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], 1);
      sums[r] += __shfl_xor_sync(0xffffffffu, sums[r], 2);
      int row = first_row + g + 8 * r;
      if (t == 0 && row < n_rows)
        out[int64_t(i - 1) * n_rows + row] = row < count ? sums[r] : __uint_as_float(0xff800000u);
    }
  }
}
