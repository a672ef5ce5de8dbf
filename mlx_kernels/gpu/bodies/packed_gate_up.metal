// out[slot, row] = weight[slot] * silu(gate[e] x) * (up[e] x), e = ids[slot], row of F; a slot is one
// of the K experts of one position, the y of the grid. With a dense layer: one slot a position, e = 0.
// With HAS_CLAMP the gate is cut above clamp first, and up on both sides. A simdgroup takes RW rows.
// Template: K, RW, HAS_NORM, HAS_CLAMP. sizes: F, columns.
threadgroup uint words[Format::TABLE_WORDS + 1];
if (Format::TABLE_WORDS > 0) {
  Format::fill(table, words, thread_index_in_threadgroup, threads_per_threadgroup.x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
const uint n_hidden = uint(sizes[0]);
const uint n_columns = uint(sizes[1]);
const uint n_steps = n_columns / uint(Format::STEP);
const uint lane = thread_index_in_simdgroup;
const uint slot = threadgroup_position_in_grid.y;
const uint first_row =
    (threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup) *
    uint(RW);
if (first_row < n_hidden) {
  Planes gate;
  gate.quants = gate_quants;
  gate.high = gate_high;
  gate.scales = gate_scales;
  gate.factors = gate_factors;
  Planes up;
  up.quants = up_quants;
  up.high = up_high;
  up.scales = up_scales;
  up.factors = up_factors;
  const uint64_t base = uint64_t(ids[slot]) * uint64_t(n_hidden);
  const uint64_t position = uint64_t(slot / uint(K)) * uint64_t(n_columns);
  float gates[RW];
  float ups[RW];
  float squares = 0.0f;
  for (uint r = 0u; r < uint(RW); r++) {
    gates[r] = 0.0f;
    ups[r] = 0.0f;
  }
  for (uint step = lane; step < n_steps; step += 32u) {
    Format::Packed packed_gates[RW];
    Format::Packed packed_ups[RW];
    for (uint r = 0u; r < uint(RW); r++) {
      // Past the last row the last is read again, and its sum is not stored.
      const uint64_t row = base + uint64_t(min(first_row + r, n_hidden - 1u));
      packed_gates[r] = Format::load(gate, row, n_columns, step);
      packed_ups[r] = Format::load(up, row, n_columns, step);
    }
    for (uint c = 0u; c < uint(Format::CHUNKS); c++) {
      const uint column = Format::column(step, c);
      Values v = values_at(x, position + uint64_t(column));
      if (HAS_NORM) {
        squares += sum_of_squares(v);
        v = times(v, values_at(norm, uint64_t(column)));
      }
      const float sum = Format::HAS_OFFSET ? sum_of(v) : 0.0f;
      for (uint r = 0u; r < uint(RW); r++) {
        gates[r] += product(Format::chunk(packed_gates[r], step, c, words), v, sum);
        ups[r] += product(Format::chunk(packed_ups[r], step, c, words), v, sum);
      }
    }
  }
  float factor = 1.0f;
  if (HAS_NORM) {
    factor = rsqrt(simd_sum(squares) / float(n_columns) + eps[0]);
  }
  for (uint r = 0u; r < uint(RW); r++) {
    float g = simd_sum(gates[r]) * factor;
    float u = simd_sum(ups[r]) * factor;
    if (HAS_CLAMP) {
      // Not min and max: they would hide a NaN.
      g = g > clamp[0] ? clamp[0] : g;
      u = u > clamp[0] ? clamp[0] : u < -clamp[0] ? -clamp[0] : u;
    }
    if (lane == 0u && first_row + r < n_hidden) {
      out[uint64_t(slot) * uint64_t(n_hidden) + uint64_t(first_row + r)] =
          weights[slot] * (g / (1.0f + exp(-g))) * u;
    }
  }
}
