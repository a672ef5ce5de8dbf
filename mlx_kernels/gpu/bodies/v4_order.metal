// Scores as integers.

// Orders like the float; both zeros are one.
inline uint32_t order_of(float x) {
  uint32_t bits = x == 0.0f ? 0u : as_type<uint32_t>(x);
  return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}
