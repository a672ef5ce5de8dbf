// Q3_K. Runs of 32 bytes a 128 values: four crumbs a byte, 32 values apart. A plane of third bits: bit j
// of byte l for value 32 j + l. Stored plus 4; scales of 6 bits for 16 values, stored plus 32.
struct Q3_K : NoTable {
  enum { STEP = 64, CHUNKS = 4, HAS_OFFSET = 0 };
  struct Packed {
    uint4 q;
    uint4 high;  // third bits of 16 bytes, for all eight runs of 32 values
    uint s0;
    uint s1;
    uint s2;
    float d;
  };
  static Packed load(Planes w, uint64_t row, uint n, uint step) {
    uint64_t block = row * uint64_t(n / 256u) + uint64_t(step / 4u);
    Packed p;
    p.q = load16(w.quants, block * 4u + uint64_t(step & 3u));
    p.high = load16(w.high, block * 2u + uint64_t(step & 1u));
    const device uint* small = (const device uint*)w.scales + block * 3u;
    p.s0 = small[0];
    p.s1 = small[1];
    p.s2 = small[2];
    p.d = half_at(w.factors, block);
    return p;
  }
  static uint column(uint step, uint c) {
    return (step >> 1u) * 128u + 32u * c + 16u * (step & 1u);
  }
  static float4 weights(uint q, uint high, uint shift, uint bit) {
    uint w = ((q >> shift) & 0x03030303u) | (((high >> bit) & 0x01010101u) << 2u);
    // Stored plus 4; to signed bytes, without a borrow between bytes.
    return from_signed_bytes(((w | 0x80808080u) - 0x04040404u) ^ 0x80808080u);
  }
  static Chunk chunk(Packed p, uint step, uint c, const threadgroup uint* words) {
    uint run = (step >> 1u) & 1u;
    uint sub = 8u * run + 2u * c + (step & 1u);  // of 16
    uint low = ((c < 2u ? p.s0 : p.s1) >> (8u * (sub & 3u) + 4u * run)) & 15u;
    uint top = (p.s2 >> (8u * (sub & 3u) + 2u * (sub >> 2u))) & 3u;
    uint shift = 2u * c;
    uint bit = 4u * run + c;
    Chunk k;
    k.w0 = weights(p.q.x, p.high.x, shift, bit);
    k.w1 = weights(p.q.y, p.high.y, shift, bit);
    k.w2 = weights(p.q.z, p.high.z, shift, bit);
    k.w3 = weights(p.q.w, p.high.w, shift, bit);
    k.scale = p.d * (float(low | (top << 4u)) - 32.0f);
    k.offset = 0.0f;
    return k;
  }
};
