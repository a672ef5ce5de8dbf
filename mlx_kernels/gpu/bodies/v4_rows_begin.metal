// The rows of a group: Q8_0 (signed bytes, and a half for each 32), or halves behind them. A simdgroup
// takes RW rows at a time, a lane 16 neighbours of each, UN 16-byte loads of each in flight. The first
// ones are asked for here, before the input is staged.
// sizes: rows of Q8_0, rows of halves, groups for Q8_0, rows of such a group, rows of the others.
// A matrix whose rows have PARTS times N_COLUMNS values is done as PARTS times its sizes[5] rows, those
// with the first columns on top: a sum of the parts is left to the next launch.
const int N_STEPS = (N_COLUMNS + 511) / 512; // of 512 columns
const int AT_ONCE = UN < N_STEPS ? UN : N_STEPS;              // steps of Q8_0 in flight
const int HALVES_AT_ONCE = UN / 2 < N_STEPS ? UN / 2 : N_STEPS;
const int rows_lane = int(thread_index_in_simdgroup);
const bool has_halves = group >= int(sizes[2]);
const int first_row = (has_halves ? (group - int(sizes[2])) * int(sizes[4]) : group * int(sizes[3])) +
    int(simdgroup_index_in_threadgroup) * RW;
const int last_row = has_halves
    ? min((group - int(sizes[2]) + 1) * int(sizes[4]), int(sizes[1])) - 1
    : min((group + 1) * int(sizes[3]), int(sizes[0])) - 1;
const int ROW_STRIDE = PARTS * N_COLUMNS;
// What to add to a row's number times ROW_STRIDE.
const int64_t part_base = PARTS > 1
    ? int64_t(group * int(sizes[3]) / int(sizes[5])) * (N_COLUMNS - int64_t(sizes[5]) * ROW_STRIDE)
    : 0;
uint4 words[RW][UN];
float word_scales[RW][UN];
if (group >= 0 && first_row <= last_row) {
  for (int r = 0; r < RW; r++) {
    const int64_t at = int64_t(min(first_row + r, last_row)) * ROW_STRIDE + part_base + rows_lane * 16;
    if (has_halves) {
      for (int u = 0; u < HALVES_AT_ONCE; u++) {
        if (u * 512 + rows_lane * 16 < N_COLUMNS) {
          words[r][2 * u] = *(const device uint4*)(halves + at + u * 512);
          words[r][2 * u + 1] = *(const device uint4*)(halves + at + u * 512 + 8);
        }
      }
    } else {
      for (int u = 0; u < AT_ONCE; u++) {
        if (u * 512 + rows_lane * 16 < N_COLUMNS) {
          words[r][u] = *(const device uint4*)(quants + at + u * 512);
          word_scales[r][u] = float(*(const device half*)(factors + (at + u * 512) / 32 * 2));
        }
      }
    }
  }
}
