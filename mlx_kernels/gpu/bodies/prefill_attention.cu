// Attention of one position's 64 heads over window rows, then compressed rows, and a sink; the
// algorithm is told in the cpu world's file. A row is key and value of all heads, so a block reads
// it once; the rows come in tiles of 64. Scores and sums are float32, shares are rounded to half.
//   queries [T, H, D], window [M, D], rows [N, D] half; index [T, K]; out [T, H, D]
//   cosines, sines [T, r / 2]: the result is turned back
// sizes: H, first position, position of window row 0, window, tokens a row, K, r.
constexpr int TILE = 64, ROW = 2 * D + 16, SHARE_ROW = 2 * TILE + 16; // bytes; rows start at different banks
constexpr int NT = D / 64; // tiles of 8 columns that a warp sums
extern __shared__ uint4 attention_shared[];
uint8_t* query_rows = reinterpret_cast<uint8_t*>(attention_shared);
uint8_t* key_rows = query_rows + TILE * ROW; // twice
uint8_t* share_rows = key_rows + 2 * TILE * ROW;
float* maxima = reinterpret_cast<float*>(share_rows + TILE * SHARE_ROW); // [4][64]: of four key ranges
float* totals = maxima + 4 * TILE;                                       // [4][64]
float* largest = totals + 4 * TILE;                                      // [2][64]: up to this tile
const int n_heads = sizes[0], position = sizes[1] + blockIdx.x, low = sizes[2];
const int first_near = position - sizes[3] + 1 > 0 ? position - sizes[3] + 1 : 0;
const int n_near = position + 1 - first_near;
int n_far = HAS_ROWS ? (position + 1) / sizes[4] : 0;
if (HAS_INDEX && n_far > sizes[5]) n_far = sizes[5];
const int n_keys = n_near + n_far, n_tiles = (n_keys + TILE - 1) / TILE;
const int head_at = blockIdx.y * TILE;
const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
const int heads_of = 32 * (warp & 1), keys_of = 16 * (warp >> 1), columns_of = warp * (D / 8);
const float to_log2 = 1.4426950408889634f, scale = to_log2 / sqrtf(float(D));

for (int i = threadIdx.x; i < TILE * (D / 8); i += 256) {
  int row = i / (D / 8), at = i % (D / 8), head = head_at + row;
  bool exists = head < n_heads;
  copy_16_async(query_rows + row * ROW + at * 16,
                queries + (int64_t(blockIdx.x) * n_heads + (exists ? head : 0)) * D + at * 8, exists);
}
auto copy_tile = [&](int tile) {
  uint8_t* to = key_rows + (tile & 1) * TILE * ROW;
#pragma unroll 4
  for (int i = threadIdx.x; i < TILE * (D / 8); i += 256) {
    int row = i / (D / 8), at = i % (D / 8), key = tile * TILE + row;
    const __half* from = window;
    if (key < n_near) {
      from = window + int64_t(first_near - low + key) * D;
    } else if (HAS_ROWS && key < n_keys) {
      int far = key - n_near;
      from = rows + int64_t(HAS_INDEX ? index[int64_t(blockIdx.x) * sizes[5] + far] : far) * D;
    }
    copy_16_async(to + row * ROW + at * 16, from + at * 8, key < n_keys);
  }
  copies_commit();
};
copy_tile(0);
if (threadIdx.x < TILE) largest[threadIdx.x] = -1e30f;
float sums[4][NT][4];
#pragma unroll
for (int m = 0; m < 4; m++)
#pragma unroll
  for (int n = 0; n < NT; n++)
#pragma unroll
    for (int i = 0; i < 4; i++) sums[m][n][i] = 0.0f;
float total = 0.0f; // of head threadIdx.x

for (int tile = 0; tile < n_tiles; tile++) {
  copies_wait_all();
  __syncthreads();
  if (tile + 1 < n_tiles) copy_tile(tile + 1);
  const uint8_t* keys = key_rows + (tile & 1) * TILE * ROW;
  const float* before = largest + (tile & 1) * TILE;
  float* now = largest + ((tile + 1) & 1) * TILE;

  // Scores of 32 heads and 16 keys a warp.
  float s[2][2][4] = {};
#pragma unroll 4
  for (int k = 0; k < D; k += 16) {
    uint32_t b[4];
    load_blocks(b, keys + (keys_of + (lane & 7) + 8 * (lane >> 4)) * ROW + (k + 8 * ((lane >> 3) & 1)) * 2);
#pragma unroll
    for (int m = 0; m < 2; m++) {
      uint32_t a[4];
      load_blocks(a, query_rows + (heads_of + 16 * m + (lane & 15)) * ROW + (k + 8 * (lane >> 4)) * 2);
      mma_16x8x16(s[m][0], a[0], a[1], a[2], a[3], b[0], b[1]);
      mma_16x8x16(s[m][1], a[0], a[1], a[2], a[3], b[2], b[3]);
    }
  }
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float most = -1e30f;
#pragma unroll
      for (int n = 0; n < 2; n++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
          int key = tile * TILE + keys_of + 8 * n + 2 * t + j;
          float& score = s[m][n][2 * half + j];
          score = key < n_keys ? score * scale : -1e30f;
          most = fmaxf(most, score);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      if (t == 0) maxima[(warp >> 1) * TILE + heads_of + 16 * m + 8 * half + g] = most;
    }
  }
  __syncthreads();
