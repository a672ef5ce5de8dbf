// Packed weights to tensor core fragments: one struct for each block format.
//
// mma.m16n8k16 sums over k in any order, so k is permuted such that a lane needs only neighbours of
// the packed row. A unit is 256 values of a row; the four lanes of a row (t = lane % 4) share it. In
// step s = 0..7 a lane supplies the eight values from k_offset(t, s) on: two products of depth 16.
//   load(w, row, n_columns, unit, t, scale)  this lane's share of a unit, in registers
//   unpack(packed, s, table, out)            eight values of step s as four pairs of halves
// scale is a power of two that keeps the halves in range. Past the end of a row the values are 0.

struct Planes {
  const uint8_t* quants;
  const uint8_t* high;    // high bits
  const uint8_t* scales;  // scales of sub-blocks
  const uint8_t* factors; // factors of blocks
};

__device__ __forceinline__ uint32_t pair_of(float x) {
  __half2 h = __float2half2_rn(x);
  return *reinterpret_cast<uint32_t*>(&h);
}
__device__ __forceinline__ uint32_t add2(uint32_t a, uint32_t b) {
  __half2 r = __hadd2(*reinterpret_cast<__half2*>(&a), *reinterpret_cast<__half2*>(&b));
  return *reinterpret_cast<uint32_t*>(&r);
}
__device__ __forceinline__ uint32_t mul2(uint32_t a, uint32_t b) {
  __half2 r = __hmul2(*reinterpret_cast<__half2*>(&a), *reinterpret_cast<__half2*>(&b));
  return *reinterpret_cast<uint32_t*>(&r);
}
__device__ __forceinline__ uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
  __half2 r = __hfma2(*reinterpret_cast<__half2*>(&a), *reinterpret_cast<__half2*>(&b),
                      *reinterpret_cast<__half2*>(&c));
  return *reinterpret_cast<uint32_t*>(&r);
}
__device__ __forceinline__ float half_bits_to_float(uint32_t bits) {
  uint16_t low = uint16_t(bits);
  return __half2float(*reinterpret_cast<__half*>(&low));
}

// A byte b under the upper byte 0x64 is the half 1024 + b, exactly.
__device__ __forceinline__ uint32_t low_bytes_1024(uint32_t w) {
  return __byte_perm(w, 0x64646464u, 0x4140u);
}
__device__ __forceinline__ uint32_t high_bytes_1024(uint32_t w) {
  return __byte_perm(w, 0x64646464u, 0x4342u);
}
constexpr uint32_t MINUS_1024 = 0xe400e400u;
constexpr uint32_t MINUS_1056 = 0xe420e420u; // Q6_K: stored plus 32
constexpr uint32_t MINUS_1152 = 0xe480e480u; // Q8_0: a signed byte plus 128

// Four unsigned bytes of w, then of w1, times scale plus offset (both pairs of equal halves).
__device__ __forceinline__ void affine8(
    uint32_t w, uint32_t w1, uint32_t scale, uint32_t offset, uint32_t* out) {
  out[0] = fma2(add2(low_bytes_1024(w), MINUS_1024), scale, offset);
  out[1] = fma2(add2(high_bytes_1024(w), MINUS_1024), scale, offset);
  out[2] = fma2(add2(low_bytes_1024(w1), MINUS_1024), scale, offset);
  out[3] = fma2(add2(high_bytes_1024(w1), MINUS_1024), scale, offset);
}
__device__ __forceinline__ void scaled8(
    uint32_t w, uint32_t w1, uint32_t minus, uint32_t scale, uint32_t* out) {
  out[0] = mul2(add2(low_bytes_1024(w), minus), scale);
  out[1] = mul2(add2(high_bytes_1024(w), minus), scale);
  out[2] = mul2(add2(low_bytes_1024(w1), minus), scale);
  out[3] = mul2(add2(high_bytes_1024(w1), minus), scale);
}

