// hidden[slot, row] = weight[slot] * silu(gate[e] x) * (up[e] x), e = ids[slot], row of F; a slot is
// one of the K experts of one position, blockIdx.y. With a dense layer: one slot a position, e = 0.
// Template: K, F, RW, UN, HAS_NORM, EPS (its bits), HAS_CLAMP, CLAMP (its bits).
extern __shared__ uint4 decode_shared[];
uint8_t* shared_bytes = reinterpret_cast<uint8_t*>(decode_shared);
constexpr int n_hidden = F;
const int n_columns = x_shape[1];
const Activations staged = activations_at<Format>(shared_bytes, 1, n_columns);
uint32_t* shared_table = reinterpret_cast<uint32_t*>(shared_bytes + staged_bytes<Format>(1, staged.padded));
float* row_factor = reinterpret_cast<float*>(shared_table + Format::TABLE_WORDS);
const Planes gate{gate_quants, gate_high, gate_scales, gate_factors};
const Planes up{up_quants, up_high, up_scales, up_factors};
const int lane = threadIdx.x % 32, n_warps = gridDim.x * (blockDim.x / 32);
const int n_steps = n_columns / Format::STEP, slot = blockIdx.y;
const int64_t base = int64_t(ids[slot]) * n_hidden;
const float* row_x = x + int64_t(slot / K) * n_columns;
int first_row = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * RW, first_step = 0;

Format::Packed packed[2 * RW][UN];
auto fetch = [&](int row, int step) {
#pragma unroll
  for (int r = 0; r < RW; r++) {
#pragma unroll
    for (int u = 0; u < UN; u++) {
      int s = step + 32 * u + lane;
      if (row + r < n_hidden && s < n_steps) {
        packed[2 * r][u] = Format::load(gate, base + row + r, n_columns, s);
        packed[2 * r + 1][u] = Format::load(up, base + row + r, n_columns, s);
      }
    }
  }
};
fetch(first_row, 0);
fill_table<Format>(table, shared_table);
if (HAS_NORM) row_factors(row_x, 1, n_columns, __uint_as_float(EPS), row_factor);
stage<Format>(row_x, 1, n_columns, HAS_NORM ? norm : nullptr, row_factor, staged);
__syncthreads();

float sums[2 * RW] = {};
while (first_row < n_hidden) {
  Format::Packed now[2 * RW][UN];
#pragma unroll
  for (int r = 0; r < 2 * RW; r++) {
#pragma unroll
    for (int u = 0; u < UN; u++) now[r][u] = packed[r][u];
  }
  const int row = first_row, step = first_step;
  first_step += 32 * UN;
  const bool is_last = first_step >= n_steps;
  if (is_last) {
    first_step = 0;
    first_row += n_warps * RW;
  }
  fetch(first_row, first_step);
#pragma unroll
  for (int u = 0; u < UN; u++) {
    int s = step + 32 * u + lane;
    if (s < n_steps) {
#pragma unroll
      for (int r = 0; r < 2 * RW; r++) {
        if (row + r / 2 < n_hidden) Format::template dot<1>(now[r][u], staged, 0, s, shared_table, &sums[r]);
      }
    }
  }
  if (is_last) {
#pragma unroll
    for (int r = 0; r < RW; r++) {
      float g = sum_of_warp(sums[2 * r]), u = sum_of_warp(sums[2 * r + 1]);
      sums[2 * r] = sums[2 * r + 1] = 0.0f;
      if (lane == 0 && row + r < n_hidden) {
        if (HAS_CLAMP) {
          // not fminf and fmaxf: they would hide a NaN
          float clamp = __uint_as_float(CLAMP);
          g = g > clamp ? clamp : g;
          u = u > clamp ? clamp : u < -clamp ? -clamp : u;
        }
        out[int64_t(slot) * n_hidden + row + r] = weights[slot] * (g / (1.0f + expf(-g))) * u;
      }
    }
  }
}
