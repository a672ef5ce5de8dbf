// Vector types with the swizzles in use. Conversion between vector types is always explicit.
#pragma once

namespace metal {

template <class T, int N>
struct vec;

// x.zw and the like: a view of the elements of the vector that it is a member of. For reading
// only: an assignment operator would make vectors non-trivial, and then clang's bounds build does
// not see an index past the end of an array of them. The harness refuses texts that assign to one.
template <class T, int N, int... I>
struct swizzle {
  T data[N];
  operator vec<T, sizeof...(I)>() const { return vec<T, sizeof...(I)>(data[I]...); }
};

template <class T>
struct alignas(sizeof(T) * 2) vec<T, 2> {
  union {
    T data[2];
    struct { T x, y; };
    swizzle<T, 2, 0, 1> xy;
    swizzle<T, 2, 1, 0> yx;
  };
  vec() = default;
  vec(T a, T b) : data{a, b} {}
  explicit vec(T a) : data{a, a} {}
  template <class U>
  explicit vec(const vec<U, 2>& v) : data{T(v.x), T(v.y)} {}
  T& operator[](size_t i) { return data[i]; }
  const T& operator[](size_t i) const { return data[i]; }
};

template <class T>
struct alignas(sizeof(T) * 4) vec<T, 3> {
  union {
    T data[4];
    struct { T x, y, z; };
    swizzle<T, 4, 0, 1> xy;
    swizzle<T, 4, 0, 2> xz;
    swizzle<T, 4, 1, 2> yz;
    swizzle<T, 4, 0, 1, 2> xyz;
  };
  vec() = default;
  vec(T a, T b, T c) : data{a, b, c} {}
  vec(const vec<T, 2>& v, T c) : data{v.x, v.y, c} {}
  explicit vec(T a) : data{a, a, a} {}
  template <class U>
  explicit vec(const vec<U, 3>& v) : data{T(v.x), T(v.y), T(v.z)} {}
  T& operator[](size_t i) { return data[i]; }
  const T& operator[](size_t i) const { return data[i]; }
};

template <class T>
struct alignas(sizeof(T) * 4) vec<T, 4> {
  union {
    T data[4];
    struct { T x, y, z, w; };
    struct { T r, g, b, a; };
    swizzle<T, 4, 0, 1> xy;
    swizzle<T, 4, 2, 3> zw;
    swizzle<T, 4, 0, 2> xz;
    swizzle<T, 4, 1, 3> yw;
    swizzle<T, 4, 1, 2> yz;
    swizzle<T, 4, 0, 1, 2> xyz;
    swizzle<T, 4, 1, 2, 3> yzw;
    swizzle<T, 4, 3, 2, 1, 0> wzyx;
  };
  vec() = default;
  vec(T p, T q, T s, T t) : data{p, q, s, t} {}
  vec(const vec<T, 2>& v, const vec<T, 2>& u) : data{v.x, v.y, u.x, u.y} {}
  vec(const vec<T, 3>& v, T t) : data{v.x, v.y, v.z, t} {}
  explicit vec(T p) : data{p, p, p, p} {}
  template <class U>
  explicit vec(const vec<U, 4>& v) : data{T(v.x), T(v.y), T(v.z), T(v.w)} {}
  T& operator[](size_t i) { return data[i]; }
  const T& operator[](size_t i) const { return data[i]; }
};

// Anything vector-like: its element type and width.
template <class V>
struct shape_of { static constexpr int width = 0; using element = void; };
template <class T, int N>
struct shape_of<vec<T, N>> { static constexpr int width = N; using element = T; };
template <class T, int N, int... I>
struct shape_of<swizzle<T, N, I...>> { static constexpr int width = sizeof...(I); using element = T; };

template <class V>
concept vectorlike = shape_of<std::remove_cvref_t<V>>::width > 0;
template <class V>
using element_of = typename shape_of<std::remove_cvref_t<V>>::element;
template <class V>
using plain = vec<element_of<V>, shape_of<std::remove_cvref_t<V>>::width>;
template <class A, class B>
concept same_vectors = vectorlike<A> && vectorlike<B> && std::is_same_v<plain<A>, plain<B>>;

template <class T, int N, class F>
inline auto map(const vec<T, N>& a, F f) {
  vec<decltype(f(a[0])), N> result;
  for (int i = 0; i < N; ++i) result[i] = f(a[i]);
  return result;
}
template <class T, int N, class F>
inline auto map(const vec<T, N>& a, const vec<T, N>& b, F f) {
  vec<decltype(f(a[0], b[0])), N> result;
  for (int i = 0; i < N; ++i) result[i] = f(a[i], b[i]);
  return result;
}

#define VECTOR_OPERATOR(op, type)                                                           \
  template <class A, class B>                                                               \
    requires same_vectors<A, B>                                                             \
  inline auto operator op(const A& a, const B& b) {                                         \
    using T = element_of<A>;                                                                \
    return map(plain<A>(a), plain<B>(b), [](T p, T q) { return type(p op q); });            \
  }                                                                                         \
  template <vectorlike A, class S>                                                          \
    requires scalar_for<S, element_of<A>>                                                   \
  inline auto operator op(const A& a, S s) {                                                \
    using T = element_of<A>;                                                                \
    T t = T(s);                                                                             \
    return map(plain<A>(a), [t](T p) { return type(p op t); });                             \
  }                                                                                         \
  template <class S, vectorlike A>                                                          \
    requires scalar_for<S, element_of<A>>                                                   \
  inline auto operator op(S s, const A& a) {                                                \
    using T = element_of<A>;                                                                \
    T t = T(s);                                                                             \
    return map(plain<A>(a), [t](T p) { return type(t op p); });                             \
  }
VECTOR_OPERATOR(+, T) VECTOR_OPERATOR(-, T) VECTOR_OPERATOR(*, T) VECTOR_OPERATOR(/, T)
VECTOR_OPERATOR(%, T) VECTOR_OPERATOR(&, T) VECTOR_OPERATOR(|, T) VECTOR_OPERATOR(^, T)
VECTOR_OPERATOR(<<, T) VECTOR_OPERATOR(>>, T)
VECTOR_OPERATOR(==, bool) VECTOR_OPERATOR(!=, bool) VECTOR_OPERATOR(<, bool)
VECTOR_OPERATOR(>, bool) VECTOR_OPERATOR(<=, bool) VECTOR_OPERATOR(>=, bool)
VECTOR_OPERATOR(&&, bool) VECTOR_OPERATOR(||, bool)
#undef VECTOR_OPERATOR

#define VECTOR_ASSIGNMENT(op)                                                    \
  template <vectorlike A, class B>                                               \
    requires(same_vectors<A, B> || scalar_for<B, element_of<A>>)                 \
  inline A& operator op##=(A & a, const B& b) {                                  \
    a = plain<A>(a) op b;                                                        \
    return a;                                                                    \
  }
