// Small functions of the decode kernels of DeepSeek V4. Metal text that is also CUDA (cuda_prelude.h).

inline float low_half_of(uint32_t w) { return float(as_type<half>(uint16_t(w & 0xffffu))); }
inline float high_half_of(uint32_t w) { return float(as_type<half>(uint16_t(w >> 16))); }

// Byte i of a word, signed.
inline float byte_of(uint32_t w, int i) { return float(int8_t(w >> (8 * i))); }

inline float sigmoid_of(float x) { return 1.0f / (1.0f + exp(-x)); }

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

// log(1 + e) for e > 0 without losing small e (Kahan): the error of 1 + e divides out.
inline float log_of_one_plus(float e) {
  float u = 1.0f + e;
  return u == 1.0f ? e : log(u) * e / (u - 1.0f);
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

// 16 products of signed bytes with floats.
inline float dot_of_bytes(uint4 w, float4 a, float4 b, float4 c, float4 d) {
  float s = byte_of(w.x, 0) * a.x + byte_of(w.x, 1) * a.y + byte_of(w.x, 2) * a.z + byte_of(w.x, 3) * a.w;
  float t = byte_of(w.y, 0) * b.x + byte_of(w.y, 1) * b.y + byte_of(w.y, 2) * b.z + byte_of(w.y, 3) * b.w;
  s += byte_of(w.z, 0) * c.x + byte_of(w.z, 1) * c.y + byte_of(w.z, 2) * c.z + byte_of(w.z, 3) * c.w;
  t += byte_of(w.w, 0) * d.x + byte_of(w.w, 1) * d.y + byte_of(w.w, 2) * d.z + byte_of(w.w, 3) * d.w;
  return s + t;
}

// 8 products of halves with floats.
inline float dot_of_halves(uint4 w, float4 a, float4 b) {
  float s = low_half_of(w.x) * a.x + high_half_of(w.x) * a.y + low_half_of(w.y) * a.z + high_half_of(w.y) * a.w;
  float t = low_half_of(w.z) * b.x + high_half_of(w.z) * b.y + low_half_of(w.w) * b.z + high_half_of(w.w) * b.w;
  return s + t;
}

// Where four neighbours of a vector, number i, lie in shared memory: lanes that read 16 neighbours
// each read the same quarter of them side by side.
inline int staged_place(int i) { return ((i >> 7) * 4 + (i & 3)) * 32 + ((i & 127) >> 2); }

inline float swiglu_of(float gate, float up, float limit) {
  gate = gate > limit ? limit : gate; // not min and max: they would hide a NaN
  up = up > limit ? limit : (up < -limit ? -limit : up);
  return gate * sigmoid_of(gate) * up;
}

// Orders like the float; both zeros are one.
inline uint32_t order_of(float x) {
  uint32_t bits = x == 0.0f ? 0u : as_type<uint32_t>(x);
  return (bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u;
}

// sqrt(softplus(z)); above 20 softplus is z to float32.
inline float affinity_of(float z) { return sqrt(z > 20.0f ? z : log_of_one_plus(exp(z))); }

// One channel of a compressed row at its last token, ``position``: a mean of the values of MEMBERS
// tokens, weighted by the softmax of their scores. frontier [capacity, 2 w]: values, then scores,
// of the tokens before, by position; products [2 w]: of this token, without ape [R, w].
// At R = 4 the first four members are the group before, with the first half of their channels.
template <int R>
inline float pooled_of(
    const device float* frontier, const device float* products, const device float* ape, int capacity,
    int w, int width, int position, int channel) {
  const int MEMBERS = R == 4 ? 8 : R;
  float top = -INFINITY;
  for (int m = 0; m < MEMBERS; m++) {
    const int p = position - MEMBERS + 1 + m;
    const int at = w + channel + (R == 4 && m >= 4 ? width : 0);
    if (p >= 0) {
      const float score = p == position ? products[at] + ape[(p % R) * w + at - w]
                                        : frontier[int64_t(p % capacity) * 2 * w + at];
      top = score > top ? score : top;
    }
  }
  float total = 0.0f, sum = 0.0f;
  for (int m = 0; m < MEMBERS; m++) {
    const int p = position - MEMBERS + 1 + m;
    const int at = channel + (R == 4 && m >= 4 ? width : 0);
    if (p >= 0) {
      const int64_t row = int64_t(p % capacity) * 2 * w;
      const float score = p == position ? products[w + at] + ape[(p % R) * w + at] : frontier[row + w + at];
      const float share = exp(score - top);
      total += share;
      sum += share * (p == position ? products[at] : frontier[row + at]);
    }
  }
  return sum / total;
}
