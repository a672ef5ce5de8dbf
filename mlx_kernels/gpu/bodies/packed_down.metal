// out[t, row] = sum over the K experts of position t of down[e] hidden[t, k], row of C, e = ids[t, k].
// A simdgroup sums all experts of RW rows, in a fixed order: equal bits in every run. The y of the
// grid is the position. Template: K, RW. sizes: C, F.
threadgroup uint words[Format::TABLE_WORDS + 1];
if (Format::TABLE_WORDS > 0) {
  Format::fill(table, words, thread_index_in_threadgroup, threads_per_threadgroup.x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
const uint n_rows = uint(sizes[0]);
const uint n_columns = uint(sizes[1]);
const uint n_steps = n_columns / uint(Format::STEP);
const uint lane = thread_index_in_simdgroup;
const uint position = threadgroup_position_in_grid.y;
const uint first_row =
    (threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup) *
    uint(RW);
if (first_row < n_rows) {
  Planes planes;
  planes.quants = quants;
  planes.high = high;
  planes.scales = scales;
  planes.factors = factors;
  float sums[RW];
  for (uint r = 0u; r < uint(RW); r++) {
    sums[r] = 0.0f;
  }
  // The steps of all experts in a row, so that lanes are busy where one expert has few.
  for (uint i = lane; i < uint(K) * n_steps; i += 32u) {
    const uint slot = position * uint(K) + i / n_steps;
    const uint step = i % n_steps;
    const uint64_t base = uint64_t(ids[slot]) * uint64_t(n_rows);
    Format::Packed packed[RW];
    for (uint r = 0u; r < uint(RW); r++) {
      // Past the last row the last is read again, and its sum is not stored.
      const uint64_t row = base + uint64_t(min(first_row + r, n_rows - 1u));
      packed[r] = Format::load(planes, row, n_columns, step);
    }
    for (uint c = 0u; c < uint(Format::CHUNKS); c++) {
      const uint column = Format::column(step, c);
      const Values v = values_at(hidden, uint64_t(slot) * uint64_t(n_columns) + uint64_t(column));
      const float sum = Format::HAS_OFFSET ? sum_of(v) : 0.0f;
      for (uint r = 0u; r < uint(RW); r++) {
        sums[r] += product(Format::chunk(packed[r], step, c, words), v, sum);
      }
    }
  }
  for (uint r = 0u; r < uint(RW); r++) {
    const float y = simd_sum(sums[r]);
    if (lane == 0u && first_row + r < n_rows) {
      out[uint64_t(position) * uint64_t(n_rows) + uint64_t(first_row + r)] = y;
    }
  }
}
