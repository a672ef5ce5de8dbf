// What the block formats of packed weights in planes share. Each format is a struct in a file of its
// own, which follows; the kernels packed_*.metal call it Format.
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
