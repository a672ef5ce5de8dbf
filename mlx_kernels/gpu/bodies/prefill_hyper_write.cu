// out [T, 4, D]: a sublayer's result y (+ z) written to the four streams, which mix. A block is a
// token. mix [T, 20]: post, then comb from stream (row) to stream (column). sizes: D.
const int n_fours = sizes[0] / 4;
const int64_t token = blockIdx.x;
const float* m = mix + token * 20;
const float4* stream = reinterpret_cast<const float4*>(streams) + token * 4 * n_fours;
const float4* result = reinterpret_cast<const float4*>(y) + token * n_fours;
float4* to = reinterpret_cast<float4*>(out) + token * 4 * n_fours;
for (int i = threadIdx.x; i < n_fours; i += blockDim.x) {
  float4 v = result[i], from[4];
  if (HAS_SECOND) {
    float4 w = reinterpret_cast<const float4*>(z)[token * n_fours + i];
    v = float4{v.x + w.x, v.y + w.y, v.z + w.z, v.w + w.w};
  }
  for (int a = 0; a < 4; a++) from[a] = stream[a * n_fours + i];
  for (int b = 0; b < 4; b++) {
    float4 sum = {m[b] * v.x, m[b] * v.y, m[b] * v.z, m[b] * v.w};
    for (int a = 0; a < 4; a++) {
      float comb = m[4 + 4 * a + b];
      sum.x += comb * from[a].x;
      sum.y += comb * from[a].y;
      sum.z += comb * from[a].z;
      sum.w += comb * from[a].w;
    }
    to[b * n_fours + i] = sum;
  }
}
