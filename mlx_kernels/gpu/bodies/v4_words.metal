// Weights in words, as floats, and their products.

inline float low_half_of(uint32_t w) { return float(as_type<half>(uint16_t(w & 0xffffu))); }
inline float high_half_of(uint32_t w) { return float(as_type<half>(uint16_t(w >> 16))); }

// Byte i of a word, signed.
inline float byte_of(uint32_t w, int i) { return float(int8_t(w >> (8 * i))); }

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
