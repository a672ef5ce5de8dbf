// Block formats of packed weights in planes, for the kernels packed_*.metal.
//
// A lane takes a step of a row: 16 bytes of quants (32 of F16), and what belongs to them. A step is
// CHUNKS runs of 16 neighbouring columns.
//
//   load(w, row, C, step)          a lane's share, in registers
//   column(step, c)                first column of run c
//   chunk(p, step, c, words)       its 16 weights: scale * w - offset (offset 0 unless HAS_OFFSET)
//   fill(table, words, i, n)       thread i of n writes its share of TABLE_WORDS threadgroup words
//
// Planes have at least 8 elements, so MLX passes every one of them in the device address space.

struct Planes {
  const device uint8_t* quants;
  const device uint8_t* high;
  const device uint8_t* scales;
  const device uint8_t* factors;
};

struct Chunk {
  float4 w0;
  float4 w1;
  float4 w2;
  float4 w3;
  float scale;
  float offset;
};

inline uint4 load16(const device uint8_t* plane, uint64_t unit) {
  return ((const device uint4*)plane)[unit];
}
inline float half_at(const device uint8_t* plane, uint64_t i) {
  return float(((const device half*)plane)[i]);
}
inline float low_half(uint w) { return float(as_type<half>(ushort(w & 0xffffu))); }
inline float high_half(uint w) { return float(as_type<half>(ushort(w >> 16u))); }

inline float4 from_bytes(uint w) {
  return float4{float(w & 255u), float((w >> 8u) & 255u), float((w >> 16u) & 255u), float(w >> 24u)};
}
inline float4 from_signed_bytes(uint w) {
  return float4{float(int(w << 24u) >> 24), float(int(w << 16u) >> 24), float(int(w << 8u) >> 24),
                float(int(w) >> 24)};
}
inline float4 from_halves(uint a, uint b) {
  return float4{low_half(a), high_half(a), low_half(b), high_half(b)};
}

// For formats without a table.
struct NoTable {
  enum { TABLE_WORDS = 0 };
  static void fill(const device uint* table, threadgroup uint* words, uint i, uint n) {}
};

struct F16 : NoTable {
  enum { STEP = 16, CHUNKS = 1, HAS_OFFSET = 0 };
  struct Packed {
    uint4 first;
    uint4 second;
  };
  static Packed load(Planes w, uint64_t row, uint n, uint step) {
    Packed p;
    uint64_t unit = row * uint64_t(n / 8u) + uint64_t(2u * step);
    p.first = load16(w.quants, unit);
    p.second = load16(w.quants, unit + 1u);
    return p;
  }
  static uint column(uint step, uint c) { return 16u * step + c; }
  static Chunk chunk(Packed p, uint step, uint c, const threadgroup uint* words) {
    Chunk k;
    k.w0 = from_halves(p.first.x, p.first.y);
    k.w1 = from_halves(p.first.z, p.first.w);
    k.w2 = from_halves(p.second.x, p.second.y);
    k.w3 = from_halves(p.second.z, p.second.w);
    k.scale = 1.0f;
    k.offset = 0.0f;
    return k;
  }
};

struct Q8_0 : NoTable {
  enum { STEP = 16, CHUNKS = 1, HAS_OFFSET = 0 };
  struct Packed {
    uint4 q;
    float d;
  };
  static Packed load(Planes w, uint64_t row, uint n, uint step) {
    Packed p;
    p.q = load16(w.quants, row * uint64_t(n / 16u) + uint64_t(step));
    p.d = half_at(w.factors, row * uint64_t(n / 32u) + uint64_t(step / 2u));
    return p;
  }
  static uint column(uint step, uint c) { return 16u * step + c; }
  static Chunk chunk(Packed p, uint step, uint c, const threadgroup uint* words) {
    Chunk k;
    k.w0 = from_signed_bytes(p.q.x);
    k.w1 = from_signed_bytes(p.q.y);
    k.w2 = from_signed_bytes(p.q.z);
    k.w3 = from_signed_bytes(p.q.w);
    k.scale = p.d;
    k.offset = 0.0f;
    return k;
  }
};

