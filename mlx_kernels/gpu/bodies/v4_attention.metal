// One query over 32 rows a group, a head a simdgroup: the first chunks are window rows, by place in
// the ring, the others compressed rows. Each chunk leaves its own largest score, sum and mixture.
// q: heads [H, D] before norm and turn. turns: cosines, then sines of the position.
// now: position, window rows, compressed rows to read. sizes: heads, capacity of the ring, window.
const int J = D / 256; // a lane has 8 neighbours of each 256 values
const int lane = int(thread_index_in_simdgroup);
const int chunk = int(threadgroup_position_in_grid.x);
const int head = int(threadgroup_position_in_grid.y) * 8 + int(simdgroup_index_in_threadgroup);
const int n_heads = sizes[0], n_near_chunks = sizes[2] / 32;
if (head < n_heads) {
  float q[8 * J];
  float square = 0.0f;
  for (int j = 0; j < J; j++) {
    for (int i = 0; i < 8; i++) {
      float v = heads[int64_t(head) * D + 256 * j + 8 * lane + i];
      q[8 * j + i] = v;
      square += v * v;
    }
  }
  const float norm = 1.0f / sqrt(simd_sum(square) / float(D) + numbers[0]);
  const float scale = 1.0f / sqrt(float(D));
  for (int j = 0; j < J; j++) {
    const int pair = (256 * j + 8 * lane - (D - 64)) / 2; // of the rotary values, the last 64
    for (int i = 0; i < 4; i++) {
      float a = q[8 * j + 2 * i] * norm, b = q[8 * j + 2 * i + 1] * norm;
      if (256 * j + 8 * lane >= D - 64) {
        float c = turns[pair + i], s = turns[32 + pair + i];
        q[8 * j + 2 * i] = a * c - b * s;
        q[8 * j + 2 * i + 1] = a * s + b * c;
      } else {
        q[8 * j + 2 * i] = a;
        q[8 * j + 2 * i + 1] = b;
      }
    }
  }
  const bool is_near = chunk < n_near_chunks;
  const int first = (is_near ? chunk : chunk - n_near_chunks) * 32;
  const int n_rows = min(32, int(is_near ? now[1] : now[2]) - first);
  // The place of row ``lane``. A chunk without rows has n_rows <= 0.
  int place = 0;
  if (lane < n_rows) {
    if (is_near) place = (now[0] + 1 - now[1] + first + lane) % sizes[1];
    else place = HAS_INDEX ? int(index[first + lane]) : first + lane;
  }
  float score = 0.0f;
  for (int batch = 0; batch < 4; batch++) {
    float part[8];
    for (int r = 0; r < 8; r++) {
      const int row = simd_shuffle(place, uint16_t(8 * batch + r));
      float total = 0.0f;
      if (8 * batch + r < n_rows) {
        for (int j = 0; j < J; j++) {
          const int64_t at = int64_t(row) * D + 256 * j + 8 * lane;
          if (is_near) {
            float4 a = *(const device float4*)(window + at), b = *(const device float4*)(window + at + 4);
            total += a.x * q[8 * j] + a.y * q[8 * j + 1] + a.z * q[8 * j + 2] + a.w * q[8 * j + 3];
            total += b.x * q[8 * j + 4] + b.y * q[8 * j + 5] + b.z * q[8 * j + 6] + b.w * q[8 * j + 7];
          } else {
            uint4 w = *(const device uint4*)(rows + at);
            total += dot_of_halves(w, float4{q[8 * j], q[8 * j + 1], q[8 * j + 2], q[8 * j + 3]},
                                   float4{q[8 * j + 4], q[8 * j + 5], q[8 * j + 6], q[8 * j + 7]});
          }
        }
      }
      part[r] = total;
    }
    // Sums over the lanes of eight rows at once: lane l gets row l % 8.
    for (int step = 4; step > 0; step /= 2) {
      const bool is_high = (lane & step) != 0;
      for (int i = 0; i < step; i++) {
        float keep = is_high ? part[i + step] : part[i], send = is_high ? part[i] : part[i + step];
        part[i] = keep + simd_shuffle_xor(send, uint16_t(step));
      }
    }
    part[0] += simd_shuffle_xor(part[0], uint16_t(8));
    part[0] += simd_shuffle_xor(part[0], uint16_t(16));
    if ((lane >> 3) == batch) score = part[0] * scale;
  }
  const float top = simd_max(lane < n_rows ? score : -3.0e38f);
  const float share = lane < n_rows ? exp(score - top) : 0.0f;
  const float total = simd_sum(share);
  float sum[8 * J];
  for (int i = 0; i < 8 * J; i++) sum[i] = 0.0f;
  for (int batch = 0; batch < 4; batch++) {
    for (int r = 0; r < 8; r++) {
      const int row = simd_shuffle(place, uint16_t(8 * batch + r));
      const float p = simd_shuffle(share, uint16_t(8 * batch + r));
      if (8 * batch + r < n_rows) {
        for (int j = 0; j < J; j++) {
          const int64_t at = int64_t(row) * D + 256 * j + 8 * lane;
          if (is_near) {
            float4 a = *(const device float4*)(window + at), b = *(const device float4*)(window + at + 4);
            sum[8 * j] += p * a.x;
            sum[8 * j + 1] += p * a.y;
            sum[8 * j + 2] += p * a.z;
            sum[8 * j + 3] += p * a.w;
            sum[8 * j + 4] += p * b.x;
            sum[8 * j + 5] += p * b.y;
            sum[8 * j + 6] += p * b.z;
            sum[8 * j + 7] += p * b.w;
          } else {
            uint4 w = *(const device uint4*)(rows + at);
            sum[8 * j] += p * low_half_of(w.x);
            sum[8 * j + 1] += p * high_half_of(w.x);
            sum[8 * j + 2] += p * low_half_of(w.y);
            sum[8 * j + 3] += p * high_half_of(w.y);
            sum[8 * j + 4] += p * low_half_of(w.z);
            sum[8 * j + 5] += p * high_half_of(w.z);
            sum[8 * j + 6] += p * low_half_of(w.w);
            sum[8 * j + 7] += p * high_half_of(w.w);
          }
        }
      }
    }
  }
  const int64_t slot = int64_t(chunk) * n_heads + head;
  for (int j = 0; j < J; j++) {
    device float* to = mixed + slot * D + 256 * j + 8 * lane;
    *(device float4*)to = float4{sum[8 * j], sum[8 * j + 1], sum[8 * j + 2], sum[8 * j + 3]};
    *(device float4*)(to + 4) = float4{sum[8 * j + 4], sum[8 * j + 5], sum[8 * j + 6], sum[8 * j + 7]};
  }
  if (lane == 0) {
    shares[2 * slot] = top;
    shares[2 * slot + 1] = total;
  }
}
