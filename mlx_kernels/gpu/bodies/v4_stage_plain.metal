// Staging: a part of x as it is. sizes[5]: rows of a group of rows that reads its own part of x.
threadgroup float4 staged[(N_COLUMNS + 511) / 512 * 128];
{
  const int part = sizes[5] > 0 ? group * sizes[3] / sizes[5] : 0;
  for (int i = int(thread_position_in_threadgroup.x); i < N_COLUMNS / 4; i += 32 * SIMDS) {
    staged[staged_place(i)] = *(const device float4*)(x + int64_t(part) * N_COLUMNS + 4 * i);
  }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
const float factor = 1.0f;