VECTOR_ASSIGNMENT(+) VECTOR_ASSIGNMENT(-) VECTOR_ASSIGNMENT(*) VECTOR_ASSIGNMENT(/)
VECTOR_ASSIGNMENT(&) VECTOR_ASSIGNMENT(|) VECTOR_ASSIGNMENT(^)
VECTOR_ASSIGNMENT(<<) VECTOR_ASSIGNMENT(>>)
#undef VECTOR_ASSIGNMENT

template <vectorlike A>
inline plain<A> operator-(const A& a) {
  using T = element_of<A>;
  return map(plain<A>(a), [](T p) { return T(-p); });
}
template <vectorlike A>
inline plain<A> operator~(const A& a) {
  using T = element_of<A>;
  return map(plain<A>(a), [](T p) { return T(~p); });
}
template <vectorlike A>
inline auto operator!(const A& a) {
  using T = element_of<A>;
  return map(plain<A>(a), [](T p) { return !p; });
}

}  // namespace metal

using metal::vec;
#define VECTORS(name, type)             \
  typedef metal::vec<type, 2> name##2; \
  typedef metal::vec<type, 3> name##3; \
  typedef metal::vec<type, 4> name##4;
VECTORS(bool, bool) VECTORS(char, signed char) VECTORS(uchar, uchar) VECTORS(short, short)
VECTORS(ushort, ushort) VECTORS(int, int) VECTORS(uint, uint) VECTORS(long, long)
VECTORS(ulong, ulong) VECTORS(half, half) VECTORS(bfloat, bfloat) VECTORS(float, float)
#undef VECTORS
