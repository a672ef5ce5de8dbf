// Scalar types: half is the compiler's own 16-bit float, bfloat a class that rounds to even.
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef _Float16 half;

struct bfloat {
  uint16_t bits;
  bfloat() = default;
  explicit bfloat(float value) {
    uint32_t u = __builtin_bit_cast(uint32_t, value);
    if ((u & 0x7FFFFFFFu) > 0x7F800000u) {
      bits = uint16_t(u >> 16 | 0x40u);  // NaN stays NaN
    } else {
      bits = uint16_t((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
    }
  }
  template <class T>
    requires(std::is_integral_v<T> || std::is_same_v<T, half>)
  explicit bfloat(T value) : bfloat(float(value)) {}
  operator float() const { return __builtin_bit_cast(float, uint32_t(bits) << 16); }
  friend bfloat operator+(bfloat a, bfloat b) { return bfloat(float(a) + float(b)); }
  friend bfloat operator-(bfloat a, bfloat b) { return bfloat(float(a) - float(b)); }
  friend bfloat operator*(bfloat a, bfloat b) { return bfloat(float(a) * float(b)); }
  friend bfloat operator/(bfloat a, bfloat b) { return bfloat(float(a) / float(b)); }
  friend bfloat operator-(bfloat a) { return bfloat(-float(a)); }
  bfloat& operator+=(bfloat b) { return *this = *this + b; }
  bfloat& operator-=(bfloat b) { return *this = *this - b; }
  bfloat& operator*=(bfloat b) { return *this = *this * b; }
};

namespace metal {

template <class T>
concept floating = std::is_same_v<T, float> || std::is_same_v<T, half> || std::is_same_v<T, bfloat>;
template <class T>
concept integer = std::is_integral_v<T>;
template <class T>
concept scalar = floating<T> || integer<T>;

// May a scalar stand beside a vector of T without a cast? Never a wider float beside a narrower.
template <class S, class T>
concept scalar_for = scalar<S> && scalar<T> &&
    (std::is_same_v<S, T> || integer<S> || (std::is_same_v<T, float> && floating<S>));

template <class To, class From>
inline To as_type(const From& value) {
  static_assert(sizeof(To) == sizeof(From), "as_type between types of different size");
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}

}  // namespace metal
