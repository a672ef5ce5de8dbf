// y[t, row] = sum over columns of weight[row, column] x[t, column], plus bias and residual.
// RW rows a warp, UN steps of each in flight; the first ones are asked for before the activations
// are staged. Template: T, RW, UN, HAS_NORM, HAS_BIAS, HAS_RESIDUAL. sizes: rows, columns.
extern __shared__ uint4 decode_shared[];
uint8_t* shared_bytes = reinterpret_cast<uint8_t*>(decode_shared);
const int n_rows = sizes[0], n_columns = sizes[1];
const Activations staged = activations_at(shared_bytes, T, n_columns);
uint32_t* shared_table = reinterpret_cast<uint32_t*>(shared_bytes + staged_bytes(T, staged.padded));
float* row_factor = reinterpret_cast<float*>(shared_table + Format::TABLE_WORDS);
const Planes planes{quants, high, scales, factors};
const int lane = threadIdx.x % 32, n_warps = gridDim.x * (blockDim.x / 32);
const int n_steps = n_columns / Format::STEP;
int first_row = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * RW, first_step = 0;

Format::Packed packed[RW][UN];
auto fetch = [&](int row, int step) {
#pragma unroll
  for (int r = 0; r < RW; r++) {
#pragma unroll
    for (int u = 0; u < UN; u++) {
      int s = step + 32 * u + lane;
      if (row + r < n_rows && s < n_steps) packed[r][u] = Format::load(planes, row + r, n_columns, s);
    }
  }
};
fetch(first_row, 0);
fill_table<Format>(table, shared_table);
if (HAS_NORM) row_factors(x, T, n_columns, eps[0], row_factor);
stage<Format>(x, T, n_columns, HAS_NORM ? norm : nullptr, row_factor, staged);
__syncthreads();

float sums[RW][T] = {};
while (first_row < n_rows) {
  Format::Packed now[RW][UN];
#pragma unroll
  for (int r = 0; r < RW; r++) {
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
      for (int r = 0; r < RW; r++) {
        if (row + r < n_rows) Format::template dot<T>(now[r][u], staged, 0, s, shared_table, sums[r]);
      }
    }
  }
  if (is_last) {
#pragma unroll
    for (int r = 0; r < RW; r++) {
#pragma unroll
      for (int t = 0; t < T; t++) {
        float y = sum_of_warp(sums[r][t]);
        sums[r][t] = 0.0f;
        if (lane == 0 && row + r < n_rows) {
          int64_t at = int64_t(t) * n_rows + row + r;
          if (HAS_BIAS) y += bias[row + r];
          if (HAS_RESIDUAL) y += residual[at];
          out[at] = y;
        }
      }
    }
  }
}
