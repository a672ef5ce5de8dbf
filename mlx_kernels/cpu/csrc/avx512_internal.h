/* AVX-512: what the files of this path share, and the packed formats 64 integers to a register.
 *
 * Needs the extensions F, BW, VL, DQ and VNNI (every server chip since 2019, Zen 4 and later). What
 * 512 bits don't make faster is taken from the AVX2 files.
 */
#ifndef DS4_AVX512_INTERNAL_H
#define DS4_AVX512_INTERNAL_H

#include "avx2_internal.h"

#define AVX512                                                                              \
    __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c,bmi2")))
#define AVX512_INLINE AVX512 static inline __attribute__((always_inline))

float ds4_avx512_row_dot(int type, const uint8_t *row, const activations *a, int64_t m_idx);
void ds4_avx512_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                     const activations *a, int64_t m, float *y);
void ds4_avx512_float_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                           const float *x, int64_t k, int64_t m, float *y);

AVX512_INLINE __m512i load512(const void *p) { return _mm512_loadu_si512(p); }

AVX512_INLINE __m512i join(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

AVX512_INLINE __m512 join_floats(__m256 low, __m256 high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

AVX512_INLINE __m512i twice(const uint8_t *p) { return _mm512_broadcast_i64x4(load256(p)); }

/* Shifts of the lower and of the upper half. */
AVX512_INLINE __m512i halves(const int64_t low, const int64_t high) {
    return _mm512_setr_epi64(low, low, low, low, high, high, high, high);
}

/* Where the byte's bit i (lower half) or i + 1 (upper half) is set. */
AVX512_INLINE __mmask64 bits_at(__m512i v, const int i) {
    const __m512i bit = join(_mm256_set1_epi8((char)(1 << i)), _mm256_set1_epi8((char)(2 << i)));
    return _mm512_test_epi8_mask(v, bit);
}

/* Integers 64 i .. 64 i + 63 of a block of 256, i constant. */
AVX512_INLINE __m512i integers64(const int type, const uint8_t *b, const int i) {
    const __m512i low4 = _mm512_set1_epi8(15), low2 = _mm512_set1_epi8(3);
    const __m512i top2 = _mm512_set1_epi8(0x30);
    if (type == T_Q4_K || type == T_Q5_K) {
        const uint8_t *quants = type == T_Q5_K ? b + 48 : b + 16;
        __m512i u = _mm512_srlv_epi64(twice(quants + 32 * i), halves(0, 4));
        u = _mm512_and_si512(u, low4);
        if (type == T_Q4_K) return u;
        return _mm512_mask_add_epi8(u, bits_at(twice(b + 16), 2 * i), u, _mm512_set1_epi8(16));
    }
    const int h = i >> 1, is_upper = i & 1; /* half of the block, half of that half */
    if (type == T_Q6_K) {
        __m512i low = load512(b + 64 * h), high = twice(b + 128 + 32 * h);
        if (is_upper) {
            low = _mm512_srli_epi16(low, 4);
            high = _mm512_srlv_epi64(high, halves(0, 2));
        } else {
            high = _mm512_sllv_epi64(high, halves(4, 2));
        }
        return _mm512_or_si512(_mm512_and_si512(low, low4), _mm512_and_si512(high, top2));
    }
    /* T_Q2_K, T_Q3_K */
    const uint8_t *quants = type == T_Q2_K ? b + 16 : b + 32;
    __m512i v = twice(quants + 32 * h);
    v = _mm512_srlv_epi64(v, is_upper ? halves(4, 6) : halves(0, 2));
    v = _mm512_and_si512(v, low2);
    if (type == T_Q2_K) return v;
    return _mm512_mask_add_epi8(v, bits_at(twice(b), 2 * i), v, _mm512_set1_epi8(4));
}

#endif
