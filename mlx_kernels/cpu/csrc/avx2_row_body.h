/* One weight row times one activation row, 32 products at a time, for AVX2 and for AVX-512's shorter
 * registers. The including file defines, for its instruction set, ROW_INLINE and
 *     __m256 products(__m256i u, const int8_t *q)           eight float sums of unsigned u
 *     __m256 products_signed(__m256i w, const int8_t *q)    and of signed w
 */
#ifndef DS4_AVX2_ROW_BODY_H
#define DS4_AVX2_ROW_BODY_H

#include "avx2_internal.h"

#define PREFETCH_BYTES 1024 /* ahead of the block at work */

/* With two threads on one core the hardware's own look-ahead falls short. */
ROW_INLINE void prefetch_block(const uint8_t *row, const int bytes) {
    for (int at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)row + PREFETCH_BYTES + at, _MM_HINT_T0);
}

/* A scale for each 32 values: Q4_K and Q5_K, and runs of eight small blocks. */
ROW_INLINE float row_by_32(const int type, const uint8_t *row, int64_t k, const int8_t *q,
                            const float *d, const float *s32) {
    const int is_small = type != T_Q4_K && type != T_Q5_K && type != T_IQ2_XXS;
    const int is_signed = is_signed_type(type);
    const int bytes = is_small            ? 8 * block_bytes32(type)
                      : type == T_Q5_K    ? 176
                      : type == T_IQ2_XXS ? 66
                                          : 144;
    __m256 acc[4], offsets = _mm256_setzero_ps();
    float rest = 0;
    for (int i = 0; i < 4; i++) acc[i] = _mm256_setzero_ps();
    for (; k >= SUPER; k -= SUPER, row += bytes, q += SUPER, d += 8, s32 += 8) {
        __m256i u[8];
        __m256 s, o;
        prefetch_block(row, bytes);
        float scales[8] __attribute__((aligned(32)));
        if (is_small)
            unpack8x32(type, row, u, &s, &o);
        else
            unpack256_by_32(type, row, u, &s, &o);
        if (!is_signed) offsets = _mm256_fmadd_ps(o, _mm256_loadu_ps(s32), offsets);
        _mm256_store_ps(scales, _mm256_mul_ps(s, _mm256_loadu_ps(d)));
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            __m256 p = is_signed ? products_signed(u[g], q + 32 * g)
                                 : products(u[g], q + 32 * g);
            acc[g & 3] = _mm256_fmadd_ps(p, _mm256_broadcast_ss(scales + g), acc[g & 3]);
        }
    }
    if (is_small)
        for (; k > 0; k -= 32, row += bytes / 8, q += 32, d++, s32++) {
            float s, o;
            __m256i u = unpack32(type, row, &s, &o);
            __m256 p = is_signed ? products_signed(u, q) : products(u, q);
            acc[0] = _mm256_fmadd_ps(p, _mm256_set1_ps(s * *d), acc[0]);
            rest += o * *s32;
        }
    acc[0] = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    return sum_256(_mm256_add_ps(acc[0], offsets)) + rest;
}

/* A scale for each 16 values: the low four sums of a product belong to the first 16 of its 32
 * values, the high four to the others. */
ROW_INLINE float row_by_16(const int type, const uint8_t *row, int64_t k, const int8_t *q,
                            const float *d, const float *s16) {
    const int bytes = type == T_Q6_K ? 210 : type == T_Q3_K ? 110 : 84;
    __m256 acc[4], offsets = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) acc[i] = _mm256_setzero_ps();
    for (; k > 0; k -= SUPER, row += bytes, q += SUPER, d += 8, s16 += 16) {
        __m256i u[8];
        __m256 s[2], o[2], both = _mm256_loadu_ps(d);
        prefetch_block(row, bytes);
        unpack256_by_16(type, row, u, s, o);
        offsets = _mm256_fmadd_ps(o[0], _mm256_loadu_ps(s16), offsets);
        offsets = _mm256_fmadd_ps(o[1], _mm256_loadu_ps(s16 + 8), offsets);
        s[0] = _mm256_mul_ps(s[0], _mm256_permutevar8x32_ps(
                                       both, _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3)));
        s[1] = _mm256_mul_ps(s[1], _mm256_permutevar8x32_ps(
                                       both, _mm256_setr_epi32(4, 4, 5, 5, 6, 6, 7, 7)));
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            const int i = 2 * (g & 3);
            __m256 scale = _mm256_permutevar8x32_ps(
                s[g >> 2], _mm256_setr_epi32(i, i, i, i, i + 1, i + 1, i + 1, i + 1));
            acc[g & 3] = _mm256_fmadd_ps(products(u[g], q + 32 * g), scale, acc[g & 3]);
        }
    }
    acc[0] = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    return sum_256(_mm256_add_ps(acc[0], offsets));
}

#endif
