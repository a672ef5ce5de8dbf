// Activations of a decode kernel as 24-bit integers in shared memory, for the dp4a instruction.
//
// 32 neighbours share a scale: x = scale * (65536 p2 + 256 p1 + p0), p2 a signed byte, p1 and p0
// unsigned ones. The largest of the 32 is 8388000 in size, so each value is rounded to 2^-24 of it:
// the precision of float32 next to the largest. A product of four weights is then three dp4a; with
// floats it would be four conversions and four multiply-adds. NaN and infinity make the scale NaN or
// infinite, and the results NaN.

struct Planes {
  const uint8_t* quants;
  const uint8_t* high;
  const uint8_t* scales;
  const uint8_t* factors;
};

__device__ __forceinline__ float half_at(const uint8_t* plane, int64_t i) {
  return __half2float(__ushort_as_half(__ldg(reinterpret_cast<const unsigned short*>(plane) + i)));
}
__device__ __forceinline__ float low_half(uint32_t w) {
  return __half2float(__ushort_as_half((unsigned short)(w & 0xffffu)));
}
__device__ __forceinline__ float high_half(uint32_t w) {
  return __half2float(__ushort_as_half((unsigned short)(w >> 16)));
}

struct Activations {
  const uint8_t* integers; // [T][3][padded], 16-byte units swizzled
  const float* scales;     // [T][padded / 32]
  const float* sums;       // [T][padded / 16], of the rounded values
  int padded;              // columns rounded up to 128
};

// Bytes of shared memory of n_rows staged rows; the host computes the same.
template <typename Format>
__device__ __forceinline__ int staged_bytes(int n_rows, int padded) {
  if (Format::IS_FLOAT) return n_rows * padded * 4;
  return n_rows * padded * 3 + n_rows * (padded / 32) * 12;
}

template <typename Format>
__device__ __forceinline__ Activations
activations_at(uint8_t* shared, int n_rows, int n_columns) {
  Activations a;
  a.padded = (n_columns + 127) / 128 * 128;
  a.integers = shared;
  a.scales = reinterpret_cast<const float*>(shared + n_rows * a.padded * 3);
  a.sums = a.scales + n_rows * (a.padded / 32);
  return a;
}

// Floats for formats of floats: the two halves of 16-byte units of weights (8 halves) lie apart, so
// that neighbouring lanes read neighbouring banks.
__device__ __forceinline__ void stage_floats(
    const float* x, int n_rows, int n_columns, const float* norm, const float* factor,
    const Activations& a) {
  float4* to = reinterpret_cast<float4*>(const_cast<uint8_t*>(a.integers));
  int quarter = n_columns / 4, n = n_rows * quarter;
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    int row = i / quarter, k = i - row * quarter;
    float4 v = __ldg(reinterpret_cast<const float4*>(x) + i);
    if (norm != nullptr) {
      float4 m = __ldg(reinterpret_cast<const float4*>(norm) + k);
      float f = factor[row];
      v.x *= f * m.x; v.y *= f * m.y; v.z *= f * m.z; v.w *= f * m.w;
    }
    to[row * (a.padded / 4) + (k & 1) * (a.padded / 8) + (k >> 1)] = v;
  }
}

