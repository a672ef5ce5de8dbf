// out [n, D] half: rows to be stored, normalised, their last values turned, the others rounded to
// FP8, 64 values to a scale; see rounding.py. A warp is a row; D is a multiple of 128.
// cosines, sines [n, r / 2]. sizes: n, D, r. numbers: eps.
const int width = sizes[1], n_rotary = sizes[2], lane = threadIdx.x % 32;
const int64_t at_row = int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
if (at_row < sizes[0]) { // the same for the whole warp
  const float4* row = reinterpret_cast<const float4*>(x + at_row * width);
  uint2* to = reinterpret_cast<uint2*>(out + at_row * width);
  float squares = 0.0f;
  for (int i = lane; i < width / 4; i += 32) {
    float4 f = row[i];
    squares += f.x * f.x + f.y * f.y + f.z * f.z + f.w * f.w;
  }
  const float inverse = 1.0f / sqrtf(warp_sum(squares) / float(width) + numbers[0]);
  for (int i = lane; i < width / 4; i += 32) {
    float4 f = row[i], n = reinterpret_cast<const float4*>(norm)[i];
    float v[4] = {f.x * inverse * n.x, f.y * inverse * n.y, f.z * inverse * n.z, f.w * inverse * n.w};
    float largest = 1e-4f;
    for (int j = 0; j < 4; j++) largest = fmaxf(largest, fabsf(v[j]));
    for (int step = 1; step < 16; step *= 2) // of 16 lanes
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
    int at = 4 * i - (width - n_rotary);
    if (at >= 0) {
      const int64_t turn = at_row * (n_rotary / 2) + at / 2;
      for (int pair = 0; pair < 2; pair++) {
        float c = cosines[turn + pair], s = sines[turn + pair], a = v[2 * pair], b = v[2 * pair + 1];
        v[2 * pair] = a * c - b * s;
        v[2 * pair + 1] = a * s + b * c;
      }
    } else {
      // The power of two s with largest / s of more than 224 and at most 448.
      uint32_t power = ((__float_as_uint(largest) + 0x1fffffu) & 0x7f800000u) - (8u << 23);
      float size = __uint_as_float(power), smaller = __uint_as_float((254u << 23) - power);
      for (int j = 0; j < 4; j++) {
        float a = fminf(fabsf(v[j] * smaller), 448.0f);
        uint32_t bits = __float_as_uint(a);
        bits = (bits + 0x7ffffu + ((bits >> 20) & 1u)) & 0xfff00000u; // three bits of mantissa
        float rounded = a < 0.015625f ? rintf(a * 512.0f) * 0.001953125f : __uint_as_float(bits);
        v[j] = v[j] < 0.0f ? -rounded * size : rounded * size;
      }
    }
    uint32_t a = __half_as_ushort(__float2half_rn(v[0])), b = __half_as_ushort(__float2half_rn(v[1]));
    uint32_t c = __half_as_ushort(__float2half_rn(v[2])), d = __half_as_ushort(__float2half_rn(v[3]));
    to[i] = uint2{a | b << 16, c | d << 16};
  }
}
