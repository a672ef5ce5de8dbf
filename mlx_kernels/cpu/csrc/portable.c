/* The code path for any machine: plain C over the unpacked blocks of formats.c. */
#include "float_kernels.h"
#include "portable_body.h"

static int quantise(const float *x, int64_t k, int8_t *q, float *d, float *s32, float *s16,
                    int16_t *steps, float *d256) {
    (void)steps, (void)d256;
    return quantise_body(x, k, q, d, s32, s16);
}

static void rms_norm(const float *x, const float *norm, float eps, int64_t k, float *y) {
    rms_norm_body(x, norm, eps, k, y);
}

static int dot16(const int8_t *u, const int8_t *q) {
    int sum = 0;
    for (int i = 0; i < 16; i++) sum += u[i] * q[i];
    return sum;
}

static float row_dot(int type, const uint8_t *row, const activations *a, int64_t m_idx) {
    float y;
    rows_body(type, row, a, m_idx, 1, &y, 1, dot16);
    return y;
}

static void tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                 const activations *a, int64_t m, float *y) {
    for (int r = 0; r < n_rows; r++)
        rows_body(type, rows + r * row_bytes, a, 0, m, y + r, TILE_ROWS, dot16);
}

static void float_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                       const float *x, int64_t k, int64_t m, float *y) {
    float_tile_body(type, rows, row_bytes, n_rows, x, k, m, y);
}

static void half_to_float(const uint16_t *src, int64_t n, float *dst) {
    for (int64_t i = 0; i < n; i++) dst[i] = half_bits(src[i]);
}

static void scores(const float *q, int nq, const float *keys, int nt, int dim, float *out,
                   int score_stride) {
    scores_body(q, nq, keys, nt, dim, out, score_stride);
}

static void mix(const float *p, int p_stride, int nq, const float *values, int nt, int dim,
                float *acc) {
    mix_body(p, p_stride, nq, values, nt, dim, acc);
}

static float exp_row(float *row, int n, float top) { return exp_row_body(row, n, top); }

const code_path ds4_portable = {
    "portable", rms_norm, quantise, row_dot, NULL, tile, float_tile, half_to_float, scores, mix,
    exp_row,
};
