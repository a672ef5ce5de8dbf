// scores[row] = sum over the indexer's heads of weight * max(0, head . row). A simdgroup has eight
// heads, which it turns and rounds first; a group goes over tiles of 32 rows.
// heads: from AT on [HEADS, 128]; products: the weights from WEIGHTS_AT on. now[4]: rows.
threadgroup float sums[8 * 32];
const int lane = int(thread_index_in_simdgroup), simd = int(simdgroup_index_in_threadgroup);
float4 q[8];
float weight = 0.0f;
if (8 * simd < HEADS) {
  for (int h = 0; h < 8; h++) {
    float4 v = *(const device float4*)(heads + AT + (8 * simd + h) * 128 + 4 * lane);
    if (lane >= 16) {
      const int pair = 2 * (lane - 16);
      float c = turns[pair], s = turns[32 + pair], e = turns[pair + 1], f = turns[33 + pair];
      v = float4{v.x * c - v.y * s, v.x * s + v.y * c, v.z * e - v.w * f, v.z * f + v.w * e};
    }
    q[h] = index_row_of(v, lane);
  }
  weight = products[WEIGHTS_AT + 8 * simd + (lane & 7)] * numbers[1];
}
const int n_rows = now[4];
for (int tile = int(threadgroup_position_in_grid.x); tile * 32 < n_rows; tile += int(threadgroups_per_grid.x)) {
  float mine = 0.0f;
  if (8 * simd < HEADS) {
    for (int batch = 0; batch < 8; batch++) {
      float part[32];
      for (int r = 0; r < 4; r++) {
        const int row = min(tile * 32 + 4 * batch + r, n_rows - 1);
        const uint2 w = *(const device uint2*)(rows + int64_t(row) * 128 + 4 * lane);
        const float a = low_half_of(w.x), b = high_half_of(w.x), c = low_half_of(w.y), d = high_half_of(w.y);
        for (int h = 0; h < 8; h++) part[8 * r + h] = a * q[h].x + b * q[h].y + c * q[h].z + d * q[h].w;
      }
      // Sums over the lanes of 32 products at once: lane l gets product l, row l / 8, head l % 8.
      for (int step = 16; step > 0; step /= 2) {
        const bool is_high = (lane & step) != 0;
        for (int i = 0; i < step; i++) {
          float keep = is_high ? part[i + step] : part[i], send = is_high ? part[i] : part[i + step];
          part[i] = keep + simd_shuffle_xor(send, uint16_t(step));
        }
      }
      float score = part[0] < 0.0f ? 0.0f : weight * part[0];
      score += simd_shuffle_xor(score, uint16_t(1));
      score += simd_shuffle_xor(score, uint16_t(2));
      score += simd_shuffle_xor(score, uint16_t(4));
      if ((lane & 7) == batch) mine = score; // row 4 (lane % 8) + lane / 8
    }
  }
  sums[32 * simd + lane] = mine;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (simd == 0) {
    float total = 0.0f;
    for (int i = 0; i < 8; i++) total += sums[32 * i + lane];
    const int row = tile * 32 + 4 * (lane & 7) + (lane >> 3);
    if (row < n_rows) scores[row] = total;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}
