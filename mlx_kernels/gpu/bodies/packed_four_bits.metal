// Q4_K and Q5_K. Runs of 32 bytes: low nibbles of sub-block 2 j, high nibbles of 2 j + 1; Q5_K has
// a plane of fifth bits.
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
