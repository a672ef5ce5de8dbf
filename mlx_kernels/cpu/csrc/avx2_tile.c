/* AVX2: 16 weight rows times a few activation rows, the kernel of short additions to a text.
 *
 * A slice of the 16 rows is unpacked once into a tile that lies in the first-level cache: for every
 * four inputs the bytes of 8 rows side by side, so one multiply takes four inputs of 8 rows with
 * four activation bytes spread over the register. The 16-bit sums of several such steps are added
 * before they are widened; how many fit depends on the largest weight:
 *     15 * 127 * 2 * 8 = 30480 (4 bits), 31 * 127 * 2 * 4 = 31496 (5), 63 * 127 * 2 * 2 = 32004 (6).
 * Signed weights cost a sign transfer more; those of 8 bits allow one step, of IQ2_XXS (43) two.
 * Unpacking costs about as much as multiplying with three activation rows, and is paid once.
 */
#include "internal.h"

#if defined(__x86_64__) || defined(__i386__)

#include "avx2_internal.h"
#include "avx2_weight_tile.h"

#define BLOCK_M 4 /* activation rows at once: 8 sums of 16 bits fill half the registers */

/* Keeps a running sum running. Left alone, the compiler turns eight additions into a tree, whose
 * many products at once do not fit the registers: half the speed. */
#define IN_ORDER(v) __asm__("" : "+x"(v))

/* Adds the products of one tile with mb activation rows to y.
 * halves: runs of 16 have their own scale (2) or share one (1); steps: 16-bit additions that fit. */
AVX2_INLINE void multiply(const int halves, const int steps, const int is_signed, const int mb,
                          const weight_tile *t, int n_groups, const int8_t *q, int64_t q_stride,
                          const float *d, const float *sums, float *y) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int64_t d_stride = q_stride / 32, sum_stride = q_stride / (halves == 2 ? 16 : 32);
    __m256 acc[BLOCK_M][2];
    for (int i = 0; i < mb; i++)
        for (int v = 0; v < 2; v++) acc[i][v] = _mm256_loadu_ps(y + i * TILE_ROWS + 8 * v);
    for (int g = 0; g < n_groups; g++) {
#pragma GCC unroll 2
        for (int h = 0; h < halves; h++) {
            __m256i sum[BLOCK_M][2];
#pragma GCC unroll 8
            for (int run = 0; run < 8 / halves / steps; run++) {
                __m256i part[BLOCK_M][2];
#pragma GCC unroll 8
                for (int j = 0; j < steps; j++) {
                    const int step = h * 4 + run * steps + j;
                    const __m256i *w = (const __m256i *)t->u[g][step];
                    __m256i w0 = _mm256_load_si256(w), w1 = _mm256_load_si256(w + 1);
                    __m256i abs0 = w0, abs1 = w1;
                    if (is_signed) {
                        abs0 = _mm256_abs_epi8(w0);
                        abs1 = _mm256_abs_epi8(w1);
                    }
#pragma GCC unroll 4
                    for (int i = 0; i < mb; i++) {
                        int four;
                        memcpy(&four, q + i * q_stride + 32 * g + 4 * step, 4);
                        __m256i a = _mm256_set1_epi32(four);
                        __m256i p0 = _mm256_maddubs_epi16(
                            abs0, is_signed ? _mm256_sign_epi8(a, w0) : a);
                        __m256i p1 = _mm256_maddubs_epi16(
                            abs1, is_signed ? _mm256_sign_epi8(a, w1) : a);
                        part[i][0] = j ? _mm256_add_epi16(part[i][0], p0) : p0;
                        part[i][1] = j ? _mm256_add_epi16(part[i][1], p1) : p1;
                        IN_ORDER(part[i][0]);
                        IN_ORDER(part[i][1]);
                    }
                }
#pragma GCC unroll 4
                for (int i = 0; i < mb; i++)
#pragma GCC unroll 2
                    for (int v = 0; v < 2; v++) {
                        __m256i wide = _mm256_madd_epi16(part[i][v], ones);
                        sum[i][v] = run ? _mm256_add_epi32(sum[i][v], wide) : wide;
                    }
            }
            __m256 s0 = _mm256_load_ps(t->s[g][h]), s1 = _mm256_load_ps(t->s[g][h] + 8);
            __m256 o0 = _mm256_load_ps(t->o[g][h]), o1 = _mm256_load_ps(t->o[g][h] + 8);
#pragma GCC unroll 4
            for (int i = 0; i < mb; i++) {
                __m256 scale = _mm256_broadcast_ss(d + i * d_stride + g);
                __m256 x_sum = _mm256_broadcast_ss(sums + i * sum_stride + halves * g + h);
                __m256 p0 = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][0]), s0);
                __m256 p1 = _mm256_mul_ps(_mm256_cvtepi32_ps(sum[i][1]), s1);
                acc[i][0] = _mm256_fmadd_ps(p0, scale, acc[i][0]);
                acc[i][1] = _mm256_fmadd_ps(p1, scale, acc[i][1]);
                if (!is_signed) {
                    acc[i][0] = _mm256_fmadd_ps(o0, x_sum, acc[i][0]);
                    acc[i][1] = _mm256_fmadd_ps(o1, x_sum, acc[i][1]);
                }
            }
        }
    }
    for (int i = 0; i < mb; i++)
        for (int v = 0; v < 2; v++) _mm256_storeu_ps(y + i * TILE_ROWS + 8 * v, acc[i][v]);
}