__device__ __forceinline__ uint32_t word_of(const uint4& v, int i) {
  return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// 64 bytes of eight groups of 32 values: four table indices, then 4 x 7 bits of signs and a scale.
struct IQ2_XXS {
  static constexpr bool HAS_TABLE = true;
  struct Packed {
    uint4 q;
    float d;
  };
  static __device__ __forceinline__ int k_offset(int t, int s) { return 64 * t + 8 * s; }
  static __device__ __forceinline__ Packed
  load(const Planes& w, int64_t row, int n_columns, int unit, int t, float scale) {
    int64_t block = row * (n_columns / 256) + unit;
    Packed p;
    p.q = __ldg(reinterpret_cast<const uint4*>(w.quants + block * 64 + 16 * t));
    p.d = scale * half_bits_to_float(__ldg(reinterpret_cast<const uint16_t*>(w.factors) + block));
    return p;
  }
  static __device__ __forceinline__ void
  unpack(const Packed& p, int s, const uint2* table, uint32_t* out) {
    uint32_t indices = s < 4 ? p.q.x : p.q.z;
    uint32_t z = s < 4 ? p.q.y : p.q.w;
    int j = s & 3;
    uint2 magnitudes = table[(indices >> (8 * j)) & 255u];
    uint32_t scale = pair_of(p.d * (0.125f + 0.25f * float(z >> 28)));
    scaled8(magnitudes.x, magnitudes.y, MINUS_1024, scale, out);
    uint32_t signs = (z >> (7 * j)) & 127u;
    signs |= (__popc(signs) & 1) << 7; // the eighth sign makes their number even
    signs |= signs << 15;
    out[0] ^= (signs << 15) & 0x80008000u;
    out[1] ^= (signs << 13) & 0x80008000u;
    out[2] ^= (signs << 11) & 0x80008000u;
    out[3] ^= (signs << 9) & 0x80008000u;
  }
};

// 64 bytes of 2 bits; 16 bytes (low nibble scale, high nibble offset); factors d, dmin.
struct Q2_K {
  static constexpr bool HAS_TABLE = false;
  struct Packed {
    uint4 q;
    uint32_t small; // the four sub-blocks of this lane, one byte each
    float d, dmin;
  };
  static __device__ __forceinline__ int k_offset(int t, int s) {
    return 128 * (t >> 1) + 16 * (t & 1) + 32 * (s >> 1) + 8 * (s & 1);
  }
  static __device__ __forceinline__ Packed
  load(const Planes& w, int64_t row, int n_columns, int unit, int t, float scale) {
    int64_t block = row * (n_columns / 256) + unit;
    Packed p;
    p.q = __ldg(reinterpret_cast<const uint4*>(w.quants + block * 64 + 16 * t));
    uint2 small = __ldg(reinterpret_cast<const uint2*>(w.scales + block * 16 + 8 * (t >> 1)));
    p.small = __byte_perm(small.x, small.y, t & 1 ? 0x7531u : 0x6420u);
    uint32_t dm = __ldg(reinterpret_cast<const uint32_t*>(w.factors) + block);
    p.d = scale * half_bits_to_float(dm);
    p.dmin = scale * half_bits_to_float(dm >> 16);
    return p;
  }
  static __device__ __forceinline__ void
  unpack(const Packed& p, int s, const uint2*, uint32_t* out) {
    int j = s >> 1;
    uint32_t small = p.small >> (8 * j);
    uint32_t scale = pair_of(p.d * float(small & 15u));
    uint32_t offset = pair_of(-p.dmin * float((small >> 4) & 15u));
    uint32_t w = s & 1 ? p.q.z : p.q.x, w1 = s & 1 ? p.q.w : p.q.y;
    affine8((w >> (2 * j)) & 0x03030303u, (w1 >> (2 * j)) & 0x03030303u, scale, offset, out);
  }
};

// 128 bytes of nibbles in runs of 32; 12 bytes with eight scales and offsets of 6 bits; d, dmin.
// Q5_K: and 32 bytes whose bit j is the fifth bit of run j.
template <bool HAS_FIFTH>
struct FourBits {
  static constexpr bool HAS_TABLE = false;
  struct Packed {
    uint4 q[2];
    uint4 fifth[HAS_FIFTH ? 2 : 1]; // bits 0 and 1 of a byte: of this lane's two runs
    uint32_t scale[2], offset[2];
  };
  static __device__ __forceinline__ int k_offset(int t, int s) { return 64 * t + 8 * s; }
  static __device__ __forceinline__ Packed
  load(const Planes& w, int64_t row, int n_columns, int unit, int t, float scale) {
    int64_t block = row * (n_columns / 256) + unit;
    Packed p;
    const uint4* q = reinterpret_cast<const uint4*>(w.quants + block * 128 + 32 * t);
    p.q[0] = __ldg(q);
    p.q[1] = __ldg(q + 1);
    if (HAS_FIFTH) {
      const uint4* high = reinterpret_cast<const uint4*>(w.high + block * 32);
#pragma unroll
      for (int i = 0; i < (HAS_FIFTH ? 2 : 1); i++) {
        uint4 h = __ldg(high + i);
        p.fifth[i] = uint4{h.x >> (2 * t), h.y >> (2 * t), h.z >> (2 * t), h.w >> (2 * t)};
      }
    }
    const uint32_t* words = reinterpret_cast<const uint32_t*>(w.scales) + block * 3;
    uint32_t s0 = __ldg(words), s1 = __ldg(words + 1), s2 = __ldg(words + 2);
    uint32_t scales, offsets; // of four sub-blocks, one byte each
    if (t < 2) {
      scales = s0 & 0x3f3f3f3fu;
      offsets = s1 & 0x3f3f3f3fu;
    } else {
      scales = (s2 & 0x0f0f0f0fu) | ((s0 >> 2) & 0x30303030u);
      offsets = ((s2 >> 4) & 0x0f0f0f0fu) | ((s1 >> 2) & 0x30303030u);
    }
    scales >>= 16 * (t & 1);
    offsets >>= 16 * (t & 1);
    uint32_t dm = __ldg(reinterpret_cast<const uint32_t*>(w.factors) + block);
    float d = scale * half_bits_to_float(dm), dmin = -scale * half_bits_to_float(dm >> 16);
    p.scale[0] = pair_of(d * float(scales & 255u));
    p.scale[1] = pair_of(d * float((scales >> 8) & 255u));
    p.offset[0] = pair_of(dmin * float(offsets & 255u));
    p.offset[1] = pair_of(dmin * float((offsets >> 8) & 255u));
    return p;
  }
  static __device__ __forceinline__ void
  unpack(const Packed& p, int s, const uint2*, uint32_t* out) {
    int high = s >> 2, i = 2 * (s & 1), part = (s >> 1) & 1;
    uint32_t w = (word_of(p.q[part], i) >> (4 * high)) & 0x0f0f0f0fu;
    uint32_t w1 = (word_of(p.q[part], i + 1) >> (4 * high)) & 0x0f0f0f0fu;
    if (HAS_FIFTH) {
      const uint4& fifth = p.fifth[HAS_FIFTH ? part : 0];
      w |= ((word_of(fifth, i) >> high) & 0x01010101u) << 4;
      w1 |= ((word_of(fifth, i + 1) >> high) & 0x01010101u) << 4;
    }
    affine8(w, w1, p.scale[high], p.offset[high], out);
  }
};
using Q4_K = FourBits<false>;
using Q5_K = FourBits<true>;

// 128 bytes of nibbles, 64 bytes with their upper two bits, stored plus 32; 16 signed scales;
// factor d. A lane's bytes hold the values of two runs of 32, 64 apart.
struct Q6_K {
  static constexpr bool HAS_TABLE = false;
  struct Packed {
    uint4 q[2], high[2]; // bits 0, 1 and 4, 5 of a byte of high: of the first and second run
    uint32_t scale[4];   // of 16 values each
  };
  static __device__ __forceinline__ int k_offset(int t, int s) {
    return 128 * (t >> 1) + 32 * (t & 1) + 64 * (s >> 2) + 8 * (s & 3);
  }
  static __device__ __forceinline__ Packed
  load(const Planes& w, int64_t row, int n_columns, int unit, int t, float scale) {
    int64_t block = row * (n_columns / 256) + unit;
    Packed p;
    const uint4* q = reinterpret_cast<const uint4*>(w.quants + block * 128 + 32 * t);
    const uint4* high = reinterpret_cast<const uint4*>(w.high + block * 64 + 32 * (t >> 1));
    int shift = 2 * (t & 1);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      p.q[i] = __ldg(q + i);
      uint4 h = __ldg(high + i);
      p.high[i] = uint4{h.x >> shift, h.y >> shift, h.z >> shift, h.w >> shift};
    }
    float d = scale * half_bits_to_float(__ldg(reinterpret_cast<const uint16_t*>(w.factors) + block));
    uint2 small = __ldg(reinterpret_cast<const uint2*>(w.scales + block * 16 + 8 * (t >> 1)));
    int at = 16 * (t & 1);
    p.scale[0] = pair_of(d * float(int8_t(small.x >> at)));
    p.scale[1] = pair_of(d * float(int8_t(small.x >> (at + 8))));
    p.scale[2] = pair_of(d * float(int8_t(small.y >> at)));
    p.scale[3] = pair_of(d * float(int8_t(small.y >> (at + 8))));
    return p;
  }
  static __device__ __forceinline__ void
  unpack(const Packed& p, int s, const uint2*, uint32_t* out) {
    int run = s >> 2, i = 2 * (s & 1), part = (s >> 1) & 1;
    uint32_t w = (word_of(p.q[part], i) >> (4 * run)) & 0x0f0f0f0fu;
    uint32_t w1 = (word_of(p.q[part], i + 1) >> (4 * run)) & 0x0f0f0f0fu;
    w |= ((word_of(p.high[part], i) >> (4 * run)) & 0x03030303u) << 4;
    w1 |= ((word_of(p.high[part], i + 1) >> (4 * run)) & 0x03030303u) << 4;
    scaled8(w, w1, MINUS_1056, p.scale[2 * run + part], out);
  }
};

