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

AVX2_INLINE __m256i nibbles_256(const uint8_t *p) {
    __m128i v = _mm_loadu_si128((const __m128i *)p);
    __m256i both = _mm256_inserti128_si256(_mm256_castsi128_si256(v), _mm_srli_epi16(v, 4), 1);
    return _mm256_and_si256(both, _mm256_set1_epi8(15));
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

/* Blocks of 32: weight = s * u + o. Q8_0 alone has signed u. */
AVX2_INLINE __m256i unpack32(const int type, const uint8_t *b, float *s, float *o) {
    *s = half_at(b);
    switch (type) {
    case T_Q4_0:
        *o = -8 * *s;
        return nibbles_256(b + 2);
    case T_Q4_1:
        *o = half_at(b + 2);
        return nibbles_256(b + 4);
    case T_Q5_0:
        *o = -16 * *s;
        return _mm256_or_si256(nibbles_256(b + 6), fifth_bits_256(b + 2));
    case T_Q5_1:
        *o = half_at(b + 2);
        return _mm256_or_si256(nibbles_256(b + 8), fifth_bits_256(b + 4));
    default: /* T_Q8_0 */
        *o = 0;
        return load256(b + 2);
    }
}

AVX2_INLINE __m256 bytes_to_floats(const uint8_t *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}

/* Blocks of 256 with a scale for each 32 values: s and o hold 8 floats. */
AVX2_INLINE void unpack256_by_32(const int type, const uint8_t *b, __m256i u[8], __m256 *s,
                                 __m256 *o) {
    uint8_t pairs[16];
    const uint8_t *quants = type == T_Q5_K ? b + 48 : b + 16;
    six_bit_pairs(b + 4, pairs);
    *s = _mm256_mul_ps(bytes_to_floats(pairs), _mm256_set1_ps(half_at(b)));
    *o = _mm256_mul_ps(bytes_to_floats(pairs + 8), _mm256_set1_ps(-half_at(b + 2)));
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m256i v = load256(quants + 32 * g);
        u[2 * g] = FIELD(v, 0, 15);
        u[2 * g + 1] = FIELD(v, 4, 15);
    }
    if (type == T_Q5_K) {
        __m256i fifth = load256(b + 16);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            __m256i bit = _mm256_slli_epi16(FIELD(fifth, g, 1), 4);
            u[g] = _mm256_or_si256(u[g], bit);
        }
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
                __m256i bit = _mm256_slli_epi16(FIELD(third, 4 * h + g, 1), 2);
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
