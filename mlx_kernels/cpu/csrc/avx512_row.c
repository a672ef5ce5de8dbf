/* AVX-512: one weight row times one activation row, the kernel of decoding.
 *
 * 64 products at a time: VNNI adds four neighbouring products of unsigned and signed bytes to a
 * 32-bit sum, exactly. Signed weights change roles: the activations become unsigned by adding 128,
 * and 128 times the sum of the weights is subtracted again, all in integers.
 */
#include "internal.h"

#if defined(__x86_64__)

#include "avx512_internal.h"

#define PREFETCH_BYTES 1024 /* ahead of the block at work; measured, see the README */

AVX512_INLINE __m512i products(__m512i u, const int8_t *q) {
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), u, load512(q));
}

AVX512_INLINE __m512i products_signed(__m512i w, const int8_t *q) {
    const __m512i zero = _mm512_setzero_si512(), bias = _mm512_set1_epi8((char)128);
    __m512i raised = _mm512_dpbusd_epi32(zero, _mm512_xor_si512(load512(q), bias), w);
    return _mm512_sub_epi32(raised, _mm512_dpbusd_epi32(zero, bias, w));
}

/* IQ2_XXS: magnitudes times activations with the weights' signs. b: the octets of 64 values. */
AVX512_INLINE __m512i products_iq2(const uint8_t *b, const int8_t *q) {
    const uint64_t *grid = ds4_iq2_grid, sevens = 0x7f7f7f7f;
    uint64_t signs = _pdep_u64(load_u32(b + 4), sevens) |
                     _pdep_u64(load_u32(b + 12), sevens << 32);
    uint64_t parity = signs ^ signs >> 4; /* the eighth sign of each octet makes the number even */
    parity ^= parity >> 2;
    parity ^= parity >> 1;
    signs |= (parity & 0x0101010101010101u) << 7;
    __m512i sizes = _mm512_setr_epi64(
        (int64_t)grid[b[0]], (int64_t)grid[b[1]], (int64_t)grid[b[2]], (int64_t)grid[b[3]],
        (int64_t)grid[b[8]], (int64_t)grid[b[9]], (int64_t)grid[b[10]], (int64_t)grid[b[11]]);
    __m512i x = load512(q);
    x = _mm512_mask_sub_epi8(x, signs, _mm512_setzero_si512(), x);
    return _mm512_dpbusd_epi32(_mm512_setzero_si512(), sizes, x);
}

/* 16 sums of 64 products take the scales of their two groups. */
AVX512_INLINE __m512 add_by_32(__m512i sums, __m256 scales, const int i, __m512 acc) {
    const int a = 2 * i, b = 2 * i + 1;
    const __m512i pick = _mm512_setr_epi32(a, a, a, a, a, a, a, a, b, b, b, b, b, b, b, b);
    __m512 scale = _mm512_permutexvar_ps(pick, _mm512_castps256_ps512(scales));
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums), scale, acc);
}

AVX512_INLINE float total(const __m512 acc[4], __m256 offsets) {
    __m512 sum = _mm512_add_ps(_mm512_add_ps(acc[0], acc[1]), _mm512_add_ps(acc[2], acc[3]));
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(sum), _mm512_extractf32x8_ps(sum, 1));
    return sum_256(_mm256_add_ps(half, offsets));
}

/* A scale for each 32 values: Q4_K, Q5_K, IQ2_XXS, and runs of eight small blocks. */
AVX512_INLINE float row_by_32(const int type, const uint8_t *row, int64_t k, const int8_t *q,
                              const float *d, const float *s32) {
    const int is_super = type == T_Q4_K || type == T_Q5_K;
    const int is_small = !is_super && type != T_IQ2_XXS;
    const int is_signed = is_signed_type(type);
    const int bytes = is_small            ? 8 * block_bytes32(type)
                      : type == T_Q5_K    ? 176
                      : type == T_IQ2_XXS ? 66
                                          : 144;
    __m512 acc[4];
    __m256 offsets = _mm256_setzero_ps();
    float rest = 0;
    for (int i = 0; i < 4; i++) acc[i] = _mm512_setzero_ps();
    for (; k >= SUPER; k -= SUPER, row += bytes, q += SUPER, d += 8, s32 += 8) {
        __m256i u[8]; /* not computed where nothing reads it */
        __m256 s, o;
        for (int at = 0; at < bytes; at += 64) _mm_prefetch((const char *)row + PREFETCH_BYTES + at, _MM_HINT_T0);
        if (is_small)
            unpack8x32(type, row, u, &s, &o);
        else
            unpack256_by_32(type, row, u, &s, &o);
        if (!is_signed) offsets = _mm256_fmadd_ps(o, _mm256_loadu_ps(s32), offsets);
        __m256 scales = _mm256_mul_ps(s, _mm256_loadu_ps(d));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512i sums;
            if (type == T_IQ2_XXS)
                sums = products_iq2(row + 2 + 16 * i, q + 64 * i);
            else if (is_signed)
                sums = products_signed(join(u[2 * i], u[2 * i + 1]), q + 64 * i);
            else if (is_small)
                sums = products(join(u[2 * i], u[2 * i + 1]), q + 64 * i);
            else
                sums = products(integers64(type, row, i), q + 64 * i);
            acc[i] = add_by_32(sums, scales, i, acc[i]);
        }
    }
    if (is_small)
        for (; k > 0; k -= 32, row += bytes / 8, q += 32, d++, s32++) {
            float s, o;
            __m256i u = unpack32(type, row, &s, &o), x = load256(q), sums;
            if (is_signed)
                sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_abs_epi8(u),
                                           _mm256_sign_epi8(x, u));
            else
                sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), u, x);
            offsets = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums), _mm256_set1_ps(s * *d), offsets);
            rest += o * *s32;
        }
    return total(acc, offsets) + rest;
}

