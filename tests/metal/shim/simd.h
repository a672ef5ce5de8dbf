// Operations over the 32 lanes of a simdgroup, and barriers. The last argument is the line of the
// call, so that a divergence names it.
#pragma once

#define CALL_LINE int line = __builtin_LINE()

namespace metal {

enum class mem_flags { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_device_and_threadgroup = 3 };
constexpr mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

inline void threadgroup_barrier(mem_flags flags, CALL_LINE) { rt_barrier(1, unsigned(flags), line); }
inline void simdgroup_barrier(mem_flags flags, CALL_LINE) { rt_barrier(0, unsigned(flags), line); }

template <class T>
inline rt_row* exchange(const T& value, const char* operation, int line) {
  static_assert(sizeof(T) <= RT_SLOT_BYTES && std::is_trivially_copy_constructible_v<T>);
  return rt_exchange(&value, sizeof(T), operation, line);
}

template <class T>
inline T slot(const rt_row* row, unsigned lane) {
  T value;
  __builtin_memcpy(&value, row->slot[lane], sizeof(T));
  return value;
}

// Undefined values in Metal: 0xFF in every byte, which is NaN in a float.
template <class T>
inline T undefined_value() {
  T value;
  __builtin_memset(&value, 0xFF, sizeof(T));
  return value;
}

// Combine the active lanes in the order of a butterfly: the same result in every lane and run.
template <class T, class F>
inline T reduce(const T& value, const char* operation, int line, F combine) {
  rt_row* row = exchange(value, operation, line);
  T part[RT_LANES];
  if (!row->reduced) {
    bool present[RT_LANES];
    for (unsigned i = 0; i < RT_LANES; ++i) {
      part[i] = slot<T>(row, i);
      present[i] = row->active >> i & 1;
    }
    for (unsigned step = 1; step < RT_LANES; step *= 2) {
      for (unsigned i = 0; i < RT_LANES; i += 2 * step) {
        if (present[i] && present[i + step]) part[i] = combine(part[i], part[i + step]);
        else if (present[i + step]) part[i] = part[i + step];
        present[i] = present[i] || present[i + step];
      }
    }
    __builtin_memcpy(row->result, part, sizeof(T));
    row->reduced = 1;
  }
  T result;
  __builtin_memcpy(&result, row->result, sizeof(T));
  return result;
}

template <class T>
inline T simd_sum(T v, CALL_LINE) { return reduce(v, "simd_sum", line, [](T a, T b) { return T(a + b); }); }
template <class T>
inline T simd_product(T v, CALL_LINE) { return reduce(v, "simd_product", line, [](T a, T b) { return T(a * b); }); }
template <class T>
inline T simd_max(T v, CALL_LINE) { return reduce(v, "simd_max", line, [](T a, T b) { return max(a, b); }); }
template <class T>
inline T simd_min(T v, CALL_LINE) { return reduce(v, "simd_min", line, [](T a, T b) { return min(a, b); }); }
template <integer T>
inline T simd_and(T v, CALL_LINE) { return reduce(v, "simd_and", line, [](T a, T b) { return T(a & b); }); }
template <integer T>
inline T simd_or(T v, CALL_LINE) { return reduce(v, "simd_or", line, [](T a, T b) { return T(a | b); }); }
template <integer T>
inline T simd_xor(T v, CALL_LINE) { return reduce(v, "simd_xor", line, [](T a, T b) { return T(a ^ b); }); }
inline bool simd_all(bool v, CALL_LINE) { return reduce(v, "simd_all", line, [](bool a, bool b) { return a && b; }); }
inline bool simd_any(bool v, CALL_LINE) { return reduce(v, "simd_any", line, [](bool a, bool b) { return a || b; }); }

// A value of a lane that does not take part is a mistake. Past the end of the simdgroup up and down
// give undefined values; a lane that is named must be a valid one (Metal specification 6.9.2).
inline void must_be_lane(unsigned lane, const char* message, int line) {
  if (lane >= RT_LANES) rt_fail(message, line);
}
template <class T>
inline T from_lane(const rt_row* row, unsigned lane, const char* operation, int line) {
  if (lane >= RT_LANES) return undefined_value<T>();
  if (!(row->active >> lane & 1)) rt_fail(operation, line);
  return slot<T>(row, lane);
}

template <class T>
inline T simd_shuffle(T v, ushort lane, CALL_LINE) {
  must_be_lane(lane, "simd_shuffle from a lane past 31", line);
  return from_lane<T>(exchange(v, "simd_shuffle", line), lane, "simd_shuffle from an inactive lane", line);
}
template <class T>
inline T simd_broadcast(T v, ushort lane, CALL_LINE) {
  must_be_lane(lane, "simd_broadcast from a lane past 31", line);
  return from_lane<T>(exchange(v, "simd_broadcast", line), lane, "simd_broadcast from an inactive lane", line);
}
template <class T>
inline T simd_broadcast_first(T v, CALL_LINE) {
  rt_row* row = exchange(v, "simd_broadcast_first", line);
  return slot<T>(row, unsigned(__builtin_ctz(row->active)));
}
template <class T>
inline T simd_shuffle_xor(T v, ushort mask, CALL_LINE) {
  must_be_lane(mask, "simd_shuffle_xor with a lane past 31", line);
  rt_row* row = exchange(v, "simd_shuffle_xor", line);
  return from_lane<T>(row, rt_lane() ^ mask, "simd_shuffle_xor from an inactive lane", line);
}
template <class T>
inline T simd_shuffle_down(T v, ushort delta, CALL_LINE) {
  rt_row* row = exchange(v, "simd_shuffle_down", line);
  return from_lane<T>(row, rt_lane() + delta, "simd_shuffle_down from an inactive lane", line);
}
template <class T>
inline T simd_shuffle_up(T v, ushort delta, CALL_LINE) {
  rt_row* row = exchange(v, "simd_shuffle_up", line);
  return from_lane<T>(row, rt_lane() - delta, "simd_shuffle_up from an inactive lane", line);
}
template <class T>
inline T simd_prefix_inclusive_sum(T v, CALL_LINE) {
  rt_row* row = exchange(v, "simd_prefix_inclusive_sum", line);
  T sum = T(0);
  for (unsigned i = 0; i <= rt_lane(); ++i) if (row->active >> i & 1) sum = T(sum + slot<T>(row, i));
  return sum;
}
template <class T>
inline T simd_prefix_exclusive_sum(T v, CALL_LINE) {
  rt_row* row = exchange(v, "simd_prefix_exclusive_sum", line);
  T sum = T(0);
  for (unsigned i = 0; i < rt_lane(); ++i) if (row->active >> i & 1) sum = T(sum + slot<T>(row, i));
  return sum;
}

struct simd_vote {
  using vote_t = uint64_t;
  uint64_t mask;
  explicit operator vote_t() const { return mask; }
  bool all() const { return mask == 0xFFFFFFFFu; }
  bool any() const { return mask != 0; }
};
inline simd_vote simd_ballot(bool v, CALL_LINE) {
  rt_row* row = exchange(v, "simd_ballot", line);
  uint64_t mask = 0;
  for (unsigned i = 0; i < RT_LANES; ++i) {
    if ((row->active >> i & 1) && slot<bool>(row, i)) mask |= uint64_t(1) << i;
  }
  return {mask};
}

}  // namespace metal
