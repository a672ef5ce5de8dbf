// What a position leaves behind, by the first STORE_GROUPS groups. 0: its window row; 1: the compressed
// row that it completes, if it does; 2: that of the indexer; the others: rings with the new row in
// place. A lane of a row's group has a pair of neighbours: a simdgroup has the 64 that share a scale.
// x: of the attention's input; the window row from KV_AT on, then the compressor's values and
// scores, then the indexer's. turns: cosines and sines of the position; row_turns: of the group's.
// now[0]: position. capacities: of window, frontier and indexer's frontier.
const int W = R == 4 ? 2 * D : D;           // values of the compressor, as many scores
const int INDEX_W = 2 * DI;
const int COMPRESSOR_AT = KV_AT + D, INDEX_AT = COMPRESSOR_AT + 2 * W;
threadgroup float squares[8];
const int store_group = int(threadgroup_position_in_grid.x), group = store_group - STORE_GROUPS;
const int thread_at = int(thread_position_in_threadgroup.x);
const int lane = int(thread_index_in_simdgroup), simd = int(simdgroup_index_in_threadgroup);
const int position = now[0];
const bool completes = R > 0 && (position + 1) % (R > 0 ? R : 1) == 0;
if (group >= 0) {
  // Rows of queries: see below.
} else if (R == 0 && (store_group == 1 || store_group == 2)) {
  // There are no compressed rows.
} else if (store_group < 2) {
  const int column = 2 * thread_at;
  float a = 0.0f, b = 0.0f;
  if (column < D) {
    if (store_group == 0) {
      a = x[KV_AT + column];
      b = x[KV_AT + column + 1];
    } else if (completes) {
      a = pooled_of<(R > 0 ? R : 4)>(frontier, x + COMPRESSOR_AT, ape, capacities[1], W, D, position, column);
      b = pooled_of<(R > 0 ? R : 4)>(frontier, x + COMPRESSOR_AT, ape, capacities[1], W, D, position, column + 1);
    }
  }
  float square = simd_sum(a * a + b * b);
  if (lane == 0) squares[simd] = square;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  square = 0.0f;
  for (int i = 0; i < 8; i++) square += squares[i];
  const float factor = 1.0f / sqrt(square / float(D) + numbers[0]);
  if (column < D) {
    a *= factor * (store_group == 0 ? kv_norm[column] : row_norm[column]);
    b *= factor * (store_group == 0 ? kv_norm[column + 1] : row_norm[column + 1]);
    if (column >= D - 64) {
      const int pair = (column - (D - 64)) / 2;
      const float c = store_group == 0 ? turns[pair] : row_turns[pair];
      const float s = store_group == 0 ? turns[32 + pair] : row_turns[32 + pair];
      const float turned = a * c - b * s;
      b = a * s + b * c;
      a = turned;
    }
  }
  const float largest = simd_max(max(size_of(a), size_of(b)));
  if (column < D) {
    if (column < D - 64) {
      a = through_fp8(a, largest);
      b = through_fp8(b, largest);
    }
    if (store_group == 0) {
      const int64_t to = int64_t(position % capacities[0]) * D + column;
      new_window[to] = float(half(a));
      new_window[to + 1] = float(half(b));
    } else if (R > 0) {
      row[column] = half(completes ? a : 0.0f);
      row[column + 1] = half(completes ? b : 0.0f);
    }
  }
} else if (store_group == 2) {
  if (R == 4 && simd == 0) {
    float4 v = float4{0.0f, 0.0f, 0.0f, 0.0f};
    if (completes) {
      const int c = 4 * lane;
      v.x = pooled_of<4>(index_frontier, x + INDEX_AT, index_ape, capacities[2], INDEX_W, DI, position, c);
      v.y = pooled_of<4>(index_frontier, x + INDEX_AT, index_ape, capacities[2], INDEX_W, DI, position, c + 1);
      v.z = pooled_of<4>(index_frontier, x + INDEX_AT, index_ape, capacities[2], INDEX_W, DI, position, c + 2);
      v.w = pooled_of<4>(index_frontier, x + INDEX_AT, index_ape, capacities[2], INDEX_W, DI, position, c + 3);
    }
    const float square = simd_sum(v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w);
    const float factor = 1.0f / sqrt(square / float(DI) + numbers[0]);
    const float4 m = *(const device float4*)(index_norm + 4 * lane);
    v = float4{v.x * factor * m.x, v.y * factor * m.y, v.z * factor * m.z, v.w * factor * m.w};
    if (lane >= 16) {
      const int pair = 2 * (lane - 16);
      float c = row_turns[pair], s = row_turns[32 + pair], e = row_turns[pair + 1], f = row_turns[33 + pair];
      v = float4{v.x * c - v.y * s, v.x * s + v.y * c, v.z * e - v.w * f, v.z * f + v.w * e};
    }
    v = index_row_of(v, lane);
    index_row[4 * lane] = half(v.x);
    index_row[4 * lane + 1] = half(v.y);
    index_row[4 * lane + 2] = half(v.z);
    index_row[4 * lane + 3] = half(v.w);
  }
} else {
  const int first = (store_group - 3) * 256 + thread_at, step = (STORE_GROUPS - 3) * 256;
  for (int i = first; i < capacities[0] * D / 4; i += step) {
    if (4 * i / D != position % capacities[0]) {
      *(device float4*)(new_window + 4 * i) = *(const device float4*)(window + 4 * i);
    }
  }
  if (R > 0) {
    for (int i = first; i < capacities[1] * 2 * W / 4; i += step) {
      const int place = 4 * i / (2 * W), column = 4 * i - place * 2 * W;
      float4 v;
      if (place == position % capacities[1]) {
        v = *(const device float4*)(x + COMPRESSOR_AT + column);
        if (column >= W) {
          const float4 e = *(const device float4*)(ape + (position % (R > 0 ? R : 1)) * W + column - W);
          v = float4{v.x + e.x, v.y + e.y, v.z + e.z, v.w + e.w};
        }
      } else {
        v = *(const device float4*)(frontier + 4 * i);
      }
      *(device float4*)(new_frontier + 4 * i) = v;
    }
  }
  if (R == 4) {
    for (int i = first; i < capacities[2] * 2 * INDEX_W / 4; i += step) {
      const int place = 4 * i / (2 * INDEX_W), column = 4 * i - place * 2 * INDEX_W;
      float4 v;
      if (place == position % capacities[2]) {
        v = *(const device float4*)(x + INDEX_AT + column);
        if (column >= INDEX_W) {
          const float4 e = *(const device float4*)(index_ape + (position % 4) * INDEX_W + column - INDEX_W);
          v = float4{v.x + e.x, v.y + e.y, v.z + e.z, v.w + e.w};
        }
      } else {
        v = *(const device float4*)(index_frontier + 4 * i);
      }
      *(device float4*)(new_index_frontier + 4 * i) = v;
    }
  }
}