// Runs of 32 bytes: low nibbles of sub-block 2 j, high nibbles of 2 j + 1. Q5_K: fifth bits.
template <bool HAS_FIFTH>
struct FourBits : NoTable {
  enum { STEP = 32, CHUNKS = 2, HAS_OFFSET = 1 };
  struct Packed {
    uint4 q;
    uint4 high;  // fifth bits of 16 bytes, for all eight sub-blocks
    uint scales;  // of the two sub-blocks, a byte each
    uint offsets;
    uint factors;
  };
  static Packed load(Planes w, uint64_t row, uint n, uint step) {
    uint64_t block = row * uint64_t(n / 256u) + uint64_t(step / 8u);
    Packed p;
    p.q = load16(w.quants, block * 8u + uint64_t(step & 7u));
    p.high = p.q;
    if (HAS_FIFTH) {
      p.high = load16(w.high, block * 2u + uint64_t(step & 1u));
    }
    // 12 bytes of 6-bit numbers: eight low parts, the upper two bits of the last four elsewhere.
    const device uint* small = (const device uint*)w.scales + block * 3u;
    uint s0 = small[0];
    uint s1 = small[1];
    uint s2 = small[2];
    uint j = (step >> 1u) & 3u;
    bool is_first = j < 2u;
    uint scales = is_first ? s0 & 0x3f3f3f3fu : (s2 & 0x0f0f0f0fu) | ((s0 >> 2u) & 0x30303030u);
    uint offsets =
        is_first ? s1 & 0x3f3f3f3fu : ((s2 >> 4u) & 0x0f0f0f0fu) | ((s1 >> 2u) & 0x30303030u);
    p.scales = scales >> (16u * (j & 1u));
    p.offsets = offsets >> (16u * (j & 1u));
    p.factors = ((const device uint*)w.factors)[block];
    return p;
  }
  static uint column(uint step, uint c) {
    return (step >> 3u) * 256u + ((step >> 1u) & 3u) * 64u + 32u * c + 16u * (step & 1u);
  }
  static float4 weights(uint q, uint high, uint part, uint bit) {
    uint w = (q >> (4u * part)) & 0x0f0f0f0fu;
    if (HAS_FIFTH) {
      w |= ((high >> bit) & 0x01010101u) << 4u;
    }
    return from_bytes(w);
  }
  static Chunk chunk(Packed p, uint step, uint c, const threadgroup uint* words) {
    uint bit = (step & 6u) + c;
    Chunk k;
    k.w0 = weights(p.q.x, p.high.x, c, bit);
    k.w1 = weights(p.q.y, p.high.y, c, bit);
    k.w2 = weights(p.q.z, p.high.z, c, bit);
    k.w3 = weights(p.q.w, p.high.w, c, bit);
    k.scale = low_half(p.factors) * float((p.scales >> (8u * c)) & 255u);
    k.offset = high_half(p.factors) * float((p.offsets >> (8u * c)) & 255u);
    return k;
  }
};
typedef FourBits<false> Q4_K;
typedef FourBits<true> Q5_K;

// Runs of 64 bytes a 128 values: low nibbles of the first 64, high nibbles of the last 64.
struct Q6_K : NoTable {
  enum { STEP = 32, CHUNKS = 2, HAS_OFFSET = 0 };
  struct Packed {
    uint4 q;
    uint4 high;
    float first;  // scales of the 16 values of each nibble
    float second;
  };
  static Packed load(Planes w, uint64_t row, uint n, uint step) {
    uint64_t block = row * uint64_t(n / 256u) + uint64_t(step / 8u);
    uint r = step & 7u;
    Packed p;
    p.q = load16(w.quants, block * 8u + uint64_t(r));
    p.high = load16(w.high, block * 4u + uint64_t((r >> 2u) * 2u + (r & 1u)));
    const device int8_t* scales = (const device int8_t*)w.scales + block * 16u;
    float d = half_at(w.factors, block);
    p.first = d * float(scales[(r >> 2u) * 8u + (r & 3u)]);
    p.second = d * float(scales[(r >> 2u) * 8u + (r & 3u) + 4u]);
    return p;
  }
  static uint column(uint step, uint c) {
    return (step >> 2u) * 128u + 64u * c + 16u * (step & 3u);
  }
  static float4 weights(uint q, uint high, uint part, uint shift) {
    uint w = ((q >> (4u * part)) & 0x0f0f0f0fu) | (((high >> shift) & 0x03030303u) << 4u);
    // Stored plus 32; to signed bytes, without a borrow between bytes.
    return from_signed_bytes(((w | 0x80808080u) - 0x20202020u) ^ 0x80808080u);
  }
  static Chunk chunk(Packed p, uint step, uint c, const threadgroup uint* words) {
    uint shift = (step & 2u) + 4u * c;
    Chunk k;
    k.w0 = weights(p.q.x, p.high.x, c, shift);
    k.w1 = weights(p.q.y, p.high.y, c, shift);
    k.w2 = weights(p.q.z, p.high.z, c, shift);
    k.w3 = weights(p.q.w, p.high.w, c, shift);
    k.scale = c == 0u ? p.first : p.second;
    k.offset = 0.0f;
    return k;
  }
};

