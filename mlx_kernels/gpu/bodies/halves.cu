// out[r, c] = x[r, c] * s as half, scales[r] = 1 / s: s is the power of two that brings the row's
// largest value to 2^14 or above, so that a row of any size keeps 11 bits of its large values.
// A block is a row; the columns are a multiple of four. sizes: rows, columns.
extern __shared__ float largest_of[];
const int n_columns = sizes[1];
const float4* row = reinterpret_cast<const float4*>(x + int64_t(blockIdx.x) * n_columns);
const int n_fours = n_columns / 4;
float largest = 0.0f;
for (int i = threadIdx.x; i < n_fours; i += blockDim.x) {
  float4 v = row[i];
  largest = fmaxf(largest, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
}
for (int step = 16; step > 0; step /= 2)
  largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, step));
if (threadIdx.x % 32 == 0) largest_of[threadIdx.x / 32] = largest;
__syncthreads();
largest = largest_of[0];
for (int i = 1; i < int(blockDim.x) / 32; i++) largest = fmaxf(largest, largest_of[i]);
// The exponent of s, both ways within the normal floats. NaN stays NaN in the product.
int exponent = 14 + 127 - int(__float_as_uint(largest) >> 23);
exponent = exponent > 120 ? 120 : exponent;
const float s = __uint_as_float(uint32_t(127 + exponent) << 23);
if (threadIdx.x == 0) scales[blockIdx.x] = __uint_as_float(uint32_t(127 - exponent) << 23);
uint2* to = reinterpret_cast<uint2*>(out + int64_t(blockIdx.x) * n_columns);
for (int i = threadIdx.x; i < n_fours; i += blockDim.x) {
  float4 v = row[i];
  uint32_t a = __half_as_ushort(__float2half_rn(v.x * s)), b = __half_as_ushort(__float2half_rn(v.y * s));
  uint32_t c = __half_as_ushort(__float2half_rn(v.z * s)), d = __half_as_ushort(__float2half_rn(v.w * s));
  to[i] = uint2{a | b << 16, c | d << 16};
}
