// Decode on tensor cores: 16 rows of weights times the digits of one activation vector.
//
// An activation is an integer of 24 bits with a scale for each 256 neighbours,
//     x = scale * (65536 d0 + 256 d1 + d2),   d0, d1, d2 signed bytes,
// as precise as float32 next to the largest of the 256. mma.m16n8k32 multiplies 16 rows of 32 weights
// (bytes) with eight columns: columns 0, 2 and 4 are the three digits, so that lane 4 g + t holds the
// sums of digit t of rows g and g + 8. The order of the 32 is free as long as both sides agree, so a
// lane takes those weights that it can unpack.
//
// A warp owns some column blocks (256 columns) and goes through the tiles (16 rows) of its block of
// threads. Packed weights come by background copies, SLOTS units ahead. Warps meet once, to add up.

struct Planes {
  const uint8_t* quants;
  const uint8_t* high;
  const uint8_t* scales;
  const uint8_t* factors;
};

__device__ __forceinline__ float half_of(uint32_t bits) {
  return __half2float(__ushort_as_half((unsigned short)(bits & 0xffffu)));
}

// d = a b + c. Lane 4 g + t: a0, a2 are weights of row g, a1, a3 of row g + 8; b0, b1 those of column g.
__device__ __forceinline__ void
mma_signed(int* d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1,
           int c0, int c1, int c2, int c3) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c0), "r"(c1), "r"(c2), "r"(c3));
}
// d += a b, the weights unsigned bytes
__device__ __forceinline__ void
mma_unsigned(int* d, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3]));
}

__device__ __forceinline__ void copy_16(void* shared, const void* global) {
  uint32_t to = uint32_t(__cvta_generic_to_shared(shared));
  int n_bytes = 16;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(n_bytes)
               : "memory");
}
__device__ __forceinline__ void copy_4(void* shared, const void* global) {
  uint32_t to = uint32_t(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(global) : "memory");
}
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Wait until at most N groups are on their way.
template <int N>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// ---- activations

// A column block in shared memory: three planes of 256 digits, 16 bytes apart from a multiple of 128,
// then four planes of 16 digits of the sums of 16 neighbours, then the scale.
constexpr int DIGITS_STRIDE = 256 + 16;
constexpr int SUMS_AT = 3 * DIGITS_STRIDE, SCALE_AT = SUMS_AT + 64, COLUMN_BLOCK_BYTES = SCALE_AT + 16;

__device__ __forceinline__ uint32_t bytes_of(int a, int b, int c, int d) {
  return __byte_perm(__byte_perm(a, b, 0x0040u), __byte_perm(c, d, 0x0040u), 0x5410u);
}
// Split into the lowest signed byte, which is returned, and the rest.
__device__ __forceinline__ int take_digit(int& x) {
  int digit = (x << 24) >> 24;
  x = (x - digit) >> 8;
  return digit;
}

// 256 values of x, by one warp; all lanes must call. Lane l stages values 8 l .. 8 l + 7.
__device__ __forceinline__ void stage_block(const float* x, uint8_t* to) {
  const int lane = threadIdx.x % 32;
  float4 first = __ldg(reinterpret_cast<const float4*>(x) + 2 * lane);
  float4 second = __ldg(reinterpret_cast<const float4*>(x) + 2 * lane + 1);
  float v[8] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
  uint32_t top = 0; // sizes order like unsigned integers, NaN above infinity above numbers
#pragma unroll
  for (int i = 0; i < 8; i++) top = max(top, __float_as_uint(fabsf(v[i])));
  for (int step = 16; step > 0; step /= 2) top = max(top, __shfl_xor_sync(0xffffffffu, top, step));
  float size = __uint_as_float(top);
  bool is_zero = size < 1e-30f;
  float to_integer = is_zero ? 0.0f : 8355000.0f / size;
  int sum = 0, digits[3][8];
#pragma unroll
  for (int i = 0; i < 8; i++) {
    int q = __float2int_rn(v[i] * to_integer);
    sum += q;
    digits[2][i] = take_digit(q);
    digits[1][i] = take_digit(q);
    digits[0][i] = q;
  }
#pragma unroll
  for (int p = 0; p < 3; p++) {
    const int* d = digits[p];
    uint32_t* words = reinterpret_cast<uint32_t*>(to + p * DIGITS_STRIDE + 8 * lane);
    words[0] = bytes_of(d[0], d[1], d[2], d[3]);
    words[1] = bytes_of(d[4], d[5], d[6], d[7]);
  }
  sum += __shfl_xor_sync(0xffffffffu, sum, 1);
  if (lane % 2 == 0) {
    // Sub-block s = 8 run + 2 crumb + half at 8 run + 4 half + crumb: a lane's four are neighbours.
    int s = lane / 2, at = (s & 8) + 4 * (s & 1) + ((s >> 1) & 3);
    to[SUMS_AT + 32 + at] = uint8_t(take_digit(sum));
    to[SUMS_AT + 16 + at] = uint8_t(take_digit(sum));
    to[SUMS_AT + at] = uint8_t(take_digit(sum));
    to[SUMS_AT + 48 + at] = uint8_t(sum);
  }
  if (lane == 0) *reinterpret_cast<float*>(to + SCALE_AT) = is_zero ? 0.0f : size * (1.0f / 8355000.0f);
}

