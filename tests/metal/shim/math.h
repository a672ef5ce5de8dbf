// Functions of Metal's library, on scalars and element by element on vectors.
#pragma once

#ifndef INFINITY
#define INFINITY __builtin_inff()
#endif
#ifndef NAN
#define NAN __builtin_nanf("")
#endif
#define M_PI_F 3.14159265358979323846f
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define HALF_MAX ((half)65504.0f)
#define MAXFLOAT __FLT_MAX__

namespace metal {

#define FLOAT_FUNCTION(name, expression)                      \
  template <floating T>                                       \
  inline T name(T value) {                                    \
    float x = float(value);                                   \
    return T(expression);                                     \
  }                                                           \
  template <vectorlike V>                                     \
    requires floating<element_of<V>>                          \
  inline plain<V> name(const V& v) {                          \
    return map(plain<V>(v), [](element_of<V> e) { return name(e); }); \
  }
FLOAT_FUNCTION(exp, __builtin_expf(x)) FLOAT_FUNCTION(exp2, __builtin_exp2f(x))
FLOAT_FUNCTION(log, __builtin_logf(x)) FLOAT_FUNCTION(log2, __builtin_log2f(x))
FLOAT_FUNCTION(log10, __builtin_log10f(x)) FLOAT_FUNCTION(sqrt, __builtin_sqrtf(x))
FLOAT_FUNCTION(rsqrt, 1.0f / __builtin_sqrtf(x)) FLOAT_FUNCTION(sin, __builtin_sinf(x))
FLOAT_FUNCTION(cos, __builtin_cosf(x)) FLOAT_FUNCTION(tan, __builtin_tanf(x))
FLOAT_FUNCTION(sinh, __builtin_sinhf(x)) FLOAT_FUNCTION(cosh, __builtin_coshf(x))
FLOAT_FUNCTION(tanh, __builtin_tanhf(x)) FLOAT_FUNCTION(asin, __builtin_asinf(x))
FLOAT_FUNCTION(acos, __builtin_acosf(x)) FLOAT_FUNCTION(atan, __builtin_atanf(x))
FLOAT_FUNCTION(floor, __builtin_floorf(x)) FLOAT_FUNCTION(ceil, __builtin_ceilf(x))
FLOAT_FUNCTION(trunc, __builtin_truncf(x)) FLOAT_FUNCTION(rint, __builtin_rintf(x))
FLOAT_FUNCTION(round, __builtin_roundf(x)) FLOAT_FUNCTION(fabs, __builtin_fabsf(x))
FLOAT_FUNCTION(sign, x > 0 ? 1.0f : x < 0 ? -1.0f : x)
FLOAT_FUNCTION(saturate, x > 1 ? 1.0f : x > 0 ? x : 0.0f)
FLOAT_FUNCTION(fract, x - __builtin_floorf(x))
#undef FLOAT_FUNCTION

#define FLOAT_FUNCTION2(name, expression)                                    \
  template <floating T>                                                      \
  inline T name(T first, T second) {                                         \
    float x = float(first), y = float(second);                               \
    return T(expression);                                                    \
  }                                                                          \
  template <class A, class B>                                                \
    requires(same_vectors<A, B> && floating<element_of<A>>)                  \
  inline plain<A> name(const A& a, const B& b) {                             \
    using T = element_of<A>;                                                 \
    return map(plain<A>(a), plain<B>(b), [](T p, T q) { return name(p, q); }); \
  }
FLOAT_FUNCTION2(pow, __builtin_powf(x, y)) FLOAT_FUNCTION2(powr, __builtin_powf(x, y))
FLOAT_FUNCTION2(fmin, __builtin_fminf(x, y)) FLOAT_FUNCTION2(fmax, __builtin_fmaxf(x, y))
FLOAT_FUNCTION2(fmod, __builtin_fmodf(x, y)) FLOAT_FUNCTION2(atan2, __builtin_atan2f(x, y))
FLOAT_FUNCTION2(copysign, __builtin_copysignf(x, y))
#undef FLOAT_FUNCTION2

inline float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline half fma(half a, half b, half c) { return half(__builtin_fma(double(a), double(b), double(c))); }
template <class T, int N>
  requires floating<T>
inline vec<T, N> fma(const vec<T, N>& a, const vec<T, N>& b, const vec<T, N>& c) {
  vec<T, N> result;
  for (int i = 0; i < N; ++i) result[i] = fma(a[i], b[i], c[i]);
  return result;
}

// One type only: mixed arguments do not compile, as they are ambiguous in Metal. With a NaN the
// other argument is the result.
template <scalar T>
inline T min(T a, T b) {
  if constexpr (floating<T>) return fmin(a, b);
  else return b < a ? b : a;
}
template <scalar T>
inline T max(T a, T b) {
  if constexpr (floating<T>) return fmax(a, b);
  else return a < b ? b : a;
}
template <scalar T>
inline T clamp(T x, T low, T high) { return min(max(x, low), high); }
template <class A, class B>
  requires same_vectors<A, B>
inline plain<A> min(const A& a, const B& b) {
  using T = element_of<A>;
  return map(plain<A>(a), plain<B>(b), [](T p, T q) { return min(p, q); });
}
template <class A, class B>
  requires same_vectors<A, B>
inline plain<A> max(const A& a, const B& b) {
  using T = element_of<A>;
  return map(plain<A>(a), plain<B>(b), [](T p, T q) { return max(p, q); });
}
template <class T, int N>
inline vec<T, N> clamp(const vec<T, N>& x, const vec<T, N>& low, const vec<T, N>& high) {
  return min(max(x, low), high);
}

template <scalar T>
inline auto abs(T x) {
  if constexpr (floating<T>) return fabs(x);
  else if constexpr (std::is_signed_v<T>) return std::make_unsigned_t<T>(x < 0 ? -x : x);
  else return x;
}
template <vectorlike V>
inline auto abs(const V& v) {
  return map(plain<V>(v), [](element_of<V> e) { return abs(e); });
}

template <floating T>
inline bool isnan(T x) { return __builtin_isnan(float(x)); }
template <floating T>
inline bool isinf(T x) { return __builtin_isinf(float(x)); }
template <floating T>
inline bool isfinite(T x) { return __builtin_isfinite(float(x)); }

template <scalar T>
inline T select(T if_false, T if_true, bool condition) { return condition ? if_true : if_false; }
template <class T, int N>
inline vec<T, N> select(const vec<T, N>& a, const vec<T, N>& b, const vec<bool, N>& condition) {
  vec<T, N> result;
  for (int i = 0; i < N; ++i) result[i] = condition[i] ? b[i] : a[i];
  return result;
}
template <int N>
inline bool all(const vec<bool, N>& v) {
  bool result = true;
  for (int i = 0; i < N; ++i) result = result && v[i];
  return result;
}
template <int N>
inline bool any(const vec<bool, N>& v) {
  bool result = false;
  for (int i = 0; i < N; ++i) result = result || v[i];
  return result;
}
template <class A, class B>
  requires(same_vectors<A, B> && floating<element_of<A>>)
inline element_of<A> dot(const A& a, const B& b) {
  plain<A> p = a, q = b;
  element_of<A> sum = p[0] * q[0];
  for (int i = 1; i < shape_of<plain<A>>::width; ++i) sum = sum + p[i] * q[i];
  return sum;
}

template <integer T>
inline T popcount(T x) { return T(__builtin_popcountll(std::make_unsigned_t<T>(x))); }
template <integer T>
inline T clz(T x) {
  using U = std::make_unsigned_t<T>;
  return x ? T(__builtin_clzll(U(x)) - (64 - 8 * int(sizeof(T)))) : T(8 * sizeof(T));
}
template <integer T>
inline T ctz(T x) { return x ? T(__builtin_ctzll(std::make_unsigned_t<T>(x))) : T(8 * sizeof(T)); }
template <integer T>
inline T extract_bits(T x, uint offset, uint bits) {
  if (bits == 0) return 0;
  uint left = uint(8 * sizeof(T)) - bits - offset;
  return T(T(x << left) >> (left + offset));
}
inline uint mulhi(uint a, uint b) { return uint(ulong(a) * b >> 32); }
inline int mulhi(int a, int b) { return int(long(a) * b >> 32); }

// Both are the accurate functions here: a test needs a tolerance for what a GPU makes of `fast`.
namespace fast {
using metal::exp; using metal::exp2; using metal::log; using metal::log2; using metal::sqrt;
using metal::rsqrt; using metal::sin; using metal::cos; using metal::tanh; using metal::pow;
using metal::min; using metal::max; using metal::clamp;
}
namespace precise {
using metal::exp; using metal::exp2; using metal::log; using metal::log2; using metal::sqrt;
using metal::rsqrt; using metal::sin; using metal::cos; using metal::tanh; using metal::pow;
}

template <class T>
struct numeric_limits;
#define LIMITS(type, lowest_value, max_value, inf)                      \
  template <>                                                           \
  struct numeric_limits<type> {                                         \
    static constexpr type lowest() { return lowest_value; }             \
    static constexpr type max() { return max_value; }                   \
    static constexpr type min() { return lowest_value; }                \
    static constexpr type infinity() { return inf; }                    \
  };
LIMITS(float, -__FLT_MAX__, __FLT_MAX__, __builtin_inff())
LIMITS(half, (half)-65504.0f, (half)65504.0f, (half)__builtin_inff())
LIMITS(int, -__INT_MAX__ - 1, __INT_MAX__, 0)
LIMITS(uint, 0u, ~0u, 0u)
LIMITS(long, -__LONG_MAX__ - 1, __LONG_MAX__, 0)
LIMITS(ulong, 0ul, ~0ul, 0ul)
LIMITS(short, -32768, 32767, 0)
LIMITS(ushort, 0, 65535, 0)
LIMITS(signed char, -128, 127, 0)
LIMITS(uchar, 0, 255, 0)
#undef LIMITS
template <>
struct numeric_limits<bfloat> {
  static bfloat lowest() { return as_type<bfloat>(uint16_t(0xFF7F)); }
  static bfloat max() { return as_type<bfloat>(uint16_t(0x7F7F)); }
  static bfloat infinity() { return as_type<bfloat>(uint16_t(0x7F80)); }
};

using std::conditional_t; using std::enable_if_t; using std::integral_constant;
using std::is_same_v; using std::true_type; using std::false_type; using std::is_integral_v;
template <class T>
constexpr bool is_floating_point_v = floating<T>;

}  // namespace metal
