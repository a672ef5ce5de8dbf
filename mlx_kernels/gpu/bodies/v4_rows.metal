// out[row] = factor times the product of a row with the staged vector.
if (group >= 0) {
  for (int row = first_row; row <= last_row; row += SIMDS * RW) {
    float totals[RW];
    for (int r = 0; r < RW; r++) totals[r] = 0.0f;
    if (has_halves) {
      for (int step = 0; step < N_STEPS; step += HALVES_AT_ONCE) {
        if (row != first_row || step != 0) {
          for (int r = 0; r < RW; r++) {
            const int64_t at = int64_t(min(row + r, last_row)) * ROW_STRIDE + part_base;
            for (int u = 0; u < HALVES_AT_ONCE; u++) {
              const int column = (step + u) * 512 + rows_lane * 16;
              if (column < N_COLUMNS) {
                words[r][2 * u] = *(const device uint4*)(halves + at + column);
                words[r][2 * u + 1] = *(const device uint4*)(halves + at + column + 8);
              }
            }
          }
        }
        for (int u = 0; u < HALVES_AT_ONCE; u++) {
          if ((step + u) * 512 + rows_lane * 16 < N_COLUMNS) {
            const int from = (step + u) * 128 + rows_lane;
            const float4 a = staged[from], b = staged[from + 32], c = staged[from + 64], d = staged[from + 96];
            for (int r = 0; r < RW; r++) {
              totals[r] += dot_of_halves(words[r][2 * u], a, b) + dot_of_halves(words[r][2 * u + 1], c, d);
            }
          }
        }
      }
    } else {
      for (int step = 0; step < N_STEPS; step += AT_ONCE) {
        if (row != first_row || step != 0) {
          for (int r = 0; r < RW; r++) {
            const int64_t at = int64_t(min(row + r, last_row)) * ROW_STRIDE + part_base;
            for (int u = 0; u < AT_ONCE; u++) {
              const int column = (step + u) * 512 + rows_lane * 16;
              if (column < N_COLUMNS) {
                words[r][u] = *(const device uint4*)(quants + at + column);
                word_scales[r][u] = float(*(const device half*)(factors + (at + column) / 32 * 2));
              }
            }
          }
        }
        for (int u = 0; u < AT_ONCE; u++) {
          if ((step + u) * 512 + rows_lane * 16 < N_COLUMNS) {
            const int from = (step + u) * 128 + rows_lane;
            const float4 a = staged[from], b = staged[from + 32], c = staged[from + 64], d = staged[from + 96];
            for (int r = 0; r < RW; r++) {
              totals[r] += word_scales[r][u] * dot_of_bytes(words[r][u], a, b, c, d);
            }
          }
        }
      }
    }
    for (int r = 0; r < RW; r++) {
      const float total = simd_sum(totals[r]) * factor;
      if (rows_lane == 0 && row + r <= last_row) out[(has_halves ? int(sizes[0]) : 0) + row + r] = total;
    }
  }
}
