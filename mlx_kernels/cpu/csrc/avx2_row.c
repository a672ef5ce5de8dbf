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

AVX2_INLINE float row32(const int type, const uint8_t *row, int64_t k, const int8_t *q,
                        const float *d, const float *s32) {
    const int bytes = type == T_Q4_0 ? 18 : type == T_Q4_1 ? 20 : type == T_Q5_0 ? 22
                      : type == T_Q5_1 ? 24 : 34;
    __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    float offsets = 0;
    int64_t n = k / 32;
    for (int64_t g = 0; g < n; g++) {
        float s, o;
        __m256i u = unpack32(type, row + g * bytes, &s, &o);
        __m256 p = type == T_Q8_0 ? products_signed(u, q + 32 * g) : products(u, q + 32 * g);
        acc[g & 1] = _mm256_fmadd_ps(p, _mm256_set1_ps(s * d[g]), acc[g & 1]);
        if (type != T_Q8_0) offsets += o * s32[g];
    }
    return sum_256(_mm256_add_ps(acc[0], acc[1])) + offsets;
}

AVX2_INLINE float row256_by_32(const int type, const uint8_t *row, int64_t k, const int8_t *q,
                               const float *d, const float *s32) {
    const int bytes = type == T_Q5_K ? 176 : 144;
    __m256 acc[4], offsets = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) acc[i] = _mm256_setzero_ps();
    for (int64_t n = k / SUPER; n > 0; n--, row += bytes, q += SUPER, d += 8, s32 += 8) {
        __m256i u[8];
        __m256 s, o;
        float scales[8] __attribute__((aligned(32)));
        unpack256_by_32(type, row, u, &s, &o);
        offsets = _mm256_fmadd_ps(o, _mm256_loadu_ps(s32), offsets);
        _mm256_store_ps(scales, _mm256_mul_ps(s, _mm256_loadu_ps(d)));
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++)
            acc[g & 3] = _mm256_fmadd_ps(products(u[g], q + 32 * g),
                                         _mm256_broadcast_ss(scales + g), acc[g & 3]);
    }
    acc[0] = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    return sum_256(_mm256_add_ps(acc[0], offsets));
}

AVX2_INLINE float row256_by_16(const int type, const uint8_t *row, int64_t k, const int8_t *q,
                               const float *d, const float *s16) {
    const int bytes = type == T_Q6_K ? 210 : type == T_Q3_K ? 110 : 84;
    __m256 acc[4], offsets = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) acc[i] = _mm256_setzero_ps();
    for (int64_t n = k / SUPER; n > 0; n--, row += bytes, q += SUPER, d += 8, s16 += 16) {
        __m256i u[8];
        __m256 s[2], o[2];
        unpack256_by_16(type, row, u, s, o);
        offsets = _mm256_fmadd_ps(o[0], _mm256_loadu_ps(s16), offsets);
        offsets = _mm256_fmadd_ps(o[1], _mm256_loadu_ps(s16 + 8), offsets);
#pragma GCC unroll 8
        for (int g = 0; g < 8; g++) {
            /* The low four integers belong to the first 16 values, the high four to the others. */
            const int i = 2 * (g & 3);
            __m256 scale = _mm256_permutevar8x32_ps(
                s[g >> 2], _mm256_setr_epi32(i, i, i, i, i + 1, i + 1, i + 1, i + 1));
            scale = _mm256_mul_ps(scale, _mm256_broadcast_ss(d + g));
            acc[g & 3] = _mm256_fmadd_ps(products(u[g], q + 32 * g), scale, acc[g & 3]);
        }
    }
    acc[0] = _mm256_add_ps(_mm256_add_ps(acc[0], acc[1]), _mm256_add_ps(acc[2], acc[3]));
    return sum_256(_mm256_add_ps(acc[0], offsets));
}

AVX2_INLINE __m256 load_weights(const int type, const uint8_t *row, int64_t i) {
    if (type == T_F32) return _mm256_loadu_ps((const float *)row + i);
    __m128i v = _mm_loadu_si128((const __m128i *)(row + 2 * i));
    if (type == T_F16) return _mm256_cvtph_ps(v);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}

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
    case T_Q4_0: return row32(T_Q4_0, row, k, q, d, s32);
    case T_Q4_1: return row32(T_Q4_1, row, k, q, d, s32);
    case T_Q5_0: return row32(T_Q5_0, row, k, q, d, s32);
    case T_Q5_1: return row32(T_Q5_1, row, k, q, d, s32);
    case T_Q8_0: return row32(T_Q8_0, row, k, q, d, s32);
    case T_Q4_K: return row256_by_32(T_Q4_K, row, k, q, d, s32);
    case T_Q5_K: return row256_by_32(T_Q5_K, row, k, q, d, s32);
    case T_Q2_K: return row256_by_16(T_Q2_K, row, k, q, d, s16);
    case T_Q3_K: return row256_by_16(T_Q3_K, row, k, q, d, s16);
    default: return row256_by_16(T_Q6_K, row, k, q, d, s16);
    }
}

#endif
