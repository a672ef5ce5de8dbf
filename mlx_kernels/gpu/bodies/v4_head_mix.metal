// The streams [4, C] mixed to one before the output matrix. partials [5, n]: four products and the sum
// of squares, in pieces. A group takes 256 columns. numbers: eps of the norm, of the hyper-connection.
threadgroup float sums[8];
const int n_columns = sizes[0], n_partials = sizes[1];
{
  const int row = int(simdgroup_index_in_threadgroup);
  float sum = 0.0f;
  if (row < 5) {
    for (int i = int(thread_index_in_simdgroup); i < n_partials; i += 32) {
      sum += partials[row * n_partials + i];
    }
  }
  sum = simd_sum(sum);
  if (thread_index_in_simdgroup == 0u) sums[row] = sum;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
{
  const float factor = 1.0f / sqrt(sums[4] / float(4 * n_columns) + numbers[0]);
  const int column = int(threadgroup_position_in_grid.x) * 256 + int(thread_position_in_threadgroup.x);
  if (column < n_columns) {
    float u = 0.0f;
    for (int s = 0; s < 4; s++) {
      u += (sigmoid_of(sums[s] * factor * scale[0] + base[s]) + numbers[1]) * streams[s * n_columns + column];
    }
    out[column] = u;
  }
}
