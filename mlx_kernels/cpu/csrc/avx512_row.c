/* AVX-512: one weight row times one activation row, the kernel of decoding.
 *
 * VNNI adds four neighbouring products of unsigned and signed bytes to a 32-bit sum, exactly. In
 * registers of 256 bits a scale costs no permutation, which measured 5 to 10 % faster for unsigned
 * weights; signed ones were a fifth faster in 512. There the activations become unsigned by adding
 * 128, and 128 times the sum of the weights is subtracted again, all in integers.
 */
#include "internal.h"

#if defined(__x86_64__)

#include "avx512_internal.h"

AVX512_INLINE __m512i products_signed_64(__m512i w, const int8_t *q) {
    const __m512i zero = _mm512_setzero_si512(), bias = _mm512_set1_epi8((char)128);
    __m512i raised = _mm512_dpbusd_epi32(zero, _mm512_xor_si512(load512(q), bias), w);
    return _mm512_sub_epi32(raised, _mm512_dpbusd_epi32(zero, bias, w));
}

AVX512_INLINE __m256 products(__m256i u, const int8_t *q) {
    return _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(_mm256_setzero_si256(), u, load256(q)));
}

AVX512_INLINE __m256 products_signed(__m256i w, const int8_t *q) {
    return _mm256_cvtepi32_ps(_mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_abs_epi8(w),
                                                  _mm256_sign_epi8(load256(q), w)));
}

#define ROW_INLINE AVX512_INLINE
#include "avx2_row_body.h"

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

/* Signed formats: IQ2_XXS, and runs of eight small blocks. */
AVX512_INLINE float wide_row(const int type, const uint8_t *row, int64_t k, const int8_t *q,
                             const float *d) {
    const int is_small = type != T_IQ2_XXS;
    const int bytes = is_small ? 8 * block_bytes32(type) : 66;
    __m512 acc[4];
    __m256 rest = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) acc[i] = _mm512_setzero_ps();
    for (; k >= SUPER; k -= SUPER, row += bytes, q += SUPER, d += 8) {
        __m256i u[8]; /* not computed where nothing reads it */
        __m256 s, o;
        prefetch_block(row, bytes);
        if (is_small)
            unpack8x32(type, row, u, &s, &o);
        else
            unpack256_by_32(type, row, u, &s, &o);
        __m256 scales = _mm256_mul_ps(s, _mm256_loadu_ps(d));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            __m512i sums = is_small
                               ? products_signed_64(join(u[2 * i], u[2 * i + 1]), q + 64 * i)
                               : products_iq2(row + 2 + 16 * i, q + 64 * i);
            acc[i] = add_by_32(sums, scales, i, acc[i]);
        }
    }
    if (is_small)
        for (; k > 0; k -= 32, row += bytes / 8, q += 32, d++) {
            float s, o;
            __m256i u = unpack32(type, row, &s, &o);
            rest = _mm256_fmadd_ps(products_signed(u, q), _mm256_set1_ps(s * *d), rest);
        }
    return total(acc, rest);
}

AVX512 float ds4_avx512_row_dot(int type, const uint8_t *row, const activations *a,
                                int64_t m_idx) {
    int64_t k = a->k;
    const int8_t *q = a->q + m_idx * k;
    const float *d = a->d + m_idx * (k / 32);
    const float *s32 = a->s32 + m_idx * (k / 32), *s16 = a->s16 + m_idx * (k / 16);
    switch (type) { /* one specialised loop for each format */
    case T_Q8_0: return wide_row(T_Q8_0, row, k, q, d);
    case T_MXFP4: return wide_row(T_MXFP4, row, k, q, d);
    case T_IQ2_XXS: return wide_row(T_IQ2_XXS, row, k, q, d);
    case T_Q4_0: return row_by_32(T_Q4_0, row, k, q, d, s32);
    case T_Q4_1: return row_by_32(T_Q4_1, row, k, q, d, s32);
    case T_Q5_0: return row_by_32(T_Q5_0, row, k, q, d, s32);
    case T_Q5_1: return row_by_32(T_Q5_1, row, k, q, d, s32);
    case T_Q4_K: return row_by_32(T_Q4_K, row, k, q, d, s32);
    case T_Q5_K: return row_by_32(T_Q5_K, row, k, q, d, s32);
    case T_Q2_K: return row_by_16(T_Q2_K, row, k, q, d, s16);
    case T_Q3_K: return row_by_16(T_Q3_K, row, k, q, d, s16);
    case T_Q6_K: return row_by_16(T_Q6_K, row, k, q, d, s16);
    default: return ds4_avx2_row_dot(type, row, a, m_idx); /* floats: memory is the limit */
    }
}

#endif