// Runs of 32 bytes a 128 values: four crumbs a byte, 32 values apart.
struct Q2_K : NoTable {
  enum { STEP = 64, CHUNKS = 4, HAS_OFFSET = 1 };
  struct Packed {
    uint4 q;
    uint2 small;  // scales and offsets, a nibble each, of 128 values
    uint factors;
  };
  static Packed load(Planes w, uint64_t row, uint n, uint step) {
    uint64_t block = row * uint64_t(n / 256u) + uint64_t(step / 4u);
    Packed p;
    p.q = load16(w.quants, block * 4u + uint64_t(step & 3u));
    p.small = ((const device uint2*)w.scales)[block * 2u + uint64_t((step >> 1u) & 1u)];
    p.factors = ((const device uint*)w.factors)[block];
    return p;
  }
  static uint column(uint step, uint c) {
    return (step >> 1u) * 128u + 32u * c + 16u * (step & 1u);
  }
  static Chunk chunk(Packed p, uint step, uint c, const threadgroup uint* words) {
    uint half_of_four = c < 2u ? p.small.x : p.small.y;
    uint small = (half_of_four >> (16u * (c & 1u) + 8u * (step & 1u))) & 255u;
    uint shift = 2u * c;
    Chunk k;
    k.w0 = from_bytes((p.q.x >> shift) & 0x03030303u);
    k.w1 = from_bytes((p.q.y >> shift) & 0x03030303u);
    k.w2 = from_bytes((p.q.z >> shift) & 0x03030303u);
    k.w3 = from_bytes((p.q.w >> shift) & 0x03030303u);
    k.scale = low_half(p.factors) * float(small & 15u);
    k.offset = high_half(p.factors) * float(small >> 4u);
    return k;
  }
};