#pragma unroll
  for (int m = 0; m < 2; m++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int head = heads_of + 16 * m + 8 * half + g;
      float most = before[head];
#pragma unroll
      for (int i = 0; i < 4; i++) most = fmaxf(most, maxima[i * TILE + head]);
      if (t == 0 && warp < 2) now[head] = most;
      float sum = 0.0f;
#pragma unroll
      for (int n = 0; n < 2; n++) {
        int key = keys_of + 8 * n + 2 * t;
        float x = exp2f(s[m][n][2 * half] - most), y = exp2f(s[m][n][2 * half + 1] - most);
        if (tile * TILE + key >= n_keys) x = 0.0f;
        if (tile * TILE + key + 1 >= n_keys) y = 0.0f;
        sum += x + y;
        uint32_t a = __half_as_ushort(__float2half_rn(x)), b = __half_as_ushort(__float2half_rn(y));
        *reinterpret_cast<uint32_t*>(share_rows + head * SHARE_ROW + key * 2) = a | b << 16;
      }
      sum += __shfl_xor_sync(0xffffffffu, sum, 1);
      sum += __shfl_xor_sync(0xffffffffu, sum, 2);
      if (t == 0) totals[(warp >> 1) * TILE + head] = sum;
    }
  }
  __syncthreads();
  if (threadIdx.x < TILE) {
    total *= exp2f(before[threadIdx.x] - now[threadIdx.x]);
    for (int i = 0; i < 4; i++) total += totals[i * TILE + threadIdx.x];
  }
  // Sums of 64 heads and D / 8 columns a warp.
#pragma unroll
  for (int m = 0; m < 4; m++) {
    float f = exp2f(before[16 * m + g] - now[16 * m + g]);
    float f1 = exp2f(before[16 * m + g + 8] - now[16 * m + g + 8]);
#pragma unroll
    for (int n = 0; n < NT; n++) {
      sums[m][n][0] *= f;
      sums[m][n][1] *= f;
      sums[m][n][2] *= f1;
      sums[m][n][3] *= f1;
    }
  }
#pragma unroll
  for (int k = 0; k < TILE; k += 16) {
    uint32_t a[4][4];
#pragma unroll
    for (int m = 0; m < 4; m++)
      load_blocks(a[m], share_rows + (16 * m + (lane & 15)) * SHARE_ROW + (k + 8 * (lane >> 4)) * 2);
#pragma unroll
    for (int n = 0; n < NT; n += 2) {
      uint32_t b[4];
      load_blocks_transposed(b, keys + (k + (lane & 15)) * ROW + (columns_of + 8 * n + 8 * (lane >> 4)) * 2);
#pragma unroll
      for (int m = 0; m < 4; m++) {
        mma_16x8x16(sums[m][n], a[m][0], a[m][1], a[m][2], a[m][3], b[0], b[1]);
        mma_16x8x16(sums[m][n + 1], a[m][0], a[m][1], a[m][2], a[m][3], b[2], b[3]);
      }
    }
  }
}
__syncthreads();
if (threadIdx.x < TILE) {
  float most = largest[(n_tiles & 1) * TILE + threadIdx.x];
  int head = head_at + threadIdx.x;
  float sink = head < n_heads ? sinks[head] * to_log2 : 0.0f, top = fmaxf(most, sink);
  float part = exp2f(most - top);
  totals[threadIdx.x] = part / (total * part + exp2f(sink - top));
}
__syncthreads();
const int n_rotary = sizes[6];
#pragma unroll
for (int m = 0; m < 4; m++) {
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int row = 16 * m + 8 * half + g, head = head_at + row;
    float f = totals[row];
#pragma unroll
    for (int n = 0; n < NT; n++) {
      int column = columns_of + 8 * n + 2 * t, at = column - (D - n_rotary);
      float x = sums[m][n][2 * half] * f, y = sums[m][n][2 * half + 1] * f;
      if (at >= 0) {
        float c = cosines[blockIdx.x * (n_rotary / 2) + at / 2], s = sines[blockIdx.x * (n_rotary / 2) + at / 2];
        float turned = x * c + y * s;
        y = y * c - x * s;
        x = turned;
      }
      if (head < n_heads) {
        float* to = out + (int64_t(blockIdx.x) * n_heads + head) * D + column;
        to[0] = x;
        to[1] = y;
      }
    }
  }
}
