// Q8_0: 32 signed bytes and a factor.
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
