// The rounding of stored rows, by bit patterns: FP8, FP4 and the Hadamard turn.

// Rounds the size of a float to the mantissa without its last bits, ties to even.
inline float keep_bits(float size, uint32_t n_dropped) {
  uint32_t bits = as_type<uint32_t>(size);
  uint32_t odd = (bits >> n_dropped) & 1u;
  bits += (1u << (n_dropped - 1u)) - 1u + odd;
  return as_type<float>(bits & (0xffffffffu << n_dropped));
}

// Rounds to multiples of step, a power of two: a sum of 2^23 steps or more has no finer ones.
inline float to_multiples(float size, float step) {
  uint32_t bits = as_type<uint32_t>(size + step * 8388608.0f);
  return as_type<float>(bits) - step * 8388608.0f;
}

// 2^ceil(log2(largest / m)), m = (1 + mantissa / 2^23) 2^exponent: a mantissa above carries.
inline float scale_for(float largest, uint32_t mantissa, uint32_t exponent) {
  uint32_t carried = as_type<uint32_t>(largest) + (0x7fffffu - mantissa);
  return as_type<float>((carried & 0x7f800000u) - (exponent << 23u));
}
// 1 / scale of a power of two.
inline float inverse_of(float scale) { return as_type<float>((254u << 23u) - as_type<uint32_t>(scale)); }

inline float with_sign_of(float size, float x) {
  return as_type<float>(as_type<uint32_t>(size) | (as_type<uint32_t>(x) & 0x80000000u));
}
inline float size_of(float x) { return as_type<float>(as_type<uint32_t>(x) & 0x7fffffffu); }

// Through FP8 (E4M3, largest 448) with the scale of a block whose largest size is given.
inline float through_fp8(float x, float largest) {
  float scale = scale_for(max(largest, 1e-4f), 0x600000u, 8u); // 448 = 1.75 * 2^8
  float a = size_of(x * inverse_of(scale));
  a = a > 448.0f ? 448.0f : a; // not min: it would hide a NaN
  float rounded = a < 0.015625f ? to_multiples(a, 0.001953125f) : keep_bits(a, 20u);
  return with_sign_of(rounded, x) * scale;
}

// Through FP4 (E2M1, largest 6).
inline float through_fp4(float x, float largest) {
  float scale = scale_for(max(largest, 7.052966104933725e-38f), 0x400000u, 2u); // 6 = 1.5 * 2^2
  float a = size_of(x * inverse_of(scale));
  a = a > 6.0f ? 6.0f : a;
  float rounded = a < 1.0f ? to_multiples(a, 0.5f) : keep_bits(a, 22u);
  return with_sign_of(rounded, x) * scale;
}

// A head or row of the indexer, 128 values, four a lane: Sylvester's Walsh-Hadamard transform.
inline float4 hadamard_of(float4 v, int lane) {
  float4 a = float4{v.x + v.y, v.x - v.y, v.z + v.w, v.z - v.w};
  v = float4{a.x + a.z, a.y + a.w, a.x - a.z, a.y - a.w};
  for (int step = 1; step < 32; step *= 2) {
    float4 o = float4{simd_shuffle_xor(v.x, uint16_t(step)), simd_shuffle_xor(v.y, uint16_t(step)),
                      simd_shuffle_xor(v.z, uint16_t(step)), simd_shuffle_xor(v.w, uint16_t(step))};
    bool is_low = (lane & step) == 0;
    v = is_low ? float4{v.x + o.x, v.y + o.y, v.z + o.z, v.w + o.w}
               : float4{o.x - v.x, o.y - v.y, o.z - v.z, o.w - v.w};
  }
  float s = 0.08838834764831845f; // 128^-0.5
  return float4{v.x * s, v.y * s, v.z * s, v.w * s};
}

// The same values through FP4: 32 of them, eight lanes, share a scale.
inline float4 index_row_of(float4 v, int lane) {
  v = hadamard_of(v, lane);
  float largest = max(max(size_of(v.x), size_of(v.y)), max(size_of(v.z), size_of(v.w)));
  for (int step = 1; step < 8; step *= 2) {
    largest = max(largest, simd_shuffle_xor(largest, uint16_t(step)));
  }
  return float4{through_fp4(v.x, largest), through_fp4(v.y, largest),
                through_fp4(v.z, largest), through_fp4(v.w, largest)};
}
