// Q2_K. Runs of 32 bytes a 128 values: four crumbs a byte, 32 values apart.
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
