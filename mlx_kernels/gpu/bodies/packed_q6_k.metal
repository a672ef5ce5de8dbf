// Q6_K. Runs of 64 bytes a 128 values: low nibbles of the first 64, high nibbles of the last 64.
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
