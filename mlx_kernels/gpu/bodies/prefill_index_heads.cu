// out [T, H, 128] half: the indexer's queries turned, transformed by Hadamard and rounded to FP4, 32
// values to a scale; see rounding.py. Its rows (H = 1) are normalised before. A warp is a head, a lane
// four neighbours of it. cosines, sines [T, r / 2]. sizes: T H, H, r. numbers: eps.
const int n_heads = sizes[1], n_rotary = sizes[2], lane = threadIdx.x % 32;
const int64_t head = int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
if (head < sizes[0]) { // the same for the whole warp
  float4 four = reinterpret_cast<const float4*>(heads + head * 128)[lane];
  float v[4] = {four.x, four.y, four.z, four.w};
  if (HAS_NORM) {
    float squares = four.x * four.x + four.y * four.y + four.z * four.z + four.w * four.w;
    const float inverse = 1.0f / sqrtf(warp_sum(squares) / 128.0f + numbers[0]);
    for (int i = 0; i < 4; i++) v[i] *= inverse * norm[4 * lane + i];
  }
  int at = 4 * lane - (128 - n_rotary);
  if (at >= 0) {
    const int64_t turn = head / n_heads * (n_rotary / 2) + at / 2;
    for (int pair = 0; pair < 2; pair++) {
      float c = cosines[turn + pair], s = sines[turn + pair], x = v[2 * pair], y = v[2 * pair + 1];
      v[2 * pair] = x * c - y * s;
      v[2 * pair + 1] = x * s + y * c;
    }
  }
  float w[4] = {v[0] + v[1], v[0] - v[1], v[2] + v[3], v[2] - v[3]};
  v[0] = w[0] + w[2];
  v[1] = w[1] + w[3];
  v[2] = w[0] - w[2];
  v[3] = w[1] - w[3];
  for (int step = 1; step < 32; step *= 2) {
    for (int i = 0; i < 4; i++) {
      float other = __shfl_xor_sync(0xffffffffu, v[i], step);
      v[i] = lane & step ? other - v[i] : v[i] + other;
    }
  }
  float largest = 6.0f * 1.17549435e-38f; // 6 times 2^-126
  for (int i = 0; i < 4; i++) {
    v[i] *= 0.08838834764831845f; // 128^-1/2
    largest = fmaxf(largest, fabsf(v[i]));
  }
  for (int step = 1; step < 8; step *= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
  // The power of two s with largest / s of more than 3 and at most 6.
  uint32_t power = ((__float_as_uint(largest) + 0x3fffffu) & 0x7f800000u) - (2u << 23);
  float size = __uint_as_float(power), inverse = __uint_as_float((254u << 23) - power);
  uint32_t halves[4];
  for (int i = 0; i < 4; i++) {
    float a = fminf(fabsf(v[i] * inverse), 6.0f);
    uint32_t bits = __float_as_uint(a);
    bits = (bits + 0x1fffffu + ((bits >> 22) & 1u)) & 0xffc00000u; // one bit of mantissa
    float rounded = a < 1.0f ? rintf(a * 2.0f) * 0.5f : __uint_as_float(bits);
    halves[i] = __half_as_ushort(__float2half_rn(v[i] < 0.0f ? -rounded * size : rounded * size));
  }
  reinterpret_cast<uint2*>(out + head * 128)[lane] =
      uint2{halves[0] | halves[1] << 16, halves[2] | halves[3] << 16};
}
