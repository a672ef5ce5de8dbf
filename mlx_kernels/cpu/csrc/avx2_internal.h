/* What the AVX2 files share. */
#ifndef DS4_AVX2_INTERNAL_H
#define DS4_AVX2_INTERNAL_H

#include "avx2_unpack.h"

float ds4_avx2_row_dot(int type, const uint8_t *row, const activations *a, int64_t m_idx);

void ds4_avx2_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                   const activations *a, int64_t m, float *y);

void ds4_avx2_float_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                         const float *x, int64_t k, int64_t m, float *y);

AVX2_INLINE float sum_256(__m256 v) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}

#endif
