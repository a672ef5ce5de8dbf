/* The packed formats with AVX2: each function yields the unsigned integers of one block as bytes,
 * 32 to a register, and its scales and offsets as floats (see formats.c for the layouts). */
#ifndef DS4_AVX2_UNPACK_H
#define DS4_AVX2_UNPACK_H

#include <immintrin.h>

#include "internal.h"

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX2_INLINE AVX2 static inline __attribute__((always_inline))

AVX2_INLINE __m256i load256(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
AVX2_INLINE float half_at(const uint8_t *p) { return _cvtsh_ss(load_u16(p)); }

/* (v >> shift) & mask in every byte; mask drops the bits that come from the neighbour byte. */
#define FIELD(v, shift, mask) \
    _mm256_and_si256(_mm256_srli_epi16(v, shift), _mm256_set1_epi8(mask))

/* 16 bytes: their low nibbles in the lower half of the register, the high ones in the upper. */
AVX2_INLINE __m256i nibbles_256(const uint8_t *p) {
    __m256i twice = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)p));
    __m256i down = _mm256_srlv_epi64(twice, _mm256_setr_epi64x(0, 0, 4, 4));
    return _mm256_and_si256(down, _mm256_set1_epi8(15));
}

/* The doubled values of MXFP4's four-bit floats. */
AVX2_INLINE __m256i doubled_256(__m256i codes) {
    const __m128i values = _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), codes);
}

/* Bit i of the 32 at p becomes 16 in byte i. */
AVX2_INLINE __m256i fifth_bits_256(const uint8_t *p) {
    const __m256i spread = _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202,
                                              0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)load_u32(p)), spread);
    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return _mm256_and_si256(v, _mm256_set1_epi8(16));
}

/* The 32 integers of one small block; see is_signed_type. */
AVX2_INLINE __m256i integers32(const int type, const uint8_t *b) {
    switch (type) {
    case T_Q4_0: return nibbles_256(b + 2);
    case T_Q4_1: return nibbles_256(b + 4);
    case T_Q5_0: return _mm256_or_si256(nibbles_256(b + 6), fifth_bits_256(b + 2));
    case T_Q5_1: return _mm256_or_si256(nibbles_256(b + 8), fifth_bits_256(b + 4));
    case T_MXFP4: return doubled_256(nibbles_256(b + 1));
    default: return load256(b + 2); /* T_Q8_0 */
    }
}

/* The constant k where the offset of a format is k * s. */
AVX2_INLINE float bias_of(const int type) {
    return type == T_Q4_0 ? -8 : type == T_Q5_0 ? -16 : 0;
}

AVX2_INLINE int block_bytes32(const int type) {
    switch (type) {
    case T_Q4_0: return 18;
    case T_Q4_1: return 20;
    case T_Q5_0: return 22;
    case T_Q5_1: return 24;
    case T_MXFP4: return 17;
    default: return 34;
    }
}

AVX2_INLINE __m256i unpack32(const int type, const uint8_t *b, float *s, float *o) {
    *s = type == T_MXFP4 ? mxfp4_scale(b[0]) : half_at(b);
    *o = type == T_Q4_1 || type == T_Q5_1 ? half_at(b + 2) : bias_of(type) * *s;
    return integers32(type, b);
}

/* Eight neighbouring blocks of 32 at once. Their scales lie apart, and converting them together
 * is a fifth of the work of converting them one by one. */
