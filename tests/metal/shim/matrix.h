// 8 x 8 matrices spread over a simdgroup: two elements per lane, in the layout that MLX's own
// kernels rely on (a test runs one of them). With q = lane / 4: row (q & 4) + (lane / 2) % 4,
// columns 2 (q & 2) + 2 (lane % 2) and the next one.
#pragma once

namespace metal {

inline unsigned matrix_row(unsigned lane) { return (lane / 4 & 4) + lane / 2 % 4; }
inline unsigned matrix_column(unsigned lane) { return 2 * (lane / 4 & 2) + 2 * (lane % 2); }
inline unsigned matrix_lane(unsigned row, unsigned column) {
  return (row & 4) << 2 | (column & 4) << 1 | (row & 3) << 1 | (column >> 1 & 1);
}

template <class T, int Rows, int Columns = Rows>
struct simdgroup_matrix {
  static_assert(Rows == 8 && Columns == 8, "simdgroup matrices are 8 x 8");
  static_assert(floating<T>, "simdgroup matrices hold float, half or bfloat");
  vec<T, 2> elements;
  simdgroup_matrix() = default;
  explicit simdgroup_matrix(T diagonal) {
    unsigned lane = rt_lane();
    for (unsigned i = 0; i < 2; ++i) {
      elements[i] = matrix_row(lane) == matrix_column(lane) + i ? diagonal : T(0.0f);
    }
  }
  vec<T, 2>& thread_elements() { return elements; }
  const vec<T, 2>& thread_elements() const { return elements; }
};

template <class T, int Rows, int Columns>
inline simdgroup_matrix<T, Rows, Columns> make_filled_simdgroup_matrix(T value) {
  simdgroup_matrix<T, Rows, Columns> result;
  result.elements = vec<T, 2>(value);
  return result;
}

// Each lane moves its own elements; pointer, stride and origin must agree over the lanes.
template <class T>
inline const T* matrix_address(const T* pointer, ulong stride, const ulong2& origin, bool transpose,
                               const char* operation, int line) {
#ifdef RT_CHECKED
  struct place { const T* pointer; ulong stride; };
  const T* start = pointer + (transpose ? origin.x * stride + origin.y : origin.y * stride + origin.x);
  place mine = {start, stride};
  rt_row* row = exchange(mine, operation, line);
  place first = slot<place>(row, unsigned(__builtin_ctz(row->active)));
  if (row->active != 0xFFFFFFFFu) rt_fail("simdgroup matrix needs all 32 lanes", line);
  if (first.pointer != mine.pointer || first.stride != mine.stride) {
    rt_fail("simdgroup matrix: pointer differs between lanes", line);
  }
#else
  (void)operation, (void)line;
#endif
  unsigned lane = rt_lane();
  ulong row_index = matrix_row(lane), column = matrix_column(lane);
  return transpose ? pointer + (origin.x + column) * stride + origin.y + row_index
                   : pointer + (origin.y + row_index) * stride + origin.x + column;
}

template <class T>
inline void simdgroup_load(simdgroup_matrix<T, 8, 8>& m, const T* pointer, ulong stride = 8,
                           ulong2 origin = ulong2(0), bool transpose = false, CALL_LINE) {
  const T* at = matrix_address(pointer, stride, origin, transpose, "simdgroup_load", line);
  m.elements[0] = at[0];
  m.elements[1] = at[transpose ? stride : 1];
}

template <class T>
inline void simdgroup_store(const simdgroup_matrix<T, 8, 8>& m, T* pointer, ulong stride = 8,
                            ulong2 origin = ulong2(0), bool transpose = false, CALL_LINE) {
  T* at = const_cast<T*>(
      matrix_address((const T*)pointer, stride, origin, transpose, "simdgroup_store", line));
  at[0] = m.elements[0];
  at[transpose ? stride : 1] = m.elements[1];
}

template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8>& d,
                                          const simdgroup_matrix<A, 8, 8>& a,
                                          const simdgroup_matrix<B, 8, 8>& b,
                                          const simdgroup_matrix<C, 8, 8>& c, CALL_LINE) {
  struct pair { vec<A, 2> a; vec<B, 2> b; };
  rt_row* row = exchange(pair{a.elements, b.elements}, "simdgroup_multiply_accumulate", line);
  if (row->active != 0xFFFFFFFFu) rt_fail("simdgroup matrix needs all 32 lanes", line);
  unsigned lane = rt_lane(), at_row = matrix_row(lane), at_column = matrix_column(lane);
  float sum[2] = {float(c.elements[0]), float(c.elements[1])};
  for (unsigned k = 0; k < 8; ++k) {
    const pair* left = (const pair*)row->slot[matrix_lane(at_row, k)];
    const pair* right = (const pair*)row->slot[matrix_lane(k, at_column)];
    float x = float(left->a.data[k & 1]);
    sum[0] += x * float(right->b.data[0]);
    sum[1] += x * float(right->b.data[1]);
  }
  d.elements = vec<D, 2>(D(sum[0]), D(sum[1]));
}

template <class D, class A, class B>
inline void simdgroup_multiply(simdgroup_matrix<D, 8, 8>& d, const simdgroup_matrix<A, 8, 8>& a,
                               const simdgroup_matrix<B, 8, 8>& b, CALL_LINE) {
  auto zero = make_filled_simdgroup_matrix<D, 8, 8>(D(0.0f));
  simdgroup_multiply_accumulate(d, a, b, zero, line);
}

}  // namespace metal

typedef metal::simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef metal::simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef metal::simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
