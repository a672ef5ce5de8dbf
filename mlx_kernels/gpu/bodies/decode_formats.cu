// Block formats of the decode kernels: 16 bytes of quants a lane and step.
//
//   STEP                        values of a row that a lane takes at once
//   IS_FLOAT                    activations are staged as floats
//   key(i)                      swizzle of the activations' 16-byte units (see ``stage``): the units
//                               that eight neighbouring lanes read together lie in eight banks
//   load(w, row, C, step)       a lane's share, in registers
//   dot<T>(p, a, first, step, table, sums)   adds to sums[T] the products with staged rows
//                               first .. first + T - 1

// Strides of 64 and 128 values between lanes.
__device__ __forceinline__ int key_of_runs(int i) { return ((i & 1) * 6) ^ (i & 2); }

struct Q8_0 {
  static constexpr int STEP = 16;
  static constexpr bool IS_FLOAT = false;
  static constexpr int TABLE_WORDS = 0;
  struct Packed {
    uint4 q;
    float d;
  };
  static __device__ __forceinline__ int key(int) { return 0; }
  static __device__ __forceinline__ Packed load(const Planes& w, int64_t row, int n, int step) {
    Packed p;
    p.q = __ldg(reinterpret_cast<const uint4*>(w.quants + row * n) + step);
    p.d = half_at(w.factors, row * (n / 32) + (step >> 1));
    return p;
  }
  template <int T>
  static __device__ __forceinline__ void
  dot(const Packed& p, const Activations& a, int first, int step, const uint32_t*, float* sums) {
#pragma unroll
    for (int t = 0; t < T; t++) {
      Sums s;
      add16<Q8_0>(a, first + t, step, p.q.x, p.q.y, p.q.z, p.q.w, s);
      sums[t] = fmaf(p.d * scale_of(a, first + t, step), s.value(), sums[t]);
    }
  }
};

// Runs of 32 bytes: low nibbles of sub-block 2 j, high nibbles of 2 j + 1. Q5_K: fifth bits.
template <bool HAS_FIFTH>
struct FourBits {
  static constexpr int STEP = 32;
  static constexpr bool IS_FLOAT = false;
  static constexpr int TABLE_WORDS = 0;
  struct Packed {
    uint4 q, low_high; // fifth bits of 16 bytes, for all eight sub-blocks
    uint32_t s0, s1, s2, dm;
  };
  static __device__ __forceinline__ int key(int i) { return key_of_runs(i); }
  static __device__ __forceinline__ Packed load(const Planes& w, int64_t row, int n, int step) {
    int64_t block = row * (n / 256) + (step >> 3);
    Packed p;
    p.q = __ldg(reinterpret_cast<const uint4*>(w.quants + block * 128) + (step & 7));
    if (HAS_FIFTH) {
      p.low_high = __ldg(reinterpret_cast<const uint4*>(w.high + block * 32) + (step & 1));
    }
    const uint32_t* words = reinterpret_cast<const uint32_t*>(w.scales) + block * 3;
    p.s0 = __ldg(words);
    p.s1 = __ldg(words + 1);
    p.s2 = __ldg(words + 2);
    p.dm = __ldg(reinterpret_cast<const uint32_t*>(w.factors) + block);
    return p;
  }
  static __device__ __forceinline__ uint32_t weights(uint32_t q, uint32_t high, int part, int bit) {
    uint32_t w = (q >> (4 * part)) & 0x0f0f0f0fu;
    return HAS_FIFTH ? w | (((high >> (bit + part)) & 0x01010101u) << 4) : w;
  }
  template <int T>
  static __device__ __forceinline__ void
  dot(const Packed& p, const Activations& a, int first, int step, const uint32_t*, float* sums) {
    int j = (step >> 1) & 3, h = step & 1;
    uint32_t scales, offsets; // one byte a sub-block, the first or the last four
    if (j < 2) {
      scales = p.s0 & 0x3f3f3f3fu;
      offsets = p.s1 & 0x3f3f3f3fu;
    } else {
      scales = (p.s2 & 0x0f0f0f0fu) | ((p.s0 >> 2) & 0x30303030u);
      offsets = ((p.s2 >> 4) & 0x0f0f0f0fu) | ((p.s1 >> 2) & 0x30303030u);
    }
    scales >>= 16 * (j & 1);
    offsets >>= 16 * (j & 1);
    float d = low_half(p.dm), dmin = high_half(p.dm);
#pragma unroll
    for (int part = 0; part < 2; part++) {
      float scale = d * float((scales >> (8 * part)) & 255u);
      float offset = dmin * float((offsets >> (8 * part)) & 255u);
      int unit = (step >> 3) * 16 + 4 * j + 2 * part + h, bit = 2 * j;
      uint32_t w0 = weights(p.q.x, p.low_high.x, part, bit);
      uint32_t w1 = weights(p.q.y, p.low_high.y, part, bit);
      uint32_t w2 = weights(p.q.z, p.low_high.z, part, bit);
      uint32_t w3 = weights(p.q.w, p.low_high.w, part, bit);
#pragma unroll
      for (int t = 0; t < T; t++) {
        Sums s;
        add16<FourBits>(a, first + t, unit, w0, w1, w2, w3, s);
        sums[t] = fmaf(scale * scale_of(a, first + t, unit), s.value(), sums[t]);
        sums[t] = fmaf(-offset, sum_of(a, first + t, unit), sums[t]);
      }
    }
  }
};
using Q4_K = FourBits<false>;
using Q5_K = FourBits<true>;

