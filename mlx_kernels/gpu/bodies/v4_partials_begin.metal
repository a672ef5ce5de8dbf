// A simdgroup's rows of the next hyper-connection's matrix fn [N_ROWS, 4 C], for the group's 64 columns
// of each stream: asked for before the streams are there. A lane has two columns.
const int PER_SIMD = (N_ROWS + 7) / 8;
uint32_t fn_words[PER_SIMD][4];
for (int r = 0; r < PER_SIMD; r++) {
  const int row = int(simdgroup_index_in_threadgroup) + 8 * r;
  for (int stream = 0; stream < 4; stream++) {
    const int64_t at = int64_t(min(row, N_ROWS - 1) * 4 + stream) * int(sizes[0]) +
        int(threadgroup_position_in_grid.x) * 64 + 2 * int(thread_index_in_simdgroup);
    fn_words[r][stream] = *(const device uint32_t*)(fn + at);
  }
}
