// Q4_0, Q4_1, Q5_0 and Q5_1: 32 values with one factor. 16 bytes: value l in the low nibble of byte l,
// 16 + l in the high one; Q5 has a plane of fifth bits, bit l of 32 for value l. Types _1 have an offset
// that is added, types _0 store integers plus 8 or 16.
template <bool HAS_FIFTH, bool HAS_MINIMUM>
struct Nibbles : NoTable {
  enum { STEP = 32, CHUNKS = 2, HAS_OFFSET = 1 };
  struct Packed {
    uint4 q;
    uint fifth;
    float scale;
    float offset;
  };
  static Packed load(Planes w, uint64_t row, uint n, uint step) {
    uint64_t block = row * uint64_t(n / 32u) + uint64_t(step);
    Packed p;
    p.q = load16(w.quants, block);
    p.fifth = 0u;
    if (HAS_FIFTH) {
      p.fifth = ((const device uint*)w.high)[block];
    }
    if (HAS_MINIMUM) {
      uint both = ((const device uint*)w.factors)[block];
      p.scale = low_half(both);
      p.offset = -high_half(both);
    } else {
      p.scale = half_at(w.factors, block);
      p.offset = p.scale * (HAS_FIFTH ? 16.0f : 8.0f);
    }
    return p;
  }
  static uint column(uint step, uint c) { return 32u * step + 16u * c; }
  static float4 weights(uint nibbles, uint fifth) {
    uint w = nibbles & 0x0f0f0f0fu;
    if (HAS_FIFTH) {
      // Bit i of the four to bit 8 i: it is shifted by 7 i, and no two bits meet.
      w |= (((fifth & 15u) * 0x00204081u) & 0x01010101u) << 4u;
    }
    return from_bytes(w);
  }
  static Chunk chunk(Packed p, uint step, uint c, const threadgroup uint* words) {
    uint shift = 4u * c;
    uint fifth = p.fifth >> (16u * c);
    Chunk k;
    k.w0 = weights(p.q.x >> shift, fifth);
    k.w1 = weights(p.q.y >> shift, fifth >> 4u);
    k.w2 = weights(p.q.z >> shift, fifth >> 8u);
    k.w3 = weights(p.q.w >> shift, fifth >> 12u);
    k.scale = p.scale;
    k.offset = p.offset;
    return k;
  }
};
typedef Nibbles<false, false> Q4_0;
typedef Nibbles<false, true> Q4_1;
typedef Nibbles<true, false> Q5_0;
typedef Nibbles<true, true> Q5_1;
