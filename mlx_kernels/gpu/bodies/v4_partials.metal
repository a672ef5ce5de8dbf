// The group's share of the products with the next hyper-connection's matrix fn [N_ROWS, 4 C], and of
// the sum of squares -> partials [N_ROWS + 1, groups].
threadgroup_barrier(mem_flags::mem_threadgroup);
{
  const int lane = int(thread_index_in_simdgroup);
  for (int row = int(simdgroup_index_in_threadgroup); row <= N_ROWS; row += 8) {
    float sum = 0.0f;
    for (int stream = 0; stream < 4; stream++) {
      float a = values[stream * 64 + 2 * lane], b = values[stream * 64 + 2 * lane + 1];
      if (row < N_ROWS) {
        uint32_t w = *(const device uint32_t*)(fn + int64_t(row * 4 + stream) * n_columns + group * 64 + 2 * lane);
        sum += low_half_of(w) * a + high_half_of(w) * b;
      } else {
        sum += a * a + b * b;
      }
    }
    sum = simd_sum(sum);
    if (lane == 0) partials[row * int(threadgroups_per_grid.x) + group] = sum;
  }
}
