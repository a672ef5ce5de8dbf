// F16: two bytes a value.
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
