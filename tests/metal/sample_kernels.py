"""Four kernels of our own that the harness is tested with, each with its obvious answer."""

import numpy as np

Q8_0_MATVEC = """
// y[r] = sum_c w[r, c] x[c]; w in raw Q8_0 blocks (half scale, 32 int8). One simdgroup per row,
// 4 lanes per block, 8 values per lane.
uint row = threadgroup_position_in_grid.x * (threads_per_threadgroup.x / 32u)
         + simdgroup_index_in_threadgroup;
uint lane = thread_index_in_simdgroup;
uint n_columns = uint(sizes[1]);
if (row < uint(sizes[0])) {
  uint n_blocks = n_columns / 32u;
  auto blocks = w + uint64_t(row) * uint64_t(n_blocks * 34u);
  float sum = 0.0f;
  for (uint b = lane / 4u; b < n_blocks; b += 8u) {
    auto block = blocks + b * 34u;
    float scale = float(as_type<half>(ushort(uint(block[0]) | (uint(block[1]) << 8u))));
    float part = 0.0f;
    for (uint i = 0u; i < 8u; i++) {
      uint at = (lane % 4u) * 8u + i;
      part += float(as_type<int8_t>(block[2u + at])) * x[b * 32u + at];
    }
    sum += scale * part;
  }
  sum = simd_sum(sum);
  if (lane == 0u) {
    y[row] = sum;
  }
}
"""

RMS_NORM = """
// One threadgroup per row: y = x / sqrt(mean(x^2) + eps) * weight.
threadgroup float partial[32];
uint row = threadgroup_position_in_grid.x;
uint thread_id = thread_position_in_threadgroup.x;
uint n_threads = threads_per_threadgroup.x;
auto row_x = x + uint64_t(row) * uint64_t(N);
float sum = 0.0f;
for (uint c = thread_id; c < uint(N); c += n_threads) {
  float v = float(row_x[c]);
  sum += v * v;
}
sum = simd_sum(sum);
if (thread_index_in_simdgroup == 0u) {
  partial[simdgroup_index_in_threadgroup] = sum;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
float total = 0.0f;
for (uint s = 0u; s < n_threads / 32u; s++) {
  total += partial[s];
}
float scale = rsqrt(total / float(N) + eps[0]);
for (uint c = thread_id; c < uint(N); c += n_threads) {
  y[uint64_t(row) * uint64_t(N) + c] = T(float(row_x[c]) * scale * weight[c]);
}
"""

MATMUL = """
// y [M, N] = a [M, K] b [K, N], all half; 4 simdgroups, each 16 x 16 of a 32 x 32 tile of y.
threadgroup half tile_a[32 * 40];
threadgroup half tile_b[32 * 40];
uint m = uint(sizes[0]);
uint n = uint(sizes[1]);
uint k = uint(sizes[2]);
uint thread_id = thread_index_in_threadgroup;
uint sg = simdgroup_index_in_threadgroup;
uint first_row = threadgroup_position_in_grid.y * 32u;
uint first_column = threadgroup_position_in_grid.x * 32u;
uint sub_row = (sg / 2u) * 16u;
uint sub_column = (sg % 2u) * 16u;
simdgroup_matrix<float, 8, 8> acc[2][2];
for (uint i = 0u; i < 2u; i++) {
  for (uint j = 0u; j < 2u; j++) {
    acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  }
}
for (uint k0 = 0u; k0 < k; k0 += 32u) {
  for (uint i = thread_id; i < 1024u; i += 128u) {
    uint r = i / 32u;
    uint c = i % 32u;
    tile_a[r * 40u + c] = a[uint64_t(first_row + r) * k + k0 + c];
    tile_b[r * 40u + c] = b[uint64_t(k0 + r) * n + first_column + c];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint kk = 0u; kk < 32u; kk += 8u) {
    for (uint i = 0u; i < 2u; i++) {
      simdgroup_matrix<half, 8, 8> left;
      simdgroup_load(left, tile_a + (sub_row + i * 8u) * 40u + kk, 40u);
      for (uint j = 0u; j < 2u; j++) {
        simdgroup_matrix<half, 8, 8> right;
        simdgroup_load(right, tile_b + kk * 40u + sub_column + j * 8u, 40u);
        simdgroup_multiply_accumulate(acc[i][j], left, right, acc[i][j]);
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
for (uint i = 0u; i < 2u; i++) {
  for (uint j = 0u; j < 2u; j++) {
    uint64_t at = uint64_t(first_row + sub_row + i * 8u) * n + first_column + sub_column + j * 8u;
    simdgroup_store(acc[i][j], y + at, n);
  }
}
"""

HISTOGRAM = """
// Counts of bytes, first per group in threadgroup memory, then added to the whole.
uint i = thread_position_in_grid.x;
if (i < uint(sizes[0])) {
  atomic_fetch_add_explicit(&counts[values[i]], 1u, memory_order_relaxed);
}
"""


def quantize_q8_0(weights: np.ndarray) -> np.ndarray:
    """Float [rows, columns] -> raw Q8_0 blocks [rows, columns / 32 * 34] uint8."""
    rows, columns = weights.shape
    blocks = weights.reshape(rows, columns // 32, 32)
    scale = (np.abs(blocks).max(-1, keepdims=True) / 127).astype(np.float16)
    steps = np.where(scale > 0, scale, 1).astype(np.float32)
    quants = np.clip(np.rint(blocks / steps), -127, 127).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), quants.view(np.uint8)], -1).reshape(rows, -1)


def dequantize_q8_0(raw: np.ndarray) -> np.ndarray:
    """Raw Q8_0 blocks -> float64 [rows, columns]."""
    blocks = raw.reshape(raw.shape[0], -1, 34)
    scale = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float64)
    return (scale * np.ascontiguousarray(blocks[..., 2:]).view(np.int8)).reshape(raw.shape[0], -1)