// Runs of 64 bytes a 128 values: low nibbles of the first 64, high nibbles of the last 64.
struct Q6_K {
  static constexpr int STEP = 32;
  static constexpr bool IS_FLOAT = false;
  static constexpr int TABLE_WORDS = 0;
  struct Packed {
    uint4 q, high;
    int first, second; // scales of the 16 values of each nibble
    float d;
  };
  static __device__ __forceinline__ int key(int i) { return key_of_runs(i); }
  static __device__ __forceinline__ Packed load(const Planes& w, int64_t row, int n, int step) {
    int64_t block = row * (n / 256) + (step >> 3);
    int r = step & 7, scale = (r >> 2) * 8 + (r & 3);
    Packed p;
    p.q = __ldg(reinterpret_cast<const uint4*>(w.quants + block * 128) + r);
    p.high = __ldg(reinterpret_cast<const uint4*>(w.high + block * 64) + (r >> 2) * 2 + (r & 1));
    const int8_t* scales = reinterpret_cast<const int8_t*>(w.scales) + block * 16 + scale;
    p.first = __ldg(scales);
    p.second = __ldg(scales + 4);
    p.d = half_at(w.factors, block);
    return p;
  }
  static __device__ __forceinline__ uint32_t weights(uint32_t q, uint32_t high, int shift, int part) {
    uint32_t w = ((q >> (4 * part)) & 0x0f0f0f0fu) | (((high >> (shift + 4 * part)) & 0x03030303u) << 4);
    return ((w | 0x80808080u) - 0x20202020u) ^ 0x80808080u; // stored plus 32, to signed bytes
  }
  template <int T>
  static __device__ __forceinline__ void
  dot(const Packed& p, const Activations& a, int first, int step, const uint32_t*, float* sums) {
    int r = step & 7, shift = 2 * ((r >> 1) & 1);
#pragma unroll
    for (int part = 0; part < 2; part++) {
      float scale = p.d * float(part ? p.second : p.first);
      int unit = (step >> 3) * 16 + (r >> 2) * 8 + (r & 3) + 4 * part;
      uint32_t w0 = weights(p.q.x, p.high.x, shift, part);
      uint32_t w1 = weights(p.q.y, p.high.y, shift, part);
      uint32_t w2 = weights(p.q.z, p.high.z, shift, part);
      uint32_t w3 = weights(p.q.w, p.high.w, shift, part);
#pragma unroll
      for (int t = 0; t < T; t++) {
        Sums s;
        add16<Q6_K>(a, first + t, unit, w0, w1, w2, w3, s);
        sums[t] = fmaf(scale * scale_of(a, first + t, unit), s.value(), sums[t]);
      }
    }
  }
};

