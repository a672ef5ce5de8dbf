/* AVX-512: what the files of this path share.
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
int ds4_avx512_rows_dot(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                        const activations *a, float *y);
void ds4_avx512_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                     const activations *a, int64_t m, float *y);
void ds4_avx512_float_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                           const float *x, int64_t k, int64_t m, float *y);

AVX512_INLINE __m512i load512(const void *p) { return _mm512_loadu_si512(p); }

AVX512_INLINE __m512i join(__m256i low, __m256i high) {
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

#endif