AVX2_INLINE void unpack8x32(const int type, const uint8_t *b, __m256i u[8], __m256 *s, __m256 *o) {
    const int bytes = block_bytes32(type);
    if (type == T_Q4_1 || type == T_Q5_1) { /* scale and offset are one 32-bit word */
        __m128i low = _mm_cvtsi32_si128((int)load_u32(b));
        __m128i high = _mm_cvtsi32_si128((int)load_u32(b + 4 * bytes));
        low = _mm_insert_epi32(low, (int)load_u32(b + bytes), 1);
        low = _mm_insert_epi32(low, (int)load_u32(b + 2 * bytes), 2);
        low = _mm_insert_epi32(low, (int)load_u32(b + 3 * bytes), 3);
        high = _mm_insert_epi32(high, (int)load_u32(b + 5 * bytes), 1);
        high = _mm_insert_epi32(high, (int)load_u32(b + 6 * bytes), 2);
        high = _mm_insert_epi32(high, (int)load_u32(b + 7 * bytes), 3);
        const __m128i apart = _mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15);
        low = _mm_shuffle_epi8(low, apart);
        high = _mm_shuffle_epi8(high, apart);
        *s = _mm256_cvtph_ps(_mm_unpacklo_epi64(low, high));
        *o = _mm256_cvtph_ps(_mm_unpackhi_epi64(low, high));
    } else if (type == T_MXFP4) {
        float scales[8];
        for (int g = 0; g < 8; g++) scales[g] = mxfp4_scale(b[g * bytes]);
        *s = _mm256_loadu_ps(scales);
        *o = _mm256_setzero_ps();
    } else {
        __m128i half = _mm_cvtsi32_si128(load_u16(b));
        half = _mm_insert_epi16(half, load_u16(b + bytes), 1);
        half = _mm_insert_epi16(half, load_u16(b + 2 * bytes), 2);
        half = _mm_insert_epi16(half, load_u16(b + 3 * bytes), 3);
        half = _mm_insert_epi16(half, load_u16(b + 4 * bytes), 4);
        half = _mm_insert_epi16(half, load_u16(b + 5 * bytes), 5);
        half = _mm_insert_epi16(half, load_u16(b + 6 * bytes), 6);
        half = _mm_insert_epi16(half, load_u16(b + 7 * bytes), 7);
        *s = _mm256_cvtph_ps(half);
        *o = _mm256_mul_ps(*s, _mm256_set1_ps(bias_of(type)));
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) u[g] = integers32(type, b + g * bytes);
}

AVX2_INLINE __m256 bytes_to_floats(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* Eight values of a float format, from the i-th of a row on. */
AVX2_INLINE __m256 load_weights(const int type, const uint8_t *row, int64_t i) {
    if (type == T_F32) return _mm256_loadu_ps((const float *)row + i);
    __m128i v = _mm_loadu_si128((const __m128i *)(row + 2 * i));
    if (type == T_F16) return _mm256_cvtph_ps(v);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

/* Bit `from` of every byte, moved to bit `to`. */
AVX2_INLINE __m256i moved_bit(__m256i v, const int from, const int to) {
    __m256i bit = _mm256_and_si256(v, _mm256_set1_epi8((char)(1 << from)));
    return from < to ? _mm256_slli_epi16(bit, to - from) : _mm256_srli_epi16(bit, from - to);
}

/* IQ2_XXS: octets of magnitudes and of signs come from tables. */
AVX2_INLINE void unpack256_iq2(const uint8_t *b, __m256i u[8], __m256 *s, __m256 *o) {
    const uint64_t *grid = ds4_iq2_grid, *signs = ds4_iq2_signs;
    const __m256i odd = _mm256_setr_epi32(1, 3, 5, 7, 1, 3, 5, 7);
    __m256i first = _mm256_permutevar8x32_epi32(load256(b + 2), odd);
    __m256i second = _mm256_permutevar8x32_epi32(load256(b + 34), odd);
    __m256i words = _mm256_blend_epi32(first, second, 0xf0);
    __m256 scales = _mm256_cvtepi32_ps(_mm256_srli_epi32(words, 28));
    scales = _mm256_add_ps(scales, _mm256_set1_ps(0.5f));
    *s = _mm256_mul_ps(scales, _mm256_set1_ps(half_at(b) * 0.25f));
    *o = _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int g = 0; g < 8; g++) {
        const uint8_t *octets = b + 2 + 8 * g;
        uint32_t word = load_u32(octets + 4);
        __m256i sizes = _mm256_setr_epi64x((int64_t)grid[octets[0]], (int64_t)grid[octets[1]],
                                           (int64_t)grid[octets[2]], (int64_t)grid[octets[3]]);
        __m256i minus = _mm256_setr_epi64x(
            (int64_t)signs[word & 127], (int64_t)signs[word >> 7 & 127],
            (int64_t)signs[word >> 14 & 127], (int64_t)signs[word >> 21 & 127]);
        u[g] = _mm256_sub_epi8(_mm256_xor_si256(sizes, minus), minus);
    }
}

/* Blocks of 256 with a scale for each 32 values: s and o hold 8 floats. */
AVX2_INLINE void unpack256_by_32(const int type, const uint8_t *b, __m256i u[8], __m256 *s,
                                 __m256 *o) {
    if (type == T_IQ2_XXS) {
        unpack256_iq2(b, u, s, o);
        return;
    }
    const uint8_t *quants = type == T_Q5_K ? b + 48 : b + 16;
    /* The head: two halves, then the words a, b, c of six_bit_pairs. Becomes a b' b c' there. */
    const __m128i words = _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i tops = _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11);
    const __m128i masks = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    __m128i head = _mm_loadu_si128((const __m128i *)b);
    __m128 factors = _mm_cvtph_ps(head);
    __m128i low = _mm_srlv_epi32(_mm_shuffle_epi8(head, words), _mm_setr_epi32(0, 0, 0, 4));
    __m128i high = _mm_srli_epi16(_mm_shuffle_epi8(head, tops), 2);
    __m128i pairs = _mm_or_si128(_mm_and_si128(low, masks),
                                 _mm_and_si128(high, _mm_set1_epi8(0x30)));
    __m256 scales = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(pairs));
    __m256 mins = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(pairs, 8)));
    __m256 d_min = _mm256_broadcastss_ps(_mm_movehdup_ps(factors));
    *s = _mm256_mul_ps(scales, _mm256_broadcastss_ps(factors));
    *o = _mm256_mul_ps(mins, _mm256_xor_ps(d_min, _mm256_set1_ps(-0.0f)));
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m256i v = load256(quants + 32 * g);
        u[2 * g] = FIELD(v, 0, 15);
        u[2 * g + 1] = FIELD(v, 4, 15);
    }
    if (type == T_Q5_K) {
        __m256i fifth = load256(b + 16);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) u[g] = _mm256_or_si256(u[g], moved_bit(fifth, g, 4));
    }
}

