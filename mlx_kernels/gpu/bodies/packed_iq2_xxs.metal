// IQ2_XXS. Groups of 8 bytes for 32 values: four indices of the grid, then 4 x 7 signs and a scale.
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
