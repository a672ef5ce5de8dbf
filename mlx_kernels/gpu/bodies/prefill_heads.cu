// out [T, H, D] half: heads normalised, their last values turned. A warp is a head; D is a multiple
// of 128. cosines, sines [T, r / 2]. sizes: T H, H, D, r. numbers: eps.
const int n_heads = sizes[1], width = sizes[2], n_rotary = sizes[3], lane = threadIdx.x % 32;
const int64_t head = int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
if (head < sizes[0]) { // the same for the whole warp
  const float4* row = reinterpret_cast<const float4*>(heads + head * width);
  uint2* to = reinterpret_cast<uint2*>(out + head * width);
  const int64_t turn = head / n_heads * (n_rotary / 2);
  float squares = 0.0f;
  for (int i = lane; i < width / 4; i += 32) {
    float4 v = row[i];
    squares += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
  }
  const float inverse = 1.0f / sqrtf(warp_sum(squares) / float(width) + numbers[0]);
  for (int i = lane; i < width / 4; i += 32) {
    float4 v = row[i];
    v = float4{v.x * inverse, v.y * inverse, v.z * inverse, v.w * inverse};
    int at = 4 * i - (width - n_rotary);
    if (at >= 0) {
      float c = cosines[turn + at / 2], s = sines[turn + at / 2];
      float c1 = cosines[turn + at / 2 + 1], s1 = sines[turn + at / 2 + 1];
      v = float4{v.x * c - v.y * s, v.x * s + v.y * c, v.z * c1 - v.w * s1, v.z * s1 + v.w * c1};
    }
    uint32_t a = __half_as_ushort(__float2half_rn(v.x)), b = __half_as_ushort(__float2half_rn(v.y));
    uint32_t d = __half_as_ushort(__float2half_rn(v.z)), e = __half_as_ushort(__float2half_rn(v.w));
    to[i] = uint2{a | b << 16, d | e << 16};
  }
}
