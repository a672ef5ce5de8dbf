// 16 activations of one position, and their products with a run of 16 weights.

struct Values {
  float4 v0;
  float4 v1;
  float4 v2;
  float4 v3;
};

inline Values values_at(const device float* x, uint64_t first) {
  const device float4* from = (const device float4*)(x + first);
  Values v;
  v.v0 = from[0];
  v.v1 = from[1];
  v.v2 = from[2];
  v.v3 = from[3];
  return v;
}
inline Values times(Values a, Values b) {
  a.v0 = a.v0 * b.v0;
  a.v1 = a.v1 * b.v1;
  a.v2 = a.v2 * b.v2;
  a.v3 = a.v3 * b.v3;
  return a;
}
inline float sum_of_four(float4 v) { return (v.x + v.y) + (v.z + v.w); }
inline float sum_of(Values v) { return sum_of_four((v.v0 + v.v1) + (v.v2 + v.v3)); }
inline float sum_of_squares(Values v) {
  return sum_of_four((v.v0 * v.v0 + v.v1 * v.v1) + (v.v2 * v.v2 + v.v3 * v.v3));
}
// ``sum``: of the values; only formats with an offset look at it.
inline float product(Chunk k, Values v, float sum) {
  float4 four = (k.w0 * v.v0 + k.w1 * v.v1) + (k.w2 * v.v2 + k.w3 * v.v3);
  return k.scale * sum_of_four(four) - k.offset * sum;
}
// The values of four weights of a run, divided by 32.
inline half4 to_halves(float4 w, float scale, float offset) {
  const float4 value = (w * scale - offset) * 0.03125f;
  return half4{half(value.x), half(value.y), half(value.z), half(value.w)};
}
