// out[row] = factor times the product of a row with the staged vector: rows of Q8_0 (signed bytes,
// and a half for each 32), then rows of halves. A simdgroup takes RW rows at a time, a lane 16
// neighbours of each, UN times in flight.
// sizes: rows of Q8_0, rows of halves, groups for Q8_0, rows of such a group, rows of the others.
{
  const int lane = int(thread_index_in_simdgroup), simd = int(simdgroup_index_in_threadgroup);
  const int N_STEPS = (N_COLUMNS + 511) / 512;
  const int groups8 = sizes[2];
  if (group >= 0 && group < groups8) {
    const int first = group * sizes[3], stop = min(first + sizes[3], int(sizes[0]));
    for (int row = first + simd * RW; row < stop; row += 8 * RW) {
      float totals[RW];
      for (int r = 0; r < RW; r++) totals[r] = 0.0f;
      for (int step = 0; step < N_STEPS; step += UN) {
        uint4 weights[RW][UN];
        float scales[RW][UN];
        for (int r = 0; r < RW; r++) {
          const int64_t at = int64_t(min(row + r, stop - 1)) * N_COLUMNS;
          for (int u = 0; u < UN; u++) {
            const int column = (step + u) * 512 + lane * 16;
            if (column < N_COLUMNS) {
              weights[r][u] = *(const device uint4*)(quants + at + column);
              scales[r][u] = float(*(const device half*)(factors + (at + column) / 32 * 2));
            }
          }
        }
        for (int u = 0; u < UN; u++) {
          if ((step + u) * 512 + lane * 16 < N_COLUMNS) {
            const int from = (step + u) * 128 + lane;
            float4 a = staged[from], b = staged[from + 32], c = staged[from + 64], d = staged[from + 96];
            for (int r = 0; r < RW; r++) {
              totals[r] += scales[r][u] * dot_of_bytes(weights[r][u], a, b, c, d);
            }
          }
        }
      }
      for (int r = 0; r < RW; r++) {
        float total = simd_sum(totals[r]) * factor;
        if (lane == 0 && row + r < stop) out[row + r] = total;
      }
    }
  } else if (group >= groups8) {
    const int first = (group - groups8) * sizes[4], stop = min(first + sizes[4], int(sizes[1]));
    for (int row = first + simd * RW; row < stop; row += 8 * RW) {
      float totals[RW];
      for (int r = 0; r < RW; r++) totals[r] = 0.0f;
      const int HALF_UN = UN > 1 ? UN / 2 : 1;
      for (int step = 0; step < N_STEPS; step += HALF_UN) {
        uint4 weights[RW][HALF_UN], more[RW][HALF_UN];
        for (int r = 0; r < RW; r++) {
          const int64_t at = int64_t(min(row + r, stop - 1)) * N_COLUMNS;
          for (int u = 0; u < HALF_UN; u++) {
            const int column = (step + u) * 512 + lane * 16;
            if (column < N_COLUMNS) {
              weights[r][u] = *(const device uint4*)(halves + at + column);
              more[r][u] = *(const device uint4*)(halves + at + column + 8);
            }
          }
        }
        for (int u = 0; u < HALF_UN; u++) {
          if ((step + u) * 512 + lane * 16 < N_COLUMNS) {
            const int from = (step + u) * 128 + lane;
            float4 a = staged[from], b = staged[from + 32], c = staged[from + 64], d = staged[from + 96];
            for (int r = 0; r < RW; r++) {
              totals[r] += dot_of_halves(weights[r][u], a, b) + dot_of_halves(more[r][u], c, d);
            }
          }
        }
      }
      for (int r = 0; r < RW; r++) {
        float total = simd_sum(totals[r]) * factor;
        if (lane == 0 && row + r < stop) out[sizes[0] + row + r] = total;
      }
    }
  }
}