// Runs of 32 bytes a 128 values: four crumbs a byte, 32 values apart.
struct Q2_K {
  static constexpr int STEP = 64;
  static constexpr bool IS_FLOAT = false;
  static constexpr int TABLE_WORDS = 0;
  struct Packed {
    uint4 q;
    uint2 small;
    uint32_t dm;
  };
  static __device__ __forceinline__ int key(int i) { return key_of_runs(i); }
  static __device__ __forceinline__ Packed load(const Planes& w, int64_t row, int n, int step) {
    int64_t block = row * (n / 256) + (step >> 2);
    Packed p;
    p.q = __ldg(reinterpret_cast<const uint4*>(w.quants + block * 64) + (step & 3));
    p.small = __ldg(reinterpret_cast<const uint2*>(w.scales + block * 16) + ((step >> 1) & 1));
    p.dm = __ldg(reinterpret_cast<const uint32_t*>(w.factors) + block);
    return p;
  }
  template <int T>
  static __device__ __forceinline__ void
  dot(const Packed& p, const Activations& a, int first, int step, const uint32_t*, float* sums) {
    int h = step & 1;
    uint32_t small = __byte_perm(p.small.x, p.small.y, h ? 0x7531u : 0x6420u);
    float d = low_half(p.dm), dmin = high_half(p.dm);
#pragma unroll
    for (int c = 0; c < 4; c++) {
      float scale = d * float((small >> (8 * c)) & 15u);
      float offset = dmin * float((small >> (8 * c + 4)) & 15u);
      int unit = (step >> 1) * 8 + 2 * c + h;
      uint32_t w0 = (p.q.x >> (2 * c)) & 0x03030303u, w1 = (p.q.y >> (2 * c)) & 0x03030303u;
      uint32_t w2 = (p.q.z >> (2 * c)) & 0x03030303u, w3 = (p.q.w >> (2 * c)) & 0x03030303u;
#pragma unroll
      for (int t = 0; t < T; t++) {
        Sums s;
        add16<Q2_K>(a, first + t, unit, w0, w1, w2, w3, s);
        sums[t] = fmaf(scale * scale_of(a, first + t, unit), s.value(), sums[t]);
        sums[t] = fmaf(-offset, sum_of(a, first + t, unit), sums[t]);
      }
    }
  }
};

// Groups of 8 bytes for 32 values: four indices of the grid, then 4 x 7 signs and a scale.
// Table: eight copies (lane & 7) of 256 grid entries and 128 sign patterns. An entry is eight
// nibbles, one a value: its level 0..2, plus 4 where the sign is negative: selectors of byte_perm.
struct IQ2_XXS {
  static constexpr int STEP = 64;
  static constexpr bool IS_FLOAT = false;
  static constexpr int TABLE_WORDS = 8 * (256 + 128);
  struct Packed {
    uint4 q;
    float d;
  };
  static __device__ __forceinline__ int key(int i) { return i & 3; }
  static __device__ __forceinline__ Packed load(const Planes& w, int64_t row, int n, int step) {
    int64_t block = row * (n / 256) + (step >> 2);
    Packed p;
    p.q = __ldg(reinterpret_cast<const uint4*>(w.quants + block * 64) + (step & 3));
    p.d = half_at(w.factors, block);
    return p;
  }
  template <int T>
  static __device__ __forceinline__ void
  dot(const Packed& p, const Activations& a, int first, int step, const uint32_t* table, float* sums) {
    const uint32_t* grid = table + (threadIdx.x & 7);
    const uint32_t* signs = grid + 8 * 256;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      uint32_t indices = half ? p.q.z : p.q.x, z = half ? p.q.w : p.q.y;
      uint32_t w[8];
#pragma unroll
      for (int j = 0; j < 4; j++) {
        uint32_t select = grid[8 * ((indices >> (8 * j)) & 255u)] ^ signs[8 * ((z >> (7 * j)) & 127u)];
        w[2 * j] = __byte_perm(0x002b1908u, 0x00d5e7f8u, select); // 8, 25, 43; -8, -25, -43
        w[2 * j + 1] = __byte_perm(0x002b1908u, 0x00d5e7f8u, select >> 16);
      }
      float scale = p.d * fmaf(0.25f, float(z >> 28), 0.125f);
      int unit = 4 * step + 2 * half;
#pragma unroll
      for (int t = 0; t < T; t++) {
        Sums s;
        add16<IQ2_XXS>(a, first + t, unit, w[0], w[1], w[2], w[3], s);
        add16<IQ2_XXS>(a, first + t, unit + 1, w[4], w[5], w[6], w[7], s);
        sums[t] = fmaf(scale * scale_of(a, first + t, unit), s.value(), sums[t]);
      }
    }
  }
};