/* A scale for each 16 values: four neighbouring sums. */
AVX512_INLINE float row_by_16(const int type, const uint8_t *row, int64_t k, const int8_t *q,
                              const float *d, const float *s16) {
    const int bytes = type == T_Q6_K ? 210 : type == T_Q3_K ? 110 : 84;
    const __m512i pairs = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    __m512 acc[4], offsets = _mm512_setzero_ps();
    for (int i = 0; i < 4; i++) acc[i] = _mm512_setzero_ps();
    for (; k > 0; k -= SUPER, row += bytes, q += SUPER, d += 8, s16 += 16) {
        __m256i u[8]; /* not computed: nothing reads it */
        __m256 s[2], o[2];
        for (int at = 0; at < bytes; at += 64) _mm_prefetch((const char *)row + PREFETCH_BYTES + at, _MM_HINT_T0);
        unpack256_by_16(type, row, u, s, o);
        offsets = _mm512_fmadd_ps(join_floats(o[0], o[1]), _mm512_loadu_ps(s16), offsets);
        __m512 both = _mm512_castps256_ps512(_mm256_loadu_ps(d));
        __m512 scales = _mm512_mul_ps(join_floats(s[0], s[1]), _mm512_permutexvar_ps(pairs, both));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const int r = 4 * i;
            const __m512i pick =
                _mm512_setr_epi32(r, r, r, r, r + 1, r + 1, r + 1, r + 1, r + 2, r + 2, r + 2,
                                  r + 2, r + 3, r + 3, r + 3, r + 3);
            __m512 sums = _mm512_cvtepi32_ps(products(integers64(type, row, i), q + 64 * i));
            acc[i] = _mm512_fmadd_ps(sums, _mm512_permutexvar_ps(pick, scales), acc[i]);
        }
    }
    acc[0] = _mm512_add_ps(acc[0], offsets);
    return total(acc, _mm256_setzero_ps());
}

AVX512 float ds4_avx512_row_dot(int type, const uint8_t *row, const activations *a,
                                int64_t m_idx) {
    int64_t k = a->k;
    const int8_t *q = a->q + m_idx * k;
    const float *d = a->d + m_idx * (k / 32);
    const float *s32 = a->s32 + m_idx * (k / 32), *s16 = a->s16 + m_idx * (k / 16);
    switch (type) { /* one specialised loop for each format */
    case T_Q4_0: return row_by_32(T_Q4_0, row, k, q, d, s32);
    case T_Q4_1: return row_by_32(T_Q4_1, row, k, q, d, s32);
    case T_Q5_0: return row_by_32(T_Q5_0, row, k, q, d, s32);
    case T_Q5_1: return row_by_32(T_Q5_1, row, k, q, d, s32);
    case T_Q8_0: return row_by_32(T_Q8_0, row, k, q, d, s32);
    case T_MXFP4: return row_by_32(T_MXFP4, row, k, q, d, s32);
    case T_IQ2_XXS: return row_by_32(T_IQ2_XXS, row, k, q, d, s32);
    case T_Q4_K: return row_by_32(T_Q4_K, row, k, q, d, s32);
    case T_Q5_K: return row_by_32(T_Q5_K, row, k, q, d, s32);
    case T_Q2_K: return row_by_16(T_Q2_K, row, k, q, d, s16);
    case T_Q3_K: return row_by_16(T_Q3_K, row, k, q, d, s16);
    case T_Q6_K: return row_by_16(T_Q6_K, row, k, q, d, s16);
    default: return ds4_avx2_row_dot(type, row, a, m_idx); /* floats: memory is the limit */
    }
}

#endif
