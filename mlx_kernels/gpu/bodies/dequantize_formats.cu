// One value of a packed row, in float32: format::value(planes, table, block, i).

struct Q8_0 {
  static constexpr int VALUES = 32;
  static __device__ __forceinline__ float
  value(const Planes& w, const uint32_t*, int64_t block, int i) {
    return half_at(w.factors, block) * float(reinterpret_cast<const int8_t*>(w.quants)[block * 32 + i]);
  }
};

template <bool HAS_FIFTH>
struct FourBits {
  static constexpr int VALUES = 256;
  static __device__ __forceinline__ float
  value(const Planes& w, const uint32_t*, int64_t block, int i) {
    int j = i / 32, l = i % 32;
    int q = (w.quants[block * 128 + 32 * (j / 2) + l] >> (4 * (j % 2))) & 15;
    if (HAS_FIFTH) q |= ((w.high[block * 32 + l] >> j) & 1) << 4;
    const uint8_t* s = w.scales + block * 12;
    int scale, offset; // 6 bits: eight low parts, the upper two of the last four elsewhere
    if (j < 4) {
      scale = s[j] & 63;
      offset = s[j + 4] & 63;
    } else {
      scale = (s[j + 4] & 15) | (s[j - 4] >> 6 << 4);
      offset = (s[j + 4] >> 4) | (s[j] >> 6 << 4);
    }
    float d = half_at(w.factors, 2 * block), dmin = half_at(w.factors, 2 * block + 1);
    return d * float(scale) * float(q) - dmin * float(offset);
  }
};
using Q4_K = FourBits<false>;
using Q5_K = FourBits<true>;

struct Q6_K {
  static constexpr int VALUES = 256;
  static __device__ __forceinline__ float
  value(const Planes& w, const uint32_t*, int64_t block, int i) {
    int run = i / 128, part = i / 32 % 4, l = i % 32;
    int q = (w.quants[block * 128 + 64 * run + 32 * (part % 2) + l] >> (4 * (part / 2))) & 15;
    q |= ((w.high[block * 64 + 32 * run + l] >> (2 * part)) & 3) << 4;
    int scale = reinterpret_cast<const int8_t*>(w.scales)[block * 16 + i / 16];
    return half_at(w.factors, block) * float(scale) * float(q - 32);
  }
};

struct Q2_K {
  static constexpr int VALUES = 256;
  static __device__ __forceinline__ float
  value(const Planes& w, const uint32_t*, int64_t block, int i) {
    int q = (w.quants[block * 64 + 32 * (i / 128) + i % 32] >> (2 * (i / 32 % 4))) & 3;
    int small = w.scales[block * 16 + i / 16];
    float d = half_at(w.factors, 2 * block), dmin = half_at(w.factors, 2 * block + 1);
    return d * float(small & 15) * float(q) - dmin * float(small >> 4);
  }
};

// Table: see the decode kernels.
struct IQ2_XXS {
  static constexpr int VALUES = 256;
  static __device__ __forceinline__ float
  value(const Planes& w, const uint32_t* table, int64_t block, int i) {
    const uint32_t* group = reinterpret_cast<const uint32_t*>(w.quants + block * 64) + i / 32 * 2;
    uint32_t indices = group[0], z = group[1];
    int j = i / 8 % 4, l = i % 8;
    uint32_t level = table[(indices >> (8 * j)) & 255u] >> (4 * l) & 3u;
    uint32_t is_negative = table[256 + ((z >> (7 * j)) & 127u)] >> (4 * l) & 4u;
    float size = level == 0 ? 8.0f : level == 1 ? 25.0f : 43.0f;
    float scale = half_at(w.factors, block) * (0.125f + 0.25f * float(z >> 28));
    return is_negative ? -scale * size : scale * size;
  }
};

struct MXFP4 {
  static constexpr int VALUES = 32;
  static __device__ __forceinline__ float
  value(const Planes& w, const uint32_t*, int64_t block, int i) {
    int q = (w.quants[block * 16 + i % 16] >> (4 * (i / 16))) & 15, size = q & 7;
    float doubled = size < 5 ? float(size) : size == 5 ? 6.0f : size == 6 ? 8.0f : 12.0f;
    uint32_t e = w.factors[block];
    float scale = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23); // 2^(e - 128)
    return q & 8 ? -scale * doubled : scale * doubled;
  }
};
