// out[t, row] = sum over the K experts of position t of down[e] hidden[t, k], row of C, e = ids[t, k].
// One warp sums all experts of RW rows in a fixed order: equal bits in every run.
// Template: K, C, RW, UN. blockIdx.y is the position.
extern __shared__ uint4 decode_shared[];
uint8_t* shared_bytes = reinterpret_cast<uint8_t*>(decode_shared);
constexpr int n_rows = C;
const int n_columns = hidden_shape[2], position = blockIdx.y;
const Activations staged = activations_at<Format>(shared_bytes, K, n_columns);
uint32_t* shared_table = reinterpret_cast<uint32_t*>(shared_bytes + staged_bytes<Format>(K, staged.padded));
const Planes planes{quants, high, scales, factors};
const int lane = threadIdx.x % 32, n_warps = gridDim.x * (blockDim.x / 32);
const int n_steps = n_columns / Format::STEP, all_steps = K * n_steps;
int64_t base[K];
#pragma unroll
for (int k = 0; k < K; k++) base[k] = int64_t(ids[position * K + k]) * n_rows;
int first_row = (blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32) * RW, first_step = 0;
auto base_of = [&](int k) {
  int64_t b = base[0];
#pragma unroll
  for (int i = 1; i < K; i++) b = k == i ? base[i] : b;
  return b;
};

Format::Packed packed[RW][UN];
auto fetch = [&](int row, int step) {
#pragma unroll
  for (int u = 0; u < UN; u++) {
    int s = step + 32 * u + lane, k = s / n_steps;
    if (s < all_steps) {
      int64_t at = base_of(k) + row;
#pragma unroll
      for (int r = 0; r < RW; r++) {
        if (row + r < n_rows) packed[r][u] = Format::load(planes, at + r, n_columns, s - k * n_steps);
      }
    }
  }
};
fetch(first_row, 0);
fill_table<Format>(table, shared_table);
stage<Format>(hidden + int64_t(position) * K * n_columns, K, n_columns, nullptr, nullptr, staged);
__syncthreads();

float sums[RW] = {};
while (first_row < n_rows) {
  Format::Packed now[RW][UN];
#pragma unroll
  for (int r = 0; r < RW; r++) {
#pragma unroll
    for (int u = 0; u < UN; u++) now[r][u] = packed[r][u];
  }
  const int row = first_row, step = first_step;
  first_step += 32 * UN;
  const bool is_last = first_step >= all_steps;
  if (is_last) {
    first_step = 0;
    first_row += n_warps * RW;
  }
  fetch(first_row, first_step);
#pragma unroll
  for (int u = 0; u < UN; u++) {
    int s = step + 32 * u + lane, k = s / n_steps;
    if (s < all_steps) {
#pragma unroll
      for (int r = 0; r < RW; r++) {
        if (row + r < n_rows) {
          Format::template dot<1>(now[r][u], staged, k, s - k * n_steps, shared_table, &sums[r]);
        }
      }
    }
  }
  if (is_last) {
#pragma unroll
    for (int r = 0; r < RW; r++) {
      float y = sum_of_warp(sums[r]);
      sums[r] = 0.0f;
      if (lane == 0 && row + r < n_rows) out[int64_t(position) * n_rows + row + r] = y;
    }
  }
}