// 16 bytes: value l in the low nibble of byte l, 16 + l in the high one; an exponent byte.
struct MXFP4 {
  static constexpr int STEP = 32;
  static constexpr bool IS_FLOAT = false;
  static constexpr int TABLE_WORDS = 0;
  struct Packed {
    uint4 q;
    uint32_t e;
  };
  static __device__ __forceinline__ int key(int i) { return i & 3; }
  static __device__ __forceinline__ Packed load(const Planes& w, int64_t row, int n, int step) {
    int64_t block = row * (n / 32) + step;
    Packed p;
    p.q = __ldg(reinterpret_cast<const uint4*>(w.quants) + block);
    p.e = __ldg(w.factors + block);
    return p;
  }
  // Doubled values 0, 1, 2, 3, 4, 6, 8, 12 of four nibbles, as signed bytes.
  static __device__ __forceinline__ uint32_t doubled(uint32_t nibbles) {
    uint32_t size = nibbles & 0x7777u;
    uint32_t plus = __byte_perm(0x03020100u, 0x0c080604u, size);
    uint32_t minus = __byte_perm(0xfdfeff00u, 0xf4f8fafcu, size);
    uint32_t signs = 0;
    // A selector with its top bit set copies the sign of the byte it selects, 0x80, to all bits.
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(signs) : "r"(0x80808080u), "r"(nibbles));
    signs &= 0x7f7f7f7fu;
    signs |= signs << 1;
    return (plus & ~signs) | (minus & signs);
  }
  template <int T>
  static __device__ __forceinline__ void
  dot(const Packed& p, const Activations& a, int first, int step, const uint32_t*, float* sums) {
    uint32_t bits = p.e < 2 ? 0x00200000u << p.e : (p.e - 1) << 23; // 2^(e - 128)
    float scale = __uint_as_float(bits);
    uint32_t q[4] = {p.q.x, p.q.y, p.q.z, p.q.w}, low[4], high[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      uint32_t b = doubled(q[i]), c = doubled(q[i] >> 16);
      low[i] = __byte_perm(b, c, 0x6420u);
      high[i] = __byte_perm(b, c, 0x7531u);
    }
#pragma unroll
    for (int t = 0; t < T; t++) {
      Sums s;
      add16<MXFP4>(a, first + t, 2 * step, low[0], low[1], low[2], low[3], s);
      add16<MXFP4>(a, first + t, 2 * step + 1, high[0], high[1], high[2], high[3], s);
      // two factors: a product of both scales could be subnormal
      sums[t] = fmaf(scale, scale_of(a, first + t, 2 * step) * s.value(), sums[t]);
    }
  }
};

// Halves, of weights divided by 32 (see dense_linear.py). No swizzle: see ``stage_floats``.
struct F16 {
  static constexpr int STEP = 8;
  static constexpr bool IS_FLOAT = true;
  static constexpr int TABLE_WORDS = 0;
  struct Packed {
    uint4 q;
  };
  static __device__ __forceinline__ int key(int) { return 0; }
  static __device__ __forceinline__ Packed load(const Planes& w, int64_t row, int n, int step) {
    return {__ldg(reinterpret_cast<const uint4*>(w.quants + 2 * row * n) + step)};
  }
  template <int T>
  static __device__ __forceinline__ void
  dot(const Packed& p, const Activations& a, int first, int step, const uint32_t*, float* sums) {
#pragma unroll
    for (int t = 0; t < T; t++) {
      const float4* x = reinterpret_cast<const float4*>(a.integers) + (first + t) * (a.padded / 4) + step;
      float4 v = x[0], w = x[a.padded / 8];
      float y = fmaf(low_half(p.q.x), v.x, high_half(p.q.x) * v.y);
      y = fmaf(low_half(p.q.y), v.z, fmaf(high_half(p.q.y), v.w, y));
      y = fmaf(low_half(p.q.z), w.x, fmaf(high_half(p.q.z), w.y, y));
      y = fmaf(low_half(p.q.w), w.z, fmaf(high_half(p.q.w), w.w, y));
      sums[t] = fmaf(32.0f, y, sums[t]);
    }
  }
};

template <typename Format>
__device__ __forceinline__ void fill_table(const uint32_t* table, uint32_t* shared) {
  for (int i = threadIdx.x; i < Format::TABLE_WORDS; i += blockDim.x) shared[i] = __ldg(table + i / 8);
}
__device__ __forceinline__ float sum_of_warp(float x) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}
