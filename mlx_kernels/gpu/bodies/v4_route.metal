// The experts of a token and their weights, ids of a choice by score ascending, by the first simdgroup
// of the first group, which does no rows. x: the router's products from AT on [E]. With a table [V, K] the ids are those of
// the token. numbers[1]: scale of the weights.
if (group < 0 && simdgroup_index_in_threadgroup == 0u) {
  const int PER_LANE = (E + 31) / 32;
  const int lane = int(thread_index_in_simdgroup);
  int id = 0; // of lanes below K
  if (HAS_TABLE) {
    if (lane < K) id = table[int64_t(token[0]) * K + lane];
  } else {
    float scores[PER_LANE];
    for (int j = 0; j < PER_LANE; j++) {
      const int e = 32 * j + lane;
      scores[j] = e < E ? affinity_of(x[AT + min(e, E - 1)]) + bias[min(e, E - 1)] : -INFINITY;
    }
    for (int k = 0; k < K; k++) {
      float best = -INFINITY;
      int which = 0;
      for (int j = 0; j < PER_LANE; j++) {
        if (scores[j] > best) {
          best = scores[j];
          which = 32 * j + lane;
        }
      }
      for (int step = 1; step < 32; step *= 2) {
        const float other = simd_shuffle_xor(best, uint16_t(step));
        const int other_which = simd_shuffle_xor(which, uint16_t(step));
        if (other > best || (other == best && other_which < which)) {
          best = other;
          which = other_which;
        }
      }
      for (int j = 0; j < PER_LANE; j++) {
        if (32 * j + lane == which) scores[j] = -INFINITY;
      }
      if (lane == k) id = which;
    }
  }
  const float chosen = lane < K ? affinity_of(x[AT + id]) : 0.0f;
  const float total = max(simd_sum(chosen), 6.103515625e-05f); // 2^-14: a sum of nearly nothing
  int rank = lane;
  if (!HAS_TABLE) {
    rank = 0;
    // NaN everywhere chooses one expert several times: each place is written all the same.
    for (int k = 0; k < K; k++) {
      const int other = simd_shuffle(id, uint16_t(k));
      rank += other < id || (other == id && k < lane) ? 1 : 0;
    }
  }
  if (lane < K) {
    ids[rank] = id;
    weights[rank] = numbers[1] * chosen / total;
  }
}