// Blocks of 32: 32 signed bytes; factor d. The lanes of a row share each block. A unit's share would
// fill 24 registers, so it is loaded step by step.
struct Q8_0 {
  static constexpr bool HAS_TABLE = false;
  struct Packed {
    const uint8_t* q;
    const uint16_t* d;
    int n_blocks; // of this unit
    float scale;
  };
  static __device__ __forceinline__ int k_offset(int t, int s) { return 32 * s + 8 * t; }
  static __device__ __forceinline__ Packed
  load(const Planes& w, int64_t row, int n_columns, int unit, int t, float scale) {
    int n_blocks = n_columns / 32;
    int64_t block = row * n_blocks + 8 * unit;
    Packed p;
    p.q = w.quants + block * 32 + 8 * t;
    p.d = reinterpret_cast<const uint16_t*>(w.factors) + block;
    p.n_blocks = n_blocks - 8 * unit;
    p.scale = scale;
    return p;
  }
  static __device__ __forceinline__ void
  unpack(const Packed& p, int s, const uint2*, uint32_t* out) {
    int block = s < p.n_blocks ? s : 0;
    uint2 q = __ldg(reinterpret_cast<const uint2*>(p.q + 32 * block));
    float d = s < p.n_blocks ? p.scale * half_bits_to_float(__ldg(p.d + block)) : 0.0f;
    scaled8(q.x ^ 0x80808080u, q.y ^ 0x80808080u, MINUS_1152, pair_of(d), out);
  }
};