/* Blocks of 256 with a scale for each 16 values: s and o hold 16 floats. */
AVX2_INLINE void unpack256_by_16(const int type, const uint8_t *b, __m256i u[8], __m256 s[2],
                                 __m256 o[2]) {
    if (type == T_Q6_K) {
        __m256 d = _mm256_set1_ps(half_at(b + 208)), bias = _mm256_set1_ps(-32);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i low = load256(b + 64 * h), next = load256(b + 64 * h + 32);
            __m256i high = load256(b + 128 + 32 * h);
            __m256i *to = u + 4 * h;
            to[0] = _mm256_or_si256(FIELD(low, 0, 15), _mm256_slli_epi16(FIELD(high, 0, 3), 4));
            to[1] = _mm256_or_si256(FIELD(next, 0, 15), _mm256_slli_epi16(FIELD(high, 2, 3), 4));
            to[2] = _mm256_or_si256(FIELD(low, 4, 15), FIELD(high, 0, 48));
            to[3] = _mm256_or_si256(FIELD(next, 4, 15), FIELD(high, 2, 48));
            __m128i scales = _mm_loadl_epi64((const __m128i *)(b + 192 + 8 * h));
            s[h] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(scales)), d);
            o[h] = _mm256_mul_ps(s[h], bias);
        }
    } else if (type == T_Q3_K) {
        uint8_t scales[16];
        __m256 d = _mm256_set1_ps(half_at(b + 108));
        __m256i third = load256(b);
        six_bit_scales(b + 96, scales);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i v = load256(b + 32 + 32 * h);
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++) {
                __m256i bit = moved_bit(third, 4 * h + g, 2);
                u[4 * h + g] = _mm256_or_si256(FIELD(v, 2 * g, 3), bit);
            }
            __m256 biased = bytes_to_floats(scales + 8 * h);
            s[h] = _mm256_mul_ps(_mm256_sub_ps(biased, _mm256_set1_ps(32)), d);
            o[h] = _mm256_mul_ps(s[h], _mm256_set1_ps(-4));
        }
    } else { /* T_Q2_K */
        __m256 d = _mm256_set1_ps(half_at(b + 80)), d_min = _mm256_set1_ps(-half_at(b + 82));
        __m128i pairs = _mm_loadu_si128((const __m128i *)b), mask = _mm_set1_epi8(15);
        __m128i scales = _mm_and_si128(pairs, mask);
        __m128i mins = _mm_and_si128(_mm_srli_epi16(pairs, 4), mask);
        s[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(scales)), d);
        o[0] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(mins)), d_min);
        scales = _mm_srli_si128(scales, 8);
        mins = _mm_srli_si128(mins, 8);
        s[1] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(scales)), d);
        o[1] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(mins)), d_min);
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i v = load256(b + 16 + 32 * h);
#pragma GCC unroll 4
            for (int g = 0; g < 4; g++) u[4 * h + g] = FIELD(v, 2 * g, 3);
        }
    }
}

#endif
