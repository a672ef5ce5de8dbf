// The K largest of scores, the lowest index first among equals, ascending. One group of 1024 threads.
// now[4]: scores, more than K. The K-th largest is found two bits at a time, of keys that order
// like the scores.
const int CACHED = 16; // keys of a thread in registers
threadgroup uint32_t counts[96];
const int lane = int(thread_index_in_simdgroup), simd = int(simdgroup_index_in_threadgroup);
const int at = int(thread_position_in_threadgroup.x), n = now[4];
uint32_t keys[CACHED];
for (int j = 0; j < CACHED; j++) keys[j] = 1024 * j + at < n ? order_of(scores[1024 * j + at]) : 0u;
uint32_t least = 0u;
for (int bit = 30; bit >= 0; bit -= 2) {
  const uint32_t one = least | (1u << bit), two = least | (2u << bit), three = least | (3u << bit);
  uint32_t n1 = 0u, n2 = 0u, n3 = 0u;
  for (int j = 0; j < CACHED; j++) {
    n1 += keys[j] >= one ? 1u : 0u;
    n2 += keys[j] >= two ? 1u : 0u;
    n3 += keys[j] >= three ? 1u : 0u;
  }
  for (int i = 1024 * CACHED + at; i < n; i += 1024) {
    const uint32_t key = order_of(scores[i]);
    n1 += key >= one ? 1u : 0u;
    n2 += key >= two ? 1u : 0u;
    n3 += key >= three ? 1u : 0u;
  }
  n1 = simd_sum(n1);
  n2 = simd_sum(n2);
  n3 = simd_sum(n3);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 0) {
    counts[simd] = n1;
    counts[32 + simd] = n2;
    counts[64 + simd] = n3;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  n1 = simd_sum(counts[lane]);
  n2 = simd_sum(counts[32 + lane]);
  n3 = simd_sum(counts[64 + lane]);
  least = n3 >= uint32_t(K) ? three : (n2 >= uint32_t(K) ? two : (n1 >= uint32_t(K) ? one : least));
}
uint32_t above = 0u;
for (int i = at; i < n; i += 1024) above += order_of(scores[i]) > least ? 1u : 0u;
above = simd_sum(above);
threadgroup_barrier(mem_flags::mem_threadgroup);
if (lane == 0) counts[simd] = above;
threadgroup_barrier(mem_flags::mem_threadgroup);
const uint32_t wanted = uint32_t(K) - simd_sum(counts[lane]); // of those equal to the least
uint32_t above_before = 0u, equal_before = 0u;
for (int first = 0; first < n; first += 1024) {
  const int i = first + at;
  const uint32_t key = i < n ? order_of(scores[i]) : 0u;
  const bool is_above = i < n && key > least, is_equal = i < n && key == least;
  uint32_t upto = is_above ? 1u : 0u, equal_upto = is_equal ? 1u : 0u; // this thread's included
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t a = simd_shuffle_up(upto, uint16_t(step)), e = simd_shuffle_up(equal_upto, uint16_t(step));
    if (lane >= step) {
      upto += a;
      equal_upto += e;
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (lane == 31) {
    counts[simd] = upto;
    counts[32 + simd] = equal_upto;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint32_t others = counts[lane], equal_others = counts[32 + lane];
  const uint32_t before = above_before + simd_sum(lane < simd ? others : 0u) + upto - (is_above ? 1u : 0u);
  const uint32_t equals = equal_before + simd_sum(lane < simd ? equal_others : 0u) + equal_upto - (is_equal ? 1u : 0u);
  if (is_above || (is_equal && equals < wanted)) index[before + min(equals, wanted)] = i;
  above_before += simd_sum(others);
  equal_before += simd_sum(equal_others);
}
