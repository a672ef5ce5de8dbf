// out[t, row] = sum over columns of weight[row, column] x[t, column], plus bias and residual, for up
// to T positions. With HAS_NORM x is the RMS norm of x: squares are summed along the way, and their
// root divides at the end. A simdgroup takes RW rows; a lane a step of each of them at a time.
// Template: T, RW, HAS_NORM, HAS_BIAS, HAS_RESIDUAL. sizes: rows, columns.
threadgroup uint words[Format::TABLE_WORDS + 1];
if (Format::TABLE_WORDS > 0) {
  Format::fill(table, words, thread_index_in_threadgroup, threads_per_threadgroup.x);
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
const uint n_rows = uint(sizes[0]);
const uint n_columns = uint(sizes[1]);
const uint n_positions = uint(x_shape[0]);
const uint n_steps = n_columns / uint(Format::STEP);
const uint lane = thread_index_in_simdgroup;
const uint first_row =
    (threadgroup_position_in_grid.x * simdgroups_per_threadgroup + simdgroup_index_in_threadgroup) *
    uint(RW);
if (first_row < n_rows) {
  Planes planes;
  planes.quants = quants;
  planes.high = high;
  planes.scales = scales;
  planes.factors = factors;
  float sums[RW][T];
  float squares[T];
  for (uint t = 0u; t < uint(T); t++) {
    squares[t] = 0.0f;
    for (uint r = 0u; r < uint(RW); r++) {
      sums[r][t] = 0.0f;
    }
  }
  for (uint step = lane; step < n_steps; step += 32u) {
    Format::Packed packed[RW];
    for (uint r = 0u; r < uint(RW); r++) {
      // Past the last row the last is read again, and its sum is not stored.
      packed[r] = Format::load(planes, uint64_t(min(first_row + r, n_rows - 1u)), n_columns, step);
    }
    for (uint c = 0u; c < uint(Format::CHUNKS); c++) {
      const uint column = Format::column(step, c);
      Chunk chunks[RW];
      for (uint r = 0u; r < uint(RW); r++) {
        chunks[r] = Format::chunk(packed[r], step, c, words);
      }
      for (uint t = 0u; t < uint(T); t++) {
        const uint64_t position = uint64_t(min(t, n_positions - 1u));
        Values v = values_at(x, position * uint64_t(n_columns) + uint64_t(column));
        if (HAS_NORM) {
          squares[t] += sum_of_squares(v);
          v = times(v, values_at(norm, uint64_t(column)));
        }
        const float sum = Format::HAS_OFFSET ? sum_of(v) : 0.0f;
        for (uint r = 0u; r < uint(RW); r++) {
          sums[r][t] += product(chunks[r], v, sum);
        }
      }
    }
  }
  for (uint t = 0u; t < uint(T); t++) {
    float factor = 1.0f;
    if (HAS_NORM) {
      factor = rsqrt(simd_sum(squares[t]) / float(n_columns) + eps[0]);
    }
    for (uint r = 0u; r < uint(RW); r++) {
      float y = simd_sum(sums[r][t]) * factor;
      const uint row = first_row + r;
      if (lane == 0u && row < n_rows && t < n_positions) {
        const uint64_t at = uint64_t(t) * uint64_t(n_rows) + uint64_t(row);
        if (HAS_BIAS) {
          y += bias[row];
        }
        if (HAS_RESIDUAL) {
          y += residual[at];
        }
        out[at] = y;
      }
    }
  }
}