// Rows of x [n_rows, n_columns], each value times factor[row] (if any) and norm[column] (if any),
// to shared memory. A multiple of 32 columns; the padding is never read. Key: see the formats.
template <typename Format>
__device__ __forceinline__ void stage(
    const float* x, int n_rows, int n_columns, const float* norm, const float* factor,
    const Activations& a) {
  if (Format::IS_FLOAT) return stage_floats(x, n_rows, n_columns, norm, factor, a);
  uint8_t* integers = const_cast<uint8_t*>(a.integers);
  float* scales = const_cast<float*>(a.scales);
  float* sums = const_cast<float*>(a.sums);
  int quarter = n_columns / 4, n = n_rows * quarter;
  for (int first = 0; first < n; first += blockDim.x) {
    int i = first + threadIdx.x; // four values; eight lanes share a scale
    bool inside = i < n;
    int row = inside ? i / quarter : 0, k = inside ? 4 * (i - row * quarter) : 0;
    float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    if (inside) v = __ldg(reinterpret_cast<const float4*>(x + int64_t(row) * n_columns + k));
    if (inside && norm != nullptr) {
      float4 m = __ldg(reinterpret_cast<const float4*>(norm + k));
      float f = factor[row];
      v.x *= f * m.x; v.y *= f * m.y; v.z *= f * m.z; v.w *= f * m.w;
    }
    // Bits of a size order like unsigned integers, NaN above infinity above numbers.
    uint32_t top = max(max(__float_as_uint(fabsf(v.x)), __float_as_uint(fabsf(v.y))),
                       max(__float_as_uint(fabsf(v.z)), __float_as_uint(fabsf(v.w))));
    top = max(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = max(top, __shfl_xor_sync(0xffffffffu, top, 2));
    top = max(top, __shfl_xor_sync(0xffffffffu, top, 4));
    float size = __uint_as_float(top);
    bool is_zero = size < 1e-30f;
    float to_integer = is_zero ? 0.0f : 8388000.0f / size;
    float scale = is_zero ? 0.0f : size * (1.0f / 8388000.0f);
    int q0 = __float2int_rn(v.x * to_integer), q1 = __float2int_rn(v.y * to_integer);
    int q2 = __float2int_rn(v.z * to_integer), q3 = __float2int_rn(v.w * to_integer);
    int sum = q0 + q1 + q2 + q3;
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (inside) {
      int unit = k >> 4;
      int at = ((unit ^ Format::key(unit >> 3)) << 4) + (k & 15);
      uint8_t* to = integers + row * a.padded * 3 + at;
      uint32_t a01 = __byte_perm(q0, q1, 0x5140u), a23 = __byte_perm(q2, q3, 0x5140u);
      uint32_t b01 = __byte_perm(q0, q1, 0x6262u), b23 = __byte_perm(q2, q3, 0x6262u);
      *reinterpret_cast<uint32_t*>(to) = __byte_perm(b01, b23, 0x5410u);
      *reinterpret_cast<uint32_t*>(to + a.padded) = __byte_perm(a01, a23, 0x7632u);
      *reinterpret_cast<uint32_t*>(to + 2 * a.padded) = __byte_perm(a01, a23, 0x5410u);
      if ((k & 31) == 0) scales[row * (a.padded / 32) + (k >> 5)] = scale;
      if ((k & 15) == 0) sums[row * (a.padded / 16) + unit] = scale * float(sum);
    }
  }
}

// 1 / sqrt(mean square + eps) of each row, to shared memory. One warp a row.
__device__ __forceinline__ void
row_factors(const float* x, int n_rows, int n_columns, float eps, float* factor) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
  float* partial = factor + 8;
  for (int row = 0; row < n_rows; row++) {
    float sum = 0.0f;
    for (int k = 4 * threadIdx.x; k < n_columns; k += 4 * blockDim.x) {
      float4 v = __ldg(reinterpret_cast<const float4*>(x + int64_t(row) * n_columns + k));
      sum += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (lane == 0) partial[row * n_warps + warp] = sum;
  }
  __syncthreads();
  if (threadIdx.x < n_rows) {
    float sum = 0.0f;
    for (int i = 0; i < n_warps; i++) sum += partial[threadIdx.x * n_warps + i];
    factor[threadIdx.x] = 1.0f / sqrtf(sum / float(n_columns) + eps);
  }
  __syncthreads();
}

__device__ __forceinline__ int dot4_signed(uint32_t w, uint32_t x, int sum) {
  int d;
  asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(d) : "r"(w), "r"(x), "r"(sum));
  return d;
}
__device__ __forceinline__ int dot4_unsigned(uint32_t w, uint32_t x, int sum) {
  int d;
  asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(d) : "r"(w), "r"(x), "r"(sum));
  return d;
}

// Sums of products of signed weight bytes with the three parts of the activations.
struct Sums {
  int high = 0, middle = 0, low = 0;
  __device__ __forceinline__ float value() const {
    return fmaf(65536.0f, float(high), float(middle * 256 + low));
  }
};

// Adds the 16 products of unit (16 neighbours) of staged row t.
template <typename Format>
__device__ __forceinline__ void
add16(const Activations& a, int t, int unit, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t w3,
      Sums& s) {
  const uint8_t* from = a.integers + t * a.padded * 3 + ((unit ^ Format::key(unit >> 3)) << 4);
  uint4 h = *reinterpret_cast<const uint4*>(from);
  uint4 m = *reinterpret_cast<const uint4*>(from + a.padded);
  uint4 l = *reinterpret_cast<const uint4*>(from + 2 * a.padded);
  s.high = dot4_signed(w3, h.w, dot4_signed(w2, h.z, dot4_signed(w1, h.y, dot4_signed(w0, h.x, s.high))));
  s.middle = dot4_unsigned(w3, m.w, dot4_unsigned(w2, m.z, dot4_unsigned(w1, m.y, dot4_unsigned(w0, m.x, s.middle))));
  s.low = dot4_unsigned(w3, l.w, dot4_unsigned(w2, l.z, dot4_unsigned(w1, l.y, dot4_unsigned(w0, l.x, s.low))));
}
__device__ __forceinline__ float scale_of(const Activations& a, int t, int unit) {
  return a.scales[t * (a.padded / 32) + (unit >> 1)];
}
__device__ __forceinline__ float sum_of(const Activations& a, int t, int unit) {
  return a.sums[t * (a.padded / 16) + unit];
}
