/* AVX2: one weight row times one activation row, the kernel of decoding.
 *
 * 32 products at a time: unsigned weight bytes times signed activation bytes, added to 16-bit
 * pairs (exact: 63 * 127 * 2 fits), then to 8 integers that become floats and take their scale.
 * Four sums run side by side, because one addition waits four cycles for the one before.
 */
#include "internal.h"

#if defined(__x86_64__) || defined(__i386__)

#include "avx2_internal.h"

AVX2_INLINE __m256 products(__m256i u, const int8_t *q) {
    __m256i pairs = _mm256_maddubs_epi16(u, load256(q));
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

/* Signed weights: |w| times the activation with w's sign. */
AVX2_INLINE __m256 products_signed(__m256i w, const int8_t *q) {
    __m256i signed_q = _mm256_sign_epi8(load256(q), w);
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), signed_q);
    return _mm256_cvtepi32_ps(_mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

#define ROW_INLINE AVX2_INLINE
#include "avx2_row_body.h"

AVX2_INLINE float row_float(const int type, const uint8_t *row, int64_t k, const float *x) {
    __m256 acc[4];
    int64_t i = 0;
    for (int j = 0; j < 4; j++) acc[j] = _mm256_setzero_ps();
    for (; i + 32 <= k; i += 32)
        for (int j = 0; j < 4; j++)
            acc[j] = _mm256_fmadd_ps(load_weights(type, row, i + 8 * j),
                                     _mm256_loadu_ps(x + i + 8 * j), acc[j]);
    acc[0] = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    float total = sum_256(acc[0]), weight;
    for (; i < k; i++) {
        ds4_expand_row(type, row + i * (type == T_F32 ? 4 : 2), 1, &weight);
        total += weight * x[i];
    }
    return total;
}

AVX2 float ds4_avx2_row_dot(int type, const uint8_t *row, const activations *a, int64_t m_idx) {
    int64_t k = a->k;
    const int8_t *q = a->q + m_idx * k;
    const float *x = a->x + m_idx * k, *d = a->d + m_idx * (k / 32);
    const float *s32 = a->s32 + m_idx * (k / 32), *s16 = a->s16 + m_idx * (k / 16);
    switch (type) { /* one specialised loop for each format */
    case T_F32: return row_float(T_F32, row, k, x);
    case T_F16: return row_float(T_F16, row, k, x);
    case T_BF16: return row_float(T_BF16, row, k, x);
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
    default: return row_by_16(T_Q6_K, row, k, q, d, s16);
    }
}

#endif
