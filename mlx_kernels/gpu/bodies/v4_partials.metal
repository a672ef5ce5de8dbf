// The group's share of the products with fn, and of the sum of squares -> partials [N_ROWS + 1, groups].
threadgroup_barrier(mem_flags::mem_threadgroup);
{
  const int lane = int(thread_index_in_simdgroup), simd = int(simdgroup_index_in_threadgroup);
  const int n_groups = int(threadgroups_per_grid.x);
  float square = 0.0f, sums[PER_SIMD];
  for (int r = 0; r < PER_SIMD; r++) sums[r] = 0.0f;
  for (int stream = 0; stream < 4; stream++) {
    const float a = values[stream * 64 + 2 * lane], b = values[stream * 64 + 2 * lane + 1];
    square += a * a + b * b;
    for (int r = 0; r < PER_SIMD; r++) {
      sums[r] += low_half_of(fn_words[r][stream]) * a + high_half_of(fn_words[r][stream]) * b;
    }
  }
  for (int r = 0; r < PER_SIMD; r++) {
    const float sum = simd_sum(sums[r]);
    if (lane == 0 && simd + 8 * r < N_ROWS) partials[(simd + 8 * r) * n_groups + group] = sum;
  }
  if (simd == 0) {
    square = simd_sum(square);
    if (lane == 0) partials[N_ROWS * n_groups + group] = square;
  }
}
