// Staging: SwiGLU of gates x[0 .. C) and ups x[C .. 2 C), both limited by numbers[0].
// group is that of the text before.
threadgroup float4 staged[(N_COLUMNS + 511) / 512 * 128];
if (group >= 0) {
  const float limit = numbers[0];
  for (int i = int(thread_position_in_threadgroup.x); i < N_COLUMNS / 4; i += 32 * SIMDS) {
    float4 g = *(const device float4*)(x + 4 * i);
    float4 u = *(const device float4*)(x + N_COLUMNS + 4 * i);
    staged[staged_place(i)] = float4{swiglu_of(g.x, u.x, limit), swiglu_of(g.y, u.y, limit),
                                     swiglu_of(g.z, u.z, limit), swiglu_of(g.w, u.w, limit)};
  }
}
threadgroup_barrier(mem_flags::mem_threadgroup);
const float factor = 1.0f;
