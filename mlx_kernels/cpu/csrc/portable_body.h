/* Quantised loops shared by the portable path and the paths that only bring a faster dot16. */
#ifndef DS4_PORTABLE_BODY_H
#define DS4_PORTABLE_BODY_H

#include "float_kernels.h"

typedef int (*dot16_function)(const int8_t *u, const int8_t *q);

/* Below this largest magnitude 127 / magnitude overflows; such a group rounds to zero. */
#define TINY 1e-36f

INLINE int quantise_body(const float *x, int64_t k, int8_t *q, float *d, float *s32, float *s16) {
    for (int64_t g = 0; g < k / GROUP; g++) {
        const float *in = x + g * GROUP;
        int8_t *to = q + g * GROUP;
        uint32_t top = 0;
        float top_value;
        for (int i = 0; i < GROUP; i++) {
            uint32_t bits;
            memcpy(&bits, in + i, 4);
            bits &= 0x7fffffffu; /* magnitudes of floats order like their bits; NaN is largest */
            top = bits > top ? bits : top;
        }
        if (top >= 0x7f800000u) return 0;
        memcpy(&top_value, &top, 4);
        float scale = top_value < TINY ? 0.0f : top_value / 127.0f;
        float inverse = top_value < TINY ? 0.0f : 127.0f / top_value;
        int sums[2] = {0, 0};
        for (int i = 0; i < GROUP; i++) {
            to[i] = (int8_t)lrintf(in[i] * inverse);
            sums[i / 16] += to[i];
        }
        d[g] = scale;
        s16[2 * g] = scale * (float)sums[0];
        s16[2 * g + 1] = scale * (float)sums[1];
        s32[g] = scale * (float)(sums[0] + sums[1]);
    }
    return 1;
}

/* One float weight row times activation rows m0 .. m0 + m; y[i * y_stride] is written. */
INLINE void float_rows_body(int type, const uint8_t *row, const activations *a, int64_t m0,
                            int64_t m, float *y, int64_t y_stride) {
    float part[SUPER];
    for (int64_t i = 0; i < m; i++) y[i * y_stride] = 0;
    for (int64_t at = 0; at < a->k; at += SUPER) {
        int n = (int)(a->k - at < SUPER ? a->k - at : SUPER);
        ds4_expand_row(type, row + at * ds4_block_bytes(type), n, part);
        for (int64_t i = 0; i < m; i++)
            y[i * y_stride] += dot_floats(part, a->x + (m0 + i) * a->k + at, n);
    }
}

/* The same for packed weights. The row is unpacked once for all activation rows. */
INLINE void rows_body(int type, const uint8_t *row, const activations *a, int64_t m0, int64_t m,
                      float *y, int64_t y_stride, dot16_function dot16) {
    int values = ds4_block_values(type), bytes = ds4_block_bytes(type);
    int8_t u[SUPER];
    float s[16], o[16];
    if (is_float_type(type)) {
        float_rows_body(type, row, a, m0, m, y, y_stride);
        return;
    }
    for (int64_t i = 0; i < m; i++) y[i * y_stride] = 0;
    for (int64_t at = 0; at < a->k; at += values, row += bytes) {
        ds4_unpack(type, row, u, s, o);
        for (int64_t i = 0; i < m; i++) {
            const int8_t *q = a->q + (m0 + i) * a->k + at;
            const float *d = a->d + ((m0 + i) * a->k + at) / 32;
            const float *sums = a->s16 + ((m0 + i) * a->k + at) / 16;
            float total = 0;
            for (int r = 0; r < values / 16; r++)
                total += s[r] * d[r / 2] * (float)dot16(u + 16 * r, q + 16 * r) + o[r] * sums[r];
            y[i * y_stride] += total;
        }
    }
}

/* Four floats in a register, on every machine that the compilers in use know. */
typedef float floats4 __attribute__((vector_size(16)));

INLINE floats4 load4(const float *p) {
    floats4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

/* y[FLOAT_ROWS, 8 of TILE_ROWS] += x[n, FLOAT_ROWS] transposed times 8 columns of panel[n, TILE_ROWS].
 * 12 sums, two registers of weights and a spread activation fit 16 registers. */
INLINE void multiply_eight(const float *panel, const float *x, int n, float *y) {
    floats4 acc[FLOAT_ROWS][2] = {{{0}}};
    for (int c = 0; c < n; c++, panel += TILE_ROWS, x += FLOAT_ROWS) {
        const floats4 w0 = load4(panel), w1 = load4(panel + 4);
#pragma GCC unroll 6
        for (int i = 0; i < FLOAT_ROWS; i++) {
            acc[i][0] += w0 * x[i];
            acc[i][1] += w1 * x[i];
        }
    }
    for (int i = 0; i < FLOAT_ROWS; i++)
        for (int r = 0; r < 8; r++) y[i * TILE_ROWS + r] += acc[i][r / 4][r % 4];
}

/* Expands a slice of the rows, input by input, and multiplies blocks of activation rows with it. */
INLINE void float_tile_body(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                            const float *x, int64_t k, int64_t m, float *y) {
    float panel[SUPER * TILE_ROWS], line[SUPER];
    const int64_t values = ds4_block_values(type), bytes = ds4_block_bytes(type);
    memset(y, 0, sizeof(float) * TILE_ROWS * (size_t)whole_blocks(m));
    for (int64_t at = 0; at < k; at += SUPER) {
        const int n = (int)(k - at < SUPER ? k - at : SUPER);
        for (int r = 0; r < TILE_ROWS; r++) { /* missing rows repeat the last; nobody reads them */
            int row = r < n_rows ? r : n_rows - 1;
            ds4_expand_row(type, rows + row * row_bytes + at / values * bytes, n, line);
            for (int i = 0; i < n; i++) panel[i * TILE_ROWS + r] = line[i];
        }
        for (int64_t i = 0; i < m; i += FLOAT_ROWS)
            for (int half = 0; half < TILE_ROWS; half += 8)
                multiply_eight(panel + half, x + at * whole_blocks(m) + i * n, n,
                               y + i * TILE_ROWS + half);
    }
}

#endif