// Groups of 8 bytes for 32 values: four indices of the grid, then 4 x 7 signs and a scale.
// The table has 256 grid entries and 128 sign patterns, a nibble a value: the level 0 to 2, or 4
// where the value is negative. In threadgroup memory a grid entry is eight bytes: 8, 25 or 43.
struct IQ2_XXS {
  enum { STEP = 64, CHUNKS = 4, HAS_OFFSET = 0, TABLE_WORDS = 2 * 256 + 128 };
  struct Packed {
    uint4 q;
    float d;
  };
  static uint sizes(uint nibbles) {
    uint levels = (nibbles & 0x3u) | ((nibbles & 0x30u) << 4u) | ((nibbles & 0x300u) << 8u) |
                  ((nibbles & 0x3000u) << 12u);
    return 0x08080808u + 17u * levels + ((levels >> 1u) & 0x01010101u);
  }
  static void fill(const device uint* table, threadgroup uint* words, uint i, uint n) {
    for (uint entry = i; entry < 256u; entry += n) {
      uint nibbles = table[entry];
      words[2u * entry] = sizes(nibbles);
      words[2u * entry + 1u] = sizes(nibbles >> 16u);
    }
    for (uint entry = i; entry < 128u; entry += n) {
      words[512u + entry] = table[256u + entry];
    }
  }
  static Packed load(Planes w, uint64_t row, uint n, uint step) {
    Packed p;
    p.q = load16(w.quants, row * uint64_t(n / 64u) + uint64_t(step));
    p.d = half_at(w.factors, row * uint64_t(n / 256u) + uint64_t(step / 4u));
    return p;
  }
  static uint column(uint step, uint c) { return 64u * step + 16u * c; }
  // Bit 2 of nibble l of ``signs`` is the sign of value l.
  static float4 with_signs(float4 w, uint signs) {
    return float4{as_type<float>(as_type<uint>(w.x) ^ ((signs << 29u) & 0x80000000u)),
                  as_type<float>(as_type<uint>(w.y) ^ ((signs << 25u) & 0x80000000u)),
                  as_type<float>(as_type<uint>(w.z) ^ ((signs << 21u) & 0x80000000u)),
                  as_type<float>(as_type<uint>(w.w) ^ ((signs << 17u) & 0x80000000u))};
  }
  static Chunk chunk(Packed p, uint step, uint c, const threadgroup uint* words) {
    uint indices = (c < 2u ? p.q.x : p.q.z) >> (16u * (c & 1u));
    uint z = c < 2u ? p.q.y : p.q.w;
    uint first = 2u * (indices & 255u);
    uint second = 2u * ((indices >> 8u) & 255u);
    uint seven = z >> (14u * (c & 1u));
    uint first_signs = words[512u + (seven & 127u)];
    uint second_signs = words[512u + ((seven >> 7u) & 127u)];
    Chunk k;
    k.w0 = with_signs(from_bytes(words[first]), first_signs);
    k.w1 = with_signs(from_bytes(words[first + 1u]), first_signs >> 16u);
    k.w2 = with_signs(from_bytes(words[second]), second_signs);
    k.w3 = with_signs(from_bytes(words[second + 1u]), second_signs >> 16u);
    k.scale = p.d * (0.125f + 0.25f * float(z >> 28u));
    k.offset = 0.0f;
    return k;
  }
};

// 16 bytes: value l in the low nibble of byte l, 16 + l in the high one; an exponent byte.
struct MXFP4 : NoTable {
  enum { STEP = 32, CHUNKS = 2, HAS_OFFSET = 0 };
  struct Packed {
    uint4 q;
    float scale;
  };
  static Packed load(Planes w, uint64_t row, uint n, uint step) {
    uint64_t block = row * uint64_t(n / 32u) + uint64_t(step);
    Packed p;
    p.q = load16(w.quants, block);
    uint e = uint(w.factors[block]);
    p.scale = as_type<float>(e < 2u ? 0x00200000u << e : (e - 1u) << 23u);  // 2^(e - 128)
    return p;
  }
  static uint column(uint step, uint c) { return 32u * step + 16u * c; }
  // Doubled values of four nibbles, one a byte: 0, 1, 2, 3, 4, 6, 8, 12, minus where bit 3 is set.
  static float4 doubled(uint nibbles) {
    uint one = nibbles & 0x01010101u;
    uint is_big = (nibbles >> 2u) & 0x01010101u;
    uint is_twice = (nibbles >> 1u) & 0x01010101u;
    uint big = 0x04040404u + 2u * one;
    big += big & (is_twice * 255u);
    uint small = nibbles & 0x03030303u;
    uint mask = is_big * 255u;
    float4 w = from_bytes((small & ~mask) | (big & mask));
    return float4{as_type<float>(as_type<uint>(w.x) ^ ((nibbles << 28u) & 0x80000000u)),
                  as_type<float>(as_type<uint>(w.y) ^ ((nibbles << 20u) & 0x80000000u)),
                  as_type<float>(as_type<uint>(w.z) ^ ((nibbles << 12u) & 0x80000000u)),
                  as_type<float>(as_type<uint>(w.w) ^ ((nibbles << 4u) & 0x80000000u))};
  }
  static Chunk chunk(Packed p, uint step, uint c, const threadgroup uint* words) {
    uint shift = 4u * c;
    Chunk k;
    k.w0 = doubled((p.q.x >> shift) & 0x0f0f0f0fu);
    k.w1 = doubled((p.q.y >> shift) & 0x0f0f0f0fu);
    k.w2 = doubled((p.q.z >> shift) & 0x0f0f0f0fu);
    k.w3 = doubled((p.q.w >> shift) & 0x0f0f0f0fu);
    k.scale = p.scale;
    k.offset = 0.0f;
    return k;
  }
};