// Weights of the digits in a lane's sums; of the sums of 16 there is a fourth digit.
__device__ __forceinline__ float digit_weight(int t) {
  return t == 0 ? 65536.0f : t == 1 ? 256.0f : t == 2 ? 1.0f : 0.0f;
}
__device__ __forceinline__ float sum_of_quad(float x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

// ---- formats
//
//   TABLE_WORDS, SLOT_BYTES     shared memory of the block of threads, of a unit
//   copy(slot, w, row, n, cb)   asks for column block cb of a row's n, in the copies of lane's row
//   Digits(staged)              the lane's digits of a column block, in registers
//   product(slot, digits, table, odd, y)   y[0], y[1] += rows g and g + 8, this lane's digit

// A row's 16-byte units lie swizzled: eight rows' units of one column are in different banks.
__device__ __forceinline__ uint8_t* unit_at(uint8_t* slot, int row, int unit) {
  return slot + row * 64 + 16 * (unit ^ ((row >> 1) & 3));
}

// Eight bytes for 32 values: four indices of the grid, then 4 x 7 signs and a scale. The table has 32
// copies, one a lane, of 256 grid entries and of 128 sign patterns. An entry is eight nibbles, one a
// value: its level 0 .. 2, plus 4 where the sign is negative: selectors of byte_perm.
struct IQ2_XXS {
  static constexpr int TABLE_WORDS = 32 * (256 + 128), SLOT_BYTES = 16 * 64 + 64;
  struct Digits {
    uint2 d[8];
    float scale;
    __device__ __forceinline__ explicit Digits(const uint8_t* staged) {
      const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
      const uint8_t* from = staged + min(g / 2, 2) * DIGITS_STRIDE + 8 * t;
#pragma unroll
      for (int i = 0; i < 8; i++) d[i] = *reinterpret_cast<const uint2*>(from + 32 * i);
      scale = *reinterpret_cast<const float*>(staged + SCALE_AT) * digit_weight(t);
    }
  };
  // n is even and the plane of factors starts at a multiple of 4: two factors a copy.
  static __device__ __forceinline__ void
  copy(uint8_t* slot, const Planes& w, int row_of_tile, int64_t row, int n, int cb) {
    const int lane = threadIdx.x % 32;
    copy_16(unit_at(slot, row_of_tile, lane % 4), w.quants + (row * n + cb) * 64 + 16 * (lane % 4));
    if (lane % 4 == 0) copy_4(slot + 1024 + 4 * row_of_tile, w.factors + 2 * (row * n + (cb & ~1)));
  }
  static __device__ __forceinline__ void
  product(uint8_t* slot, const Digits& digits, const uint32_t* table, int cb, float* y) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const uint8_t* grid = reinterpret_cast<const uint8_t*>(table);
    const uint8_t* signs = grid + 256 * 128;
    int sums[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < 8; i++) {
      uint32_t w[2][2];
      int scale[2];
#pragma unroll
      for (int r = 0; r < 2; r++) {
        uint2 q = *reinterpret_cast<const uint2*>(unit_at(slot, g + 8 * r, i / 2) + 8 * (i % 2));
        // index and pattern of this lane's eight values, times 128: the bytes of 32 copies
        uint32_t index = __funnelshift_r(q.x, q.x, 8 * t - 7) & (255u << 7);
        uint32_t pattern = __funnelshift_r(q.y, q.y, 7 * t - 7) & (127u << 7);
        uint32_t select = *reinterpret_cast<const uint32_t*>(grid + (index | 4 * lane)) ^
                          *reinterpret_cast<const uint32_t*>(signs + (pattern | 4 * lane));
        w[r][0] = __byte_perm(0x002b1908u, 0x00d5e7f8u, select); // 8, 25, 43; -8, -25, -43
        w[r][1] = __byte_perm(0x002b1908u, 0x00d5e7f8u, select >> 16);
        scale[r] = int((q.y >> 27) | 1u); // twice the scale's four bits, plus 1
      }
      int d[4];
      mma_signed(d, w[0][0], w[1][0], w[0][1], w[1][1], digits.d[i].x, digits.d[i].y, 0, 0, 0, 0);
      sums[0] += scale[0] * d[0];
      sums[1] += scale[1] * d[2];
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
      uint32_t both = *reinterpret_cast<const uint32_t*>(slot + 1024 + 4 * (g + 8 * r));
      float factor = 0.125f * half_of(cb & 1 ? both >> 16 : both);
      y[r] = fmaf(factor * digits.scale, float(sums[r]), y[r]);
    }
  }
};

