// y[t, row] = sum over columns of weight[row, column] x[t, column], plus bias and residual.
// RW rows a warp, UN steps of each in flight; the first ones are asked for before the activations
// are staged. Template: T, RW, UN, HAS_NORM, EPS (its bits), HAS_BIAS, HAS_RESIDUAL.
extern __shared__ uint4 decode_shared[];
uint8_t* shared_bytes = reinterpret_cast<uint8_t*>(decode_shared);
const int n_rows = bias_shape[0], n_columns = x_shape[1];
const Activations staged = activations_at<Format>(shared_bytes, T, n_columns);
uint32_t* shared_table = reinterpret_cast<uint32_t*>(shared_bytes + staged_bytes<Format>(T, staged.padded));
float* row_factor = reinterpret_cast<float*>(shared_table + Format::TABLE_WORDS);
// of F16 the quants are halves, and the others are not there
auto bytes = [](const auto* plane) { return reinterpret_cast<const uint8_t*>(plane); };
const Planes planes{bytes(quants), bytes(high), bytes(scales), bytes(factors)};
const int lane = threadIdx.x % 32, stride = gridDim.x * (blockDim.x / 32) * RW;
const int n_steps = n_columns / Format::STEP;
const int first_row = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * RW;

int row = first_row, step = 0, next_row = first_row, next_step = 0;
Format::Packed packed[UN][RW];
auto fetch = [&](Format::Packed* to) {
  int s = next_step + lane;
#pragma unroll
  for (int r = 0; r < RW; r++) {
    if (next_row + r < n_rows && s < n_steps) to[r] = Format::load(planes, next_row + r, n_columns, s);
  }
  next_step += 32;
  if (next_step >= n_steps) {
    next_step = 0;
    next_row += stride;
  }
};
#pragma unroll
for (int u = 0; u < UN; u++) fetch(packed[u]);
fill_table<Format>(reinterpret_cast<const uint32_t*>(table), shared_table);
if (HAS_NORM) row_factors(x, T, n_columns, __uint_as_float(EPS), row_factor);
stage<Format>(x, T, n_columns, HAS_NORM ? norm : nullptr, row_factor, staged);
__syncthreads();

float sums[RW][T] = {};
while (row < n_rows) {
#pragma unroll
  for (int u = 0; u < UN; u++) {
    if (row < n_rows) {
      int s = step + lane;
      if (s < n_steps) {
#pragma unroll
        for (int r = 0; r < RW; r++) {
          if (row + r < n_rows) Format::template dot<T>(packed[u][r], staged, 0, s, shared_table, sums[r]);
        }
      }
      fetch(packed[u]);
      step += 32;
      if (step >= n_steps) {
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
        step = 0;
        row += stride;
      }
    }
  }
}
