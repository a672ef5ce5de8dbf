/* Float loops written once and compiled for each instruction set.
 *
 * The loops keep LANES partial sums, so that a compiler may use vector registers without being
 * allowed to reorder additions. A path instantiates them inside functions of its own target.
 */
#ifndef DS4_FLOAT_KERNELS_H
#define DS4_FLOAT_KERNELS_H

#include <math.h>

#include "internal.h"

#define LANES 16

INLINE float sum_lanes(const float *part) {
    float half[8];
    for (int i = 0; i < 8; i++) half[i] = part[i] + part[i + 8];
    return ((half[0] + half[4]) + (half[2] + half[6])) + ((half[1] + half[5]) + (half[3] + half[7]));
}

INLINE float dot_floats(const float *a, const float *b, int64_t n) {
    float part[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) part[j] += a[i + j] * b[i + j];
    for (int j = 0; i < n; i++, j++) part[j] += a[i] * b[i];
    return sum_lanes(part);
}

INLINE void rms_norm_body(const float *x, const float *norm, float eps, int64_t k, float *y) {
    /* Squares in float lanes: the sum of a few thousand squares loses under 1e-6 of its value. */
    float mean = dot_floats(x, x, k) / (float)k;
    float scale = 1.0f / sqrtf(mean + eps);
    for (int64_t i = 0; i < k; i++) y[i] = x[i] * scale * norm[i];
}

/* exp(x) for x <= 0 with relative error below 3e-7: 2^n times a polynomial on +-ln(2)/2. */
INLINE float exp_negative(float x) {
    x = x < -87.0f ? -87.0f : x; /* below, the result is no longer a normal float */
    float shifted = x * 1.44269504f + 12582912.0f; /* 1.5 * 2^23: rounds to the nearest integer */
    float n = shifted - 12582912.0f;
    float r = x - n * 0.693359375f + n * 2.12194440e-4f; /* ln(2) in two parts keeps r exact */
    float p = 1.0f / 5040;
    int32_t bits;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    memcpy(&bits, &p, 4);
    bits += (int32_t)n * (1 << 23);
    memcpy(&p, &bits, 4);
    return p;
}

INLINE float exp_row_body(float *row, int n, float top) {
    float part[LANES] = {0};
    int i = 0;
    for (int j = 0; j < n; j++) row[j] = exp_negative(row[j] - top);
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++) part[j] += row[i + j];
    for (int j = 0; i < n; i++, j++) part[j] += row[i];
    return sum_lanes(part);
}

INLINE void scores_body(const float *q, int nq, const float *keys, int nt, int dim, float *scores,
                        int score_stride) {
    for (int t = 0; t < nt; t++)
        for (int i = 0; i < nq; i++)
            scores[i * score_stride + t] = dot_floats(q + i * dim, keys + t * dim, dim);
}

INLINE void mix_body(const float *p, int p_stride, int nq, const float *values, int nt, int dim,
                     float *acc) {
    for (int i = 0; i < nq; i++)
        for (int t = 0; t < nt; t++) {
            float weight = p[i * p_stride + t];
            for (int j = 0; j < dim; j++) acc[i * dim + j] += weight * values[t * dim + j];
        }
}

#endif