// Runs of 32 bytes for 128 values: four crumbs a byte, 32 values apart; 16 sub-blocks of 16, each with
// four bits of scale and of offset. Crumbs times scales are bytes: 3 * 15, or 12 * 15 where the crumb
// keeps its place (those sums are four times too large).
struct Q2_K {
  static constexpr int TABLE_WORDS = 0, SLOT_BYTES = 16 * (64 + 16 + 4);
  struct Digits {
    uint4 d[4]; // crumbs
    uint32_t sums;
    float scale, sums_scale;
    __device__ __forceinline__ explicit Digits(const uint8_t* staged) {
      const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
      const uint8_t* from =
          staged + min(g / 2, 2) * DIGITS_STRIDE + (t / 2) * 128 + (t % 2) * 16;
#pragma unroll
      for (int c = 0; c < 4; c++) d[c] = *reinterpret_cast<const uint4*>(from + 32 * c);
      sums = *reinterpret_cast<const uint32_t*>(staged + SUMS_AT + (g / 2) * 16 + 4 * t);
      float unit = *reinterpret_cast<const float*>(staged + SCALE_AT);
      scale = unit * digit_weight(t);
      sums_scale = unit * (t == 3 ? 16777216.0f : digit_weight(t));
    }
  };
  static __device__ __forceinline__ void
  copy(uint8_t* slot, const Planes& w, int row_of_tile, int64_t row, int n, int cb) {
    const int lane = threadIdx.x % 32;
    int64_t block = row * n + cb;
    copy_16(slot + row_of_tile * 64 + 16 * (lane % 4), w.quants + block * 64 + 16 * (lane % 4));
    if (lane % 4 == 0) copy_16(slot + 1024 + 16 * row_of_tile, w.scales + block * 16);
    if (lane % 4 == 1) copy_4(slot + 1280 + 4 * row_of_tile, w.factors + block * 4);
  }
  static __device__ __forceinline__ void
  product(uint8_t* slot, const Digits& digits, const uint32_t*, int, float* y) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t q[2][4], scales[2][4], offsets[2], both[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      uint4 quants = *reinterpret_cast<const uint4*>(slot + (g + 8 * r) * 64 + 16 * t);
      q[r][0] = quants.x; q[r][1] = quants.y; q[r][2] = quants.z; q[r][3] = quants.w;
      uint2 bytes = *reinterpret_cast<const uint2*>(slot + 1024 + 16 * (g + 8 * r) + 8 * (t / 2));
      uint32_t small = __byte_perm(bytes.x, bytes.y, t % 2 ? 0x7531u : 0x6420u);
      offsets[r] = (small >> 4) & 0x0f0f0f0fu;
#pragma unroll
      for (int c = 0; c < 4; c++) scales[r][c] = (small >> (8 * c)) & 15u;
      both[r] = *reinterpret_cast<const uint32_t*>(slot + 1280 + 4 * (g + 8 * r));
    }
    int even[4] = {}, odd[4] = {}, low[4] = {};
    const uint32_t* d[4];
#pragma unroll
    for (int c = 0; c < 4; c++) d[c] = reinterpret_cast<const uint32_t*>(&digits.d[c]);
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint32_t w[2][4];
#pragma unroll
      for (int r = 0; r < 2; r++) {
        uint32_t upper = q[r][j] >> 4;
        w[r][0] = (q[r][j] & 0x03030303u) * scales[r][0];
        w[r][1] = (q[r][j] & 0x0c0c0c0cu) * scales[r][1];
        w[r][2] = (upper & 0x03030303u) * scales[r][2];
        w[r][3] = (upper & 0x0c0c0c0cu) * scales[r][3];
      }
      mma_unsigned(even, w[0][0], w[1][0], w[0][2], w[1][2], d[0][j], d[2][j]);
      mma_unsigned(odd, w[0][1], w[1][1], w[0][3], w[1][3], d[1][j], d[3][j]);
    }
    mma_unsigned(low, offsets[0], offsets[1], 0u, 0u, digits.sums, 0u);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float factor = half_of(both[r]), offset = half_of(both[r] >> 16);
      y[r] = fmaf(factor * digits.scale, float(even[2 * r]) + 0.25f * float(odd[2 * r]), y[r]);
      y[r] = fmaf(-offset * digits.sums_scale, float(low[2 * r]), y[r]);
    }
  }
};

