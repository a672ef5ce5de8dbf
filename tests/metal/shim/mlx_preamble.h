// The names that MLX's own preamble gives every body (its texts are not copied here).
#pragma once

typedef half float16_t;
typedef bfloat bfloat16_t;

template <class T>
struct Limits {
  static inline const T max = metal::is_floating_point_v<T> ? metal::numeric_limits<T>::infinity()
                                                            : metal::numeric_limits<T>::max();
  static inline const T min = metal::is_floating_point_v<T> ? T(-float(max))
                                                            : metal::numeric_limits<T>::lowest();
  static inline const T finite_max = metal::numeric_limits<T>::max();
  static inline const T finite_min = metal::numeric_limits<T>::lowest();
};

// Offset of element `index` (row-major over `shape`) in an array of the given strides.
template <class I>
inline I elem_to_loc(I index, const int* shape, const int64_t* strides, int n_axes) {
  I offset = 0;
  for (int axis = n_axes - 1; axis >= 0 && index > 0; --axis) {
    offset += I(index % I(shape[axis])) * I(strides[axis]);
    index /= I(shape[axis]);
  }
  return offset;
}
