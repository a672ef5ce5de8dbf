/* AVX-512: 16 weight rows times a few activation rows in integers.
 *
 * For every four inputs one register holds the bytes of all 16 rows, and VNNI adds their products
 * with four spread activation bytes to 16 sums, exactly. Signed weights change roles as in
 * avx512_row.c; their correction is shared by all activation rows.
 */
#include "internal.h"

#if defined(__x86_64__)

#include "avx512_internal.h"
#include "avx2_weight_tile.h"

#define BLOCK_M 8 /* activation rows at once: enough sums to hide the delay of a product */

/* Adds the products of one tile with mb activation rows to y. */
AVX512_INLINE void multiply(const int n_runs, const int is_signed, const int mb,
                            const weight_tile *t, int n_groups, const int8_t *q, int64_t q_stride,
                            const float *d, const float *sums, float *y) {
    const __m512i bias = _mm512_set1_epi8((char)128), zero = _mm512_setzero_si512();
    const int64_t d_stride = q_stride / 32, sum_stride = q_stride / (n_runs == 2 ? 16 : 32);
    const int steps = 8 / n_runs;
    __m512 acc[BLOCK_M];
#pragma GCC unroll 8
    for (int i = 0; i < mb; i++) acc[i] = _mm512_loadu_ps(y + i * TILE_ROWS);
    for (int g = 0; g < n_groups; g++) {
#pragma GCC unroll 2
        for (int run = 0; run < n_runs; run++) {
            __m512i sum[BLOCK_M], correction = zero;
#pragma GCC unroll 8
            for (int i = 0; i < mb; i++) sum[i] = zero;
#pragma GCC unroll 8
            for (int j = 0; j < steps; j++) {
                const int step = run * steps + j;
                __m512i w = _mm512_load_si512(t->u[g][step]);
                if (is_signed) correction = _mm512_dpbusd_epi32(correction, bias, w);
#pragma GCC unroll 8
                for (int i = 0; i < mb; i++) {
                    int four;
                    memcpy(&four, q + i * q_stride + 32 * g + 4 * step, 4);
                    __m512i x = _mm512_set1_epi32(is_signed ? four ^ (int)0x80808080u : four);
                    sum[i] = is_signed ? _mm512_dpbusd_epi32(sum[i], x, w)
                                       : _mm512_dpbusd_epi32(sum[i], w, x);
                }
            }
            __m512 s = _mm512_load_ps(t->s[g][run]), o = _mm512_load_ps(t->o[g][run]);
#pragma GCC unroll 8
            for (int i = 0; i < mb; i++) {
                if (is_signed) sum[i] = _mm512_sub_epi32(sum[i], correction);
                __m512 scale = _mm512_set1_ps(d[i * d_stride + g]);
                __m512 p = _mm512_mul_ps(_mm512_cvtepi32_ps(sum[i]), s);
                acc[i] = _mm512_fmadd_ps(p, scale, acc[i]);
                if (!is_signed) {
                    __m512 x_sum = _mm512_set1_ps(sums[i * sum_stride + n_runs * g + run]);
                    acc[i] = _mm512_fmadd_ps(o, x_sum, acc[i]);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < mb; i++) _mm512_storeu_ps(y + i * TILE_ROWS, acc[i]);
}

AVX512_INLINE void tile_of(const int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                           const activations *a, int64_t m, float *y) {
    weight_tile t;
    const int n_runs = has_runs_of_16(type) ? 2 : 1, is_signed = is_signed_type(type);
    const int values = ds4_block_values(type), bytes = ds4_block_bytes(type);
    const int64_t k = a->k;
    const float *all_sums = n_runs == 2 ? a->s16 : a->s32;
    memset(y, 0, sizeof(float) * TILE_ROWS * (size_t)m);
    for (int64_t at = 0; at < k; at += SLICE) {
        int n_groups = (int)((k - at < SLICE ? k - at : SLICE) / GROUP);
        for (int first = 0; first < TILE_ROWS; first += 8) {
            const uint8_t *start[8];
            for (int r = 0; r < 8; r++) { /* missing rows repeat the last; nobody reads them */
                int row = first + r < n_rows ? first + r : n_rows - 1;
                start[r] = rows + row * row_bytes + at / values * bytes;
            }
            fill_half(type, start, n_groups, &t, first);
        }
        int64_t i = 0;
#define MULTIPLY(mb)                                                                           \
    multiply(n_runs, is_signed, mb, &t, n_groups, a->q + i * k + at, k,                        \
             a->d + (i * k + at) / 32, all_sums + (i * k + at) / (n_runs == 2 ? 16 : 32),      \
             y + i * TILE_ROWS)
        for (; i + BLOCK_M <= m; i += BLOCK_M) MULTIPLY(BLOCK_M);
        for (; i + 4 <= m; i += 4) MULTIPLY(4);
        if (i + 2 <= m) {
            MULTIPLY(2);
            i += 2;
        }
        if (i < m) MULTIPLY(1);
#undef MULTIPLY
    }
}

#define TILE(type)                                                                             \
    AVX512 static void tile_##type(const uint8_t *rows, int64_t row_bytes, int n_rows,         \
                                   const activations *a, int64_t m, float *y) {                \
        tile_of(type, rows, row_bytes, n_rows, a, m, y);                                       \
    }
#define EACH_TYPE(DO)                                                                          \
    DO(T_Q4_0) DO(T_Q4_1) DO(T_Q5_0) DO(T_Q5_1) DO(T_Q8_0) DO(T_MXFP4) DO(T_IQ2_XXS)           \
    DO(T_Q2_K) DO(T_Q3_K) DO(T_Q4_K) DO(T_Q5_K) DO(T_Q6_K)
EACH_TYPE(TILE)

AVX512 void ds4_avx512_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                            const activations *a, int64_t m, float *y) {
#define CASE(type) case type: tile_##type(rows, row_bytes, n_rows, a, m, y); return;
    switch (type) {
        EACH_TYPE(CASE)
    }
    for (int r = 0; r < n_rows; r++) /* floats */
        for (int64_t i = 0; i < m; i++)
            y[i * TILE_ROWS + r] = ds4_avx2_row_dot(type, rows + r * row_bytes, a, i);
}

#endif