// Runs of 32 bytes: low nibbles of sub-block 2 j, high nibbles of 2 j + 1, each with six bits of scale
// and of offset. Units of 16 bytes are swizzled by pairs: four rows' runs are in different banks.
struct Q4_K {
  static constexpr int TABLE_WORDS = 0, SLOT_BYTES = 16 * (128 + 12 + 4);
  struct Digits {
    uint2 d[8];
    uint32_t sums;
    float scale, sums_scale;
    __device__ __forceinline__ explicit Digits(const uint8_t* staged) {
      const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
      const uint8_t* from = staged + min(g / 2, 2) * DIGITS_STRIDE + 8 * t;
#pragma unroll
      for (int i = 0; i < 8; i++) d[i] = *reinterpret_cast<const uint2*>(from + 32 * i);
      sums = *reinterpret_cast<const uint32_t*>(staged + SUMS_AT + (g / 2) * 16 + 4 * t);
      float unit = *reinterpret_cast<const float*>(staged + SCALE_AT);
      scale = unit * digit_weight(t);
      sums_scale = unit * (t == 3 ? 16777216.0f : digit_weight(t));
    }
  };
  static __device__ __forceinline__ void
  copy(uint8_t* slot, const Planes& w, int row_of_tile, int64_t row, int n, int cb) {
    const int part = threadIdx.x % 4;
    int64_t block = row * n + cb;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int unit = part + 4 * i;
      copy_16(slot + row_of_tile * 128 + 16 * (unit ^ (2 * (row_of_tile & 3))), w.quants + block * 128 + 16 * unit);
    }
    const uint8_t* small = part < 3 ? w.scales + block * 12 + 4 * part : w.factors + block * 4;
    copy_4(slot + 2048 + 16 * row_of_tile + 4 * part, small);
  }
  static __device__ __forceinline__ void
  product(uint8_t* slot, const Digits& digits, const uint32_t*, int, float* y) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    uint32_t scales[2][2], offsets[2], both[2];
    int sums[2] = {0, 0}, low[4] = {};
#pragma unroll
    for (int r = 0; r < 2; r++) {
      uint4 s = *reinterpret_cast<const uint4*>(slot + 2048 + 16 * (g + 8 * r));
      scales[r][0] = s.x & 0x3f3f3f3fu;
      scales[r][1] = (s.z & 0x0f0f0f0fu) | ((s.x >> 2) & 0x30303030u);
      offsets[r] = t < 2 ? s.y & 0x3f3f3f3fu : ((s.z >> 4) & 0x0f0f0f0fu) | ((s.y >> 2) & 0x30303030u);
      both[r] = s.w;
    }
#pragma unroll
    for (int j = 0; j < 4; j++) {
      uint2 q[2];
#pragma unroll
      for (int r = 0; r < 2; r++) {
        int unit = (2 * j + t / 2) ^ (2 * (g & 3));
        q[r] = *reinterpret_cast<const uint2*>(slot + (g + 8 * r) * 128 + 16 * unit + 8 * (t & 1));
      }
#pragma unroll
      for (int part = 0; part < 2; part++) {
        uint32_t w[2][2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
          w[r][0] = (q[r].x >> (4 * part)) & 0x0f0f0f0fu;
          w[r][1] = (q[r].y >> (4 * part)) & 0x0f0f0f0fu;
        }
        int i = 2 * j + part, d[4];
        mma_signed(d, w[0][0], w[1][0], w[0][1], w[1][1], digits.d[i].x, digits.d[i].y, 0, 0, 0, 0);
        sums[0] += int((scales[0][i / 4] >> (8 * (i % 4))) & 255u) * d[0];
        sums[1] += int((scales[1][i / 4] >> (8 * (i % 4))) & 255u) * d[2];
      }
    }
    // The 16 sums of 16 in a lane's order are the two halves of sub-blocks 0 .. 3, then of 4 .. 7.
    mma_unsigned(low, offsets[0], offsets[1], 0u, 0u, digits.sums, 0u);
