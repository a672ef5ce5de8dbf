// MXFP4. 16 bytes: value l in the low nibble of byte l, 16 + l in the high one; an exponent byte.
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
