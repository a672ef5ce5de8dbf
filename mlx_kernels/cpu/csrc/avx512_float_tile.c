/* AVX-512: 16 weight rows times many activation rows in float32, the kernel of prefill.
 *
 * As avx2_float_tile.c, with the 16 rows in one register: every input costs one register of
 * weights, and one product for each of 12 activation rows, which spread themselves as they load.
 */
#include "internal.h"

#if defined(__x86_64__)

#include "avx512_internal.h"
#include "avx2_weight_tile.h"

/* Input j of four (byte j of every lane) of the 16 rows, as floats. */
AVX512_INLINE __m512 input_of(const int type, __m512i four, const int j) {
    if (is_signed_type(type))
        return _mm512_cvtepi32_ps(_mm512_srai_epi32(_mm512_slli_epi32(four, 24 - 8 * j), 24));
    return _mm512_cvtepi32_ps(
        _mm512_and_si512(_mm512_srli_epi32(four, 8 * j), _mm512_set1_epi32(255)));
}

/* Packed formats: 8 groups or fewer of a weight tile become n_groups * 32 rows of the panel. */
AVX512_INLINE void expand_tile(const int type, const weight_tile *t, int n_groups, float *panel) {
    for (int g = 0; g < n_groups; g++)
        for (int step = 0; step < 8; step++) {
            const int run = has_runs_of_16(type) ? step / 4 : 0;
            __m512i four = _mm512_load_si512(t->u[g][step]);
            __m512 s = _mm512_load_ps(t->s[g][run]), o = _mm512_load_ps(t->o[g][run]);
            float *to = panel + (32 * g + 4 * step) * TILE_ROWS;
#pragma GCC unroll 4
            for (int j = 0; j < 4; j++)
                _mm512_store_ps(to + j * TILE_ROWS,
                                _mm512_fmadd_ps(input_of(type, four, j), s, o));
        }
}

/* Float formats: `n` inputs of 8 rows, transposed. */
AVX512_INLINE void expand_floats(const int type, const uint8_t *const rows[8], int n,
                                 float *panel) {
    for (int i = 0; i < n; i += 8) {
        __m256 w[8];
        for (int r = 0; r < 8; r++) w[r] = load_weights(type, rows[r], i);
        transpose_8x8((const __m256i *)w, (uint8_t *)(panel + i * TILE_ROWS), 4 * TILE_ROWS);
    }
}

/* y[6 blocks, TILE_ROWS] += x[blocks][n, 6] transposed times panel[n, TILE_ROWS]. */
AVX512_INLINE void multiply(const int blocks, const float *panel, const float *x, int n,
                            float *y) {
    __m512 acc[2 * FLOAT_ROWS];
#pragma GCC unroll 12
    for (int i = 0; i < blocks * FLOAT_ROWS; i++) acc[i] = _mm512_setzero_ps();
    const float *next = x + (int64_t)n * FLOAT_ROWS;
    for (int k = 0; k < n; k++, panel += TILE_ROWS, x += FLOAT_ROWS, next += FLOAT_ROWS) {
        __m512 w = _mm512_load_ps(panel);
#pragma GCC unroll 6
        for (int i = 0; i < FLOAT_ROWS; i++) {
            acc[i] = _mm512_fmadd_ps(_mm512_set1_ps(x[i]), w, acc[i]);
            if (blocks == 2)
                acc[FLOAT_ROWS + i] =
                    _mm512_fmadd_ps(_mm512_set1_ps(next[i]), w, acc[FLOAT_ROWS + i]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < blocks * FLOAT_ROWS; i++) {
        float *to = y + i * TILE_ROWS;
        _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), acc[i]));
    }
}

AVX512_INLINE void tile_of(const int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                           const float *x, int64_t k, int64_t m, float *y) {
    weight_tile t;
    float panel[SUPER * TILE_ROWS] __attribute__((aligned(64)));
    const int64_t values = ds4_block_values(type), bytes = ds4_block_bytes(type);
    for (int64_t at = 0; at < k; at += SUPER) {
        const int n = (int)(k - at < SUPER ? k - at : SUPER);
        for (int first = 0; first < TILE_ROWS; first += 8) {
            const uint8_t *start[8];
            for (int r = 0; r < 8; r++) { /* missing rows repeat the last; nobody reads them */
                int row = first + r < n_rows ? first + r : n_rows - 1;
                start[r] = rows + row * row_bytes + at / values * bytes;
            }
            if (is_float_type(type))
                expand_floats(type, start, n, panel + first);
            else
                fill_half(type, start, n / GROUP, &t, first);
        }
        if (!is_float_type(type)) expand_tile(type, &t, n / GROUP, panel);
        const float *from = x + at * whole_blocks(m);
        int64_t i = 0;
        for (; i + FLOAT_ROWS < m; i += 2 * FLOAT_ROWS)
            multiply(2, panel, from + i * n, n, y + i * TILE_ROWS);
        if (i < m) multiply(1, panel, from + i * n, n, y + i * TILE_ROWS);
    }
}

#define TILE(type)                                                                      \
    case type: tile_of(type, rows, row_bytes, n_rows, x, k, m, y); break

AVX512 void ds4_avx512_float_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                                  const float *x, int64_t k, int64_t m, float *y) {
    memset(y, 0, sizeof(float) * TILE_ROWS * (size_t)whole_blocks(m));
    switch (type) { /* one specialised loop for each format */
        TILE(T_F32);
        TILE(T_F16);
        TILE(T_BF16);
        TILE(T_Q4_0);
        TILE(T_Q4_1);
        TILE(T_Q5_0);
        TILE(T_Q5_1);
        TILE(T_Q8_0);
        TILE(T_MXFP4);
        TILE(T_IQ2_XXS);
        TILE(T_Q2_K);
        TILE(T_Q3_K);
        TILE(T_Q4_K);
        TILE(T_Q5_K);
        TILE(T_Q6_K);
    }
}

#endif
