// Staging: the streams x [4, C] mixed to a sublayer's input, and its norm. The first group does no
// rows: it computes how the result will be written back. partials [25, n]: 24 products with the
// hyper-connection's matrix and the sum of squares, in pieces; n = sizes[5].
// numbers: eps of the norms, eps of the hyper-connection, iterations.
threadgroup float4 staged[(N_COLUMNS + 511) / 512 * 128];
threadgroup float sums[32];
threadgroup float squares[SIMDS];
for (int row = int(simdgroup_index_in_threadgroup); row < 25; row += SIMDS) {
  const int n_partials = sizes[5];
  float sum = 0.0f;
  for (int i = int(thread_index_in_simdgroup); i < n_partials; i += 32) {
    sum += partials[row * n_partials + i];
  }
  sum = simd_sum(sum);
  if (thread_index_in_simdgroup == 0u) sums[row] = sum;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
const float hyper_factor = 1.0f / sqrt(sums[24] / float(4 * N_COLUMNS) + numbers[0]);
if (group < 0) {
  if (simdgroup_index_in_threadgroup == 0u) {
    const float eps = numbers[1];
    const int lane = int(thread_index_in_simdgroup), at = lane & 15; // row a = at / 4, column at % 4
    float post = 2.0f * sigmoid_of(sums[4 + (lane & 3)] * hyper_factor * scale[1] + base[4 + (lane & 3)]);
    if (lane < 4) mix[lane] = post;
    float c = sums[8 + at] * hyper_factor * scale[2] + base[8 + at];
    float top = max(c, simd_shuffle_xor(c, uint16_t(1)));
    top = max(top, simd_shuffle_xor(top, uint16_t(2)));
    c = exp(c - top);
    float total = c + simd_shuffle_xor(c, uint16_t(1));
    total += simd_shuffle_xor(total, uint16_t(2));
    c = c / total + eps;
    total = c + simd_shuffle_xor(c, uint16_t(4));
    total += simd_shuffle_xor(total, uint16_t(8));
    c = c / (total + eps);
    const int n_iterations = int(numbers[2]);
    for (int i = 1; i < n_iterations; i++) {
      total = c + simd_shuffle_xor(c, uint16_t(1));
      total += simd_shuffle_xor(total, uint16_t(2));
      c = c / (total + eps);
      total = c + simd_shuffle_xor(c, uint16_t(4));
      total += simd_shuffle_xor(total, uint16_t(8));
      c = c / (total + eps);
    }
    if (lane < 16) mix[4 + at] = c;
  }
} else {
  float pre[4];
  for (int i = 0; i < 4; i++) pre[i] = sigmoid_of(sums[i] * hyper_factor * scale[0] + base[i]) + numbers[1];
  float sum = 0.0f;
  for (int i = int(thread_position_in_threadgroup.x); i < N_COLUMNS / 4; i += 32 * SIMDS) {
    float4 u = float4{0.0f, 0.0f, 0.0f, 0.0f};
    for (int s = 0; s < 4; s++) {
      float4 v = *(const device float4*)(x + s * N_COLUMNS + 4 * i);
      u = float4{u.x + pre[s] * v.x, u.y + pre[s] * v.y, u.z + pre[s] * v.z, u.w + pre[s] * v.w};
    }
    sum += u.x * u.x + u.y * u.y + u.z * u.z + u.w * u.w;
    float4 m = *(const device float4*)(norm + 4 * i);
    staged[staged_place(i)] = float4{u.x * m.x, u.y * m.y, u.z * m.z, u.w * m.w};
  }
  sum = simd_sum(sum);
  if (thread_index_in_simdgroup == 0u) squares[simdgroup_index_in_threadgroup] = sum;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
float factor = 0.0f;
if (group >= 0) {
  for (int i = 0; i < SIMDS; i++) factor += squares[i];
  factor = 1.0f / sqrt(factor / float(N_COLUMNS) + numbers[0]);
  const int n_groups = int(threadgroups_per_grid.x) - 1;
  for (int i = group * 32 * SIMDS + int(thread_position_in_threadgroup.x); i < N_COLUMNS / 4; i += 32 * SIMDS * n_groups) {
    float4 v = staged[staged_place(i)];
    *(device float4*)(normed + 4 * i) = float4{v.x * factor, v.y * factor, v.z * factor, v.w * factor};
  }
}
