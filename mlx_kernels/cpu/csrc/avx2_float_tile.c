/* AVX2: 16 weight rows times many activation rows in float32, the kernel of prefill.
 *
 * A slice of the rows is expanded to float32 in the first-level cache, input by input:
 * panel[input][row]. Six activation rows are then multiplied with it at once: for every input two
 * registers of weights and six spread activations, 12 products that 12 registers add up. Nothing
 * but the order of sums differs from a product of the expanded matrices.
 *
 * Expanding costs about as much as multiplying with four activation rows, and is paid once.
 */
#include "internal.h"

#if defined(__x86_64__) || defined(__i386__)

#include "avx2_internal.h"
#include "avx2_weight_tile.h"

/* Input j of four (byte j of every lane) of 8 rows, as floats. */
AVX2_INLINE __m256 input_of(const int type, __m256i four, const int j) {
    if (is_signed_type(type))
        return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(four, 24 - 8 * j), 24));
    return _mm256_cvtepi32_ps(
        _mm256_and_si256(_mm256_srli_epi32(four, 8 * j), _mm256_set1_epi32(255)));
}

/* Packed formats: 8 groups or fewer of a weight tile become n_groups * 32 rows of the panel. */
AVX2_INLINE void expand_tile(const int type, const weight_tile *t, int n_groups, float *panel) {
    const int by16 = has_runs_of_16(type);
    for (int g = 0; g < n_groups; g++)
        for (int step = 0; step < 8; step++) {
            const int run = by16 ? step / 4 : 0;
#pragma GCC unroll 2
            for (int v = 0; v < 2; v++) {
                __m256i four = load256(t->u[g][step][8 * v]);
                __m256 s = _mm256_load_ps(t->s[g][run] + 8 * v);
                __m256 o = _mm256_load_ps(t->o[g][run] + 8 * v);
                float *to = panel + (32 * g + 4 * step) * TILE_ROWS + 8 * v;
#pragma GCC unroll 4
                for (int j = 0; j < 4; j++)
                    _mm256_store_ps(to + j * TILE_ROWS,
                                    _mm256_fmadd_ps(input_of(type, four, j), s, o));
            }
        }
}

/* Float formats: `n` inputs of 8 rows, transposed. */
AVX2_INLINE void expand_floats(const int type, const uint8_t *const rows[8], int n, float *panel) {
    for (int i = 0; i < n; i += 8) {
        __m256 w[8];
        for (int r = 0; r < 8; r++) w[r] = load_weights(type, rows[r], i);
        transpose_8x8((const __m256i *)w, (uint8_t *)(panel + i * TILE_ROWS), 4 * TILE_ROWS);
    }
}

/* y[6, TILE_ROWS] += x[n, 6] transposed times panel[n, TILE_ROWS]. */
AVX2_INLINE void multiply(const float *panel, const float *x, int n, float *y) {
    __m256 acc[FLOAT_ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < FLOAT_ROWS; i++) acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (int k = 0; k < n; k++, panel += TILE_ROWS, x += FLOAT_ROWS) {
        __m256 w0 = _mm256_load_ps(panel), w1 = _mm256_load_ps(panel + 8);
#pragma GCC unroll 6
        for (int i = 0; i < FLOAT_ROWS; i++) {
            __m256 spread = _mm256_broadcast_ss(x + i);
            acc[i][0] = _mm256_fmadd_ps(spread, w0, acc[i][0]);
            acc[i][1] = _mm256_fmadd_ps(spread, w1, acc[i][1]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < FLOAT_ROWS; i++)
        for (int v = 0; v < 2; v++) {
            float *to = y + i * TILE_ROWS + 8 * v;
            _mm256_storeu_ps(to, _mm256_add_ps(_mm256_loadu_ps(to), acc[i][v]));
        }
}

AVX2_INLINE void tile_of(const int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
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
        for (int64_t i = 0; i < m; i += FLOAT_ROWS)
            multiply(panel, x + at * whole_blocks(m) + i * n, n, y + i * TILE_ROWS);
    }
}

#define TILE(type)                                                                      \
    case type: tile_of(type, rows, row_bytes, n_rows, x, k, m, y); break

AVX2 void ds4_avx2_float_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
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
        TILE(T_IQ2_XXS);
        TILE(T_MXFP4);
        TILE(T_Q2_K);
        TILE(T_Q3_K);
        TILE(T_Q4_K);
        TILE(T_Q5_K);
        TILE(T_Q6_K);
    }
}

#endif