AVX2_INLINE void tile_of(const int type, const int halves, const int steps, const int is_signed,
                         const uint8_t *rows, int64_t row_bytes, int n_rows,
                         const activations *a, int64_t m, float *y) {
    weight_tile t;
    const int values = ds4_block_values(type), bytes = ds4_block_bytes(type);
    const int64_t k = a->k;
    const float *all_sums = halves == 2 ? a->s16 : a->s32;
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
    multiply(halves, steps, is_signed, mb, &t, n_groups, a->q + i * k + at, k,                 \
             a->d + (i * k + at) / 32, all_sums + (i * k + at) / (halves == 2 ? 16 : 32),      \
             y + i * TILE_ROWS)
        for (; i + BLOCK_M <= m; i += BLOCK_M) MULTIPLY(BLOCK_M);
        if (i + 2 <= m) {
            MULTIPLY(2);
            i += 2;
        }
        if (i < m) MULTIPLY(1);
#undef MULTIPLY
    }
}

#define TILE(name, type, halves, steps, is_signed)                                             \
    AVX2 static void name(const uint8_t *rows, int64_t row_bytes, int n_rows,                  \
                          const activations *a, int64_t m, float *y) {                         \
        tile_of(type, halves, steps, is_signed, rows, row_bytes, n_rows, a, m, y);             \
    }
TILE(tile_q4_0, T_Q4_0, 1, 8, 0)
TILE(tile_q4_1, T_Q4_1, 1, 8, 0)
TILE(tile_q5_0, T_Q5_0, 1, 4, 0)
TILE(tile_q5_1, T_Q5_1, 1, 4, 0)
TILE(tile_q8_0, T_Q8_0, 1, 1, 1)
TILE(tile_iq2_xxs, T_IQ2_XXS, 1, 2, 1)
TILE(tile_mxfp4, T_MXFP4, 1, 8, 1)
TILE(tile_q2_k, T_Q2_K, 2, 4, 0)
TILE(tile_q3_k, T_Q3_K, 2, 4, 0)
TILE(tile_q4_k, T_Q4_K, 1, 8, 0)
TILE(tile_q5_k, T_Q5_K, 1, 4, 0)
TILE(tile_q6_k, T_Q6_K, 2, 2, 0)

void ds4_avx2_tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                   const activations *a, int64_t m, float *y) {
    switch (type) {
    case T_Q4_0: tile_q4_0(rows, row_bytes, n_rows, a, m, y); break;
    case T_Q4_1: tile_q4_1(rows, row_bytes, n_rows, a, m, y); break;
    case T_Q5_0: tile_q5_0(rows, row_bytes, n_rows, a, m, y); break;
    case T_Q5_1: tile_q5_1(rows, row_bytes, n_rows, a, m, y); break;
    case T_Q8_0: tile_q8_0(rows, row_bytes, n_rows, a, m, y); break;
    case T_IQ2_XXS: tile_iq2_xxs(rows, row_bytes, n_rows, a, m, y); break;
    case T_MXFP4: tile_mxfp4(rows, row_bytes, n_rows, a, m, y); break;
    case T_Q2_K: tile_q2_k(rows, row_bytes, n_rows, a, m, y); break;
    case T_Q3_K: tile_q3_k(rows, row_bytes, n_rows, a, m, y); break;
    case T_Q4_K: tile_q4_k(rows, row_bytes, n_rows, a, m, y); break;
    case T_Q5_K: tile_q5_k(rows, row_bytes, n_rows, a, m, y); break;
    case T_Q6_K: tile_q6_k(rows, row_bytes, n_rows, a, m, y); break;
    }
}

#endif
