// Staging: the first columns of x, normalised. The norm's factor multiplies the results. group and
// squares are those of the text before.
threadgroup float4 staged[(N_COLUMNS + 511) / 512 * 128];
if (group >= 0) {
  float sum = 0.0f;
  for (int i = int(thread_position_in_threadgroup.x); i < N_COLUMNS / 4; i += 256) {
    float4 v = *(const device float4*)(x + 4 * i);
    float4 m = *(const device float4*)(norm + 4 * i);
    sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    staged[staged_place(i)] = float4{v.x * m.x, v.y * m.y, v.z * m.z, v.w * m.w};
  }
  sum = simd_sum(sum);
  if (thread_index_in_simdgroup == 0u) squares[simdgroup_index_in_threadgroup] = sum;
}
threadgroup_barrier(mem_flags::mem_threadgroup);
float factor = 0.0f;
if (group >= 0) {
  for (int i = 0; i < 8; i++) factor += squares[i];
  factor = 1.0f / sqrt(factor / float(N_COLUMNS) + numbers[0]);
}