#pragma unroll
    for (int r = 0; r < 2; r++) {
      float factor = half_of(both[r]), offset = half_of(both[r] >> 16);
      y[r] = fmaf(factor * digits.scale, float(sums[r]), y[r]);
      y[r] = fmaf(-offset * digits.sums_scale, float(low[2 * r]), y[r]);
    }
  }
};

// 16 bytes for 32 values: value l in the low nibble of byte l, 16 + l in the high one; an exponent.
struct MXFP4 {
  static constexpr int TABLE_WORDS = 0, SLOT_BYTES = 16 * (128 + 8);
  struct Digits {
    uint2 d[8];
    float scale;
    __device__ __forceinline__ explicit Digits(const uint8_t* staged) {
      const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
      const uint8_t* from = staged + min(g / 2, 2) * DIGITS_STRIDE + 4 * t;
#pragma unroll
      for (int i = 0; i < 8; i++) {
        d[i].x = *reinterpret_cast<const uint32_t*>(from + 32 * i);
        d[i].y = *reinterpret_cast<const uint32_t*>(from + 32 * i + 16);
      }
      scale = *reinterpret_cast<const float*>(staged + SCALE_AT) * digit_weight(t);
    }
  };
  static __device__ __forceinline__ void
  copy(uint8_t* slot, const Planes& w, int row_of_tile, int64_t row, int n, int cb) {
    const int part = threadIdx.x % 4;
    int64_t block = (row * n + cb) * 8;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      int unit = part + 4 * i;
      copy_16(slot + row_of_tile * 128 + 16 * (unit ^ (row_of_tile & 7)), w.quants + (block + unit) * 16);
    }
    if (part < 2) copy_4(slot + 2048 + 8 * row_of_tile + 4 * part, w.factors + block + 4 * part);
  }
  // Doubled values 0, 1, 2, 3, 4, 6, 8, 12 of four nibbles, as signed bytes.
  static __device__ __forceinline__ uint32_t doubled(uint32_t nibbles) {
    uint32_t size = nibbles & 0x7777u;
    uint32_t plus = __byte_perm(0x03020100u, 0x0c080604u, size);
    uint32_t minus = __byte_perm(0xfdfeff00u, 0xf4f8fafcu, size);
    uint32_t signs = 0;
    // A selector with its top bit set copies the sign of the byte it selects to all bits.
    asm("prmt.b32 %0, %1, %1, %2;" : "=r"(signs) : "r"(0x80808080u), "r"(nibbles));
    signs &= 0x7f7f7f7fu;
    signs |= signs << 1;
    return (plus & ~signs) | (minus & signs);
  }
  static __device__ __forceinline__ void
  product(uint8_t* slot, const Digits& digits, const uint32_t*, int, float* y) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float sums[2] = {0.0f, 0.0f};
    uint2 exponents[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
      exponents[r] = *reinterpret_cast<const uint2*>(slot + 2048 + 8 * (g + 8 * r));
    }
#pragma unroll
    for (int i = 0; i < 8; i++) {
      uint32_t w[2][2];
#pragma unroll
      for (int r = 0; r < 2; r++) {
        uint32_t q = *reinterpret_cast<const uint32_t*>(slot + (g + 8 * r) * 128 + 16 * (i ^ g) + 4 * t);
        uint32_t b = doubled(q), c = doubled(q >> 16);
        w[r][0] = __byte_perm(b, c, 0x6420u);
        w[r][1] = __byte_perm(b, c, 0x7531u);
      }
      // Sums begin with the bits of 1.5 * 2^23: as a float, that plus the sum, exactly.
      constexpr int ONE = 0x4b400000;
      int d[4];
      mma_signed(d, w[0][0], w[1][0], w[0][1], w[1][1], digits.d[i].x, digits.d[i].y, ONE, ONE, ONE, ONE);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        uint32_t e = ((i < 4 ? exponents[r].x : exponents[r].y) >> (8 * (i % 4))) & 255u;
        float scale = __uint_as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23); // 2^(e - 128)
        // the digits' scale first: a product of all scales could be subnormal
        float part = (__uint_as_float(uint32_t(d[2 * r])) - 12582912.0f) * digits.scale;
        sums[r] = fmaf(scale, part, sums[r]);
      }
    }
    y[0] += sums[0];
    y[1] += sums[1];
  }
};

template <typename Format>
__device__ __forceinline__ void fill_table(const uint32_t* table, uint32_t* shared) {
  for (int i = threadIdx.x; i < Format::TABLE_WORDS; i += blockDim.x) shared[i] = __ldg(table + i / 32);
}