// Blocks of 32: 16 bytes, low nibbles first; a power of two. A nibble is sign, 2 exponent bits, 1
// mantissa bit; put at the same place of a half it is that value times 2^-14, subnormals too.
struct MXFP4 {
  static constexpr bool HAS_TABLE = false;
  struct Packed {
    uint4 q[2];
    uint32_t scale[2];
  };
  static __device__ __forceinline__ int k_offset(int t, int s) { return 64 * t + 8 * s; }
  static __device__ __forceinline__ Packed
  load(const Planes& w, int64_t row, int n_columns, int unit, int t, float scale) {
    int n_blocks = n_columns / 32;
    Packed p;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int at = 8 * unit + 2 * t + i;
      int64_t block = row * n_blocks + (at < n_blocks ? at : 0);
      p.q[i] = __ldg(reinterpret_cast<const uint4*>(w.quants) + block);
      uint32_t e = __ldg(w.factors + block);
      uint32_t bits = e == 0 ? 0x00400000u : e << 23; // 2^(e - 127)
      float power = *reinterpret_cast<float*>(&bits);
      p.scale[i] = pair_of(at < n_blocks ? power * scale * 16384.0f : 0.0f);
    }
    return p;
  }
  static __device__ __forceinline__ void
  unpack(const Packed& p, int s, const uint2*, uint32_t* out) {
    int part = s >> 2, high = (s >> 1) & 1, i = 2 * (s & 1);
#pragma unroll
    for (int j = 0; j < 2; j++) {
      uint32_t w = word_of(p.q[part], i + j) >> (4 * high);
      uint32_t a = __byte_perm(w, 0u, 0x1404u), b = __byte_perm(w, 0u, 0x3424u);
      a = ((a & 0x07000700u) << 1) | ((a & 0x08000800u) << 4);
      b = ((b & 0x07000700u) << 1) | ((b & 0x08000800u) << 4);
      out[2 * j] = mul2(a, p.scale[part]);
      out[2 * j + 1] = mul2(b, p.scale[part]);
    }
  }
};
