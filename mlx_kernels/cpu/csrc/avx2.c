/* AVX2: activations, attention, and the table of this code path. */
#include "internal.h"

#if defined(__x86_64__) || defined(__i386__)

#include <float.h>
#include <math.h>

#include "avx2_internal.h"
#include "float_kernels.h"
#include "portable_body.h"

AVX2 static void rms_norm(const float *x, const float *norm, float eps, int64_t k, float *y) {
    rms_norm_body(x, norm, eps, k, y);
}

AVX2_INLINE int sum_int32(__m128i v) {
    v = _mm_add_epi32(v, _mm_shuffle_epi32(v, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(v, _mm_shuffle_epi32(v, 0xb1)));
}

/* The largest magnitude of a group; infinity or NaN if one is among them. */
AVX2_INLINE float largest_of(const float *x) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i top = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) /* magnitudes of floats order like their bits, and NaN is largest */
        top = _mm256_max_epi32(top, _mm256_and_si256(load256(x + 8 * i), magnitude));
    __m128i most = _mm_max_epi32(_mm256_castsi256_si128(top), _mm256_extracti128_si256(top, 1));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0x4e));
    most = _mm_max_epi32(most, _mm_shuffle_epi32(most, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(most));
}

/* Rounds a group to multiples of scale. */
AVX2_INLINE void round_group(const float *x, float scale, float inverse, int8_t *q, float *s32,
                             float *s16) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i n[4];
    for (int i = 0; i < 4; i++)
        n[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8 * i), _mm256_set1_ps(inverse)));
    __m256i first = _mm256_add_epi32(n[0], n[1]), second = _mm256_add_epi32(n[2], n[3]);
    int low = sum_int32(
        _mm_add_epi32(_mm256_castsi256_si128(first), _mm256_extracti128_si256(first, 1)));
    int high = sum_int32(
        _mm_add_epi32(_mm256_castsi256_si128(second), _mm256_extracti128_si256(second, 1)));
    /* packing works within register halves; `order` puts the runs of four back in line */
    __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(n[0], n[1]),
                                       _mm256_packs_epi32(n[2], n[3]));
    _mm256_storeu_si256((__m256i *)q, _mm256_permutevar8x32_epi32(bytes, order));
    s16[0] = scale * (float)low;
    s16[1] = scale * (float)high;
    *s32 = scale * (float)(low + high);
}

/* In a whole run of SUPER values, scales are rounded up to multiples of 1/MAX_STEPS of the largest:
 * a group then loses at most half a step more than with its own scale, and a weight's small integer
 * scale times that of the activations is an integer of 16 bits. */
AVX2 static int quantise(const float *x, int64_t k, int8_t *q, float *d, float *s32, float *s16,
                         int16_t *steps, float *d256) {
    for (int64_t at = 0; at < k; at += SUPER) {
        const int n = k - at < SUPER ? (int)(k - at) / GROUP : SUPER / GROUP;
        const int is_whole = n == SUPER / GROUP;
        float tops[SUPER / GROUP], most = 0;
        for (int g = 0; g < n; g++) {
            tops[g] = largest_of(x + at + g * GROUP);
            if (!(tops[g] <= FLT_MAX)) return 0;
            most = tops[g] > most ? tops[g] : most;
        }
        if (most < TINY) most = 0; /* all zeros */
        if (is_whole) d256[at / SUPER] = most / (127.0f * MAX_STEPS);
        for (int g = 0; g < n; g++) {
            const int64_t i = at / GROUP + g;
            float top = tops[g] < TINY ? 0.0f : tops[g];
            int step = most > 0 ? (int)ceilf(top / most * MAX_STEPS) : 0;
            if (is_whole && step < MAX_STEPS) top = (float)step * (most / MAX_STEPS);
            if (is_whole) steps[i] = (int16_t)step;
            d[i] = top / 127.0f;
            round_group(x + at + g * GROUP, d[i], top > 0 ? 127.0f / top : 0.0f,
                        q + at + g * GROUP, s32 + i, s16 + 2 * i);
        }
    }
    return 1;
}

AVX2 static void tile(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                      const activations *a, int64_t m, float *y) {
    if (!is_float_type(type)) {
        ds4_avx2_tile(type, rows, row_bytes, n_rows, a, m, y);
        return;
    }
    for (int r = 0; r < n_rows; r++)
        for (int64_t i = 0; i < m; i++)
            y[i * TILE_ROWS + r] = ds4_avx2_row_dot(type, rows + r * row_bytes, a, i);
}

AVX2 static void half_to_float(const uint16_t *src, int64_t n, float *dst) {
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + i))));
    for (; i < n; i++) dst[i] = half_bits(src[i]);
}

/* The sums of four registers. */
AVX2_INLINE __m128 sums_of_four(const __m256 v[4]) {
    __m256 pairs = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    return _mm_add_ps(_mm256_castps256_ps128(pairs), _mm256_extractf128_ps(pairs, 1));
}

/* n queries times four neighbouring keys: with two queries, eight sums hide an addition's delay. */
AVX2_INLINE void four_scores(const int n, const float *q, const float *keys, int dim, float *out,
                             int score_stride) {
    __m256 acc[2][4];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < 4; j++) acc[i][j] = _mm256_setzero_ps();
    for (int c = 0; c < dim; c += 8) {
        __m256 key[4];
        for (int j = 0; j < 4; j++) key[j] = _mm256_loadu_ps(keys + j * dim + c);
        for (int i = 0; i < n; i++) {
            __m256 query = _mm256_loadu_ps(q + i * dim + c);
            for (int j = 0; j < 4; j++) acc[i][j] = _mm256_fmadd_ps(query, key[j], acc[i][j]);
        }
    }
    for (int i = 0; i < n; i++) _mm_storeu_ps(out + i * score_stride, sums_of_four(acc[i]));
}

/* Dims that are no multiple of 8 take the plain loop, as do up to three last keys. */
AVX2 static void scores(const float *q, int nq, const float *keys, int nt, int dim, float *out,
                        int score_stride) {
    int t = 0;
    if (dim % 8 == 0)
        for (; t + 4 <= nt; t += 4) {
            int i = 0;
            for (; i + 2 <= nq; i += 2)
                four_scores(2, q + i * dim, keys + t * dim, dim, out + i * score_stride + t,
                            score_stride);
            if (i < nq)
                four_scores(1, q + i * dim, keys + t * dim, dim, out + i * score_stride + t,
                            score_stride);
        }
    scores_body(q, nq, keys + t * dim, nt - t, dim, out + t, score_stride);
}

/* n queries mix 16 values of every row. */
AVX2_INLINE void mix_16(const int n, const float *p, int p_stride, const float *values, int nt,
                        int dim, float *acc) {
    __m256 sum[4][2];
    for (int j = 0; j < n; j++)
        for (int v = 0; v < 2; v++) sum[j][v] = _mm256_loadu_ps(acc + j * dim + 8 * v);
    for (int t = 0; t < nt; t++) {
        __m256 v0 = _mm256_loadu_ps(values + (int64_t)t * dim);
        __m256 v1 = _mm256_loadu_ps(values + (int64_t)t * dim + 8);
        for (int j = 0; j < n; j++) {
            __m256 weight = _mm256_broadcast_ss(p + j * p_stride + t);
            sum[j][0] = _mm256_fmadd_ps(weight, v0, sum[j][0]);
            sum[j][1] = _mm256_fmadd_ps(weight, v1, sum[j][1]);
        }
    }
    for (int j = 0; j < n; j++)
        for (int v = 0; v < 2; v++) _mm256_storeu_ps(acc + j * dim + 8 * v, sum[j][v]);
}

AVX2 static void mix(const float *p, int p_stride, int nq, const float *values, int nt, int dim,
                     float *acc) {
    int i = 0;
    if (dim % 16 == 0)
        while (i < nq) {
            const int n = nq - i >= 4 ? 4 : nq - i >= 2 ? 2 : 1;
            for (int c = 0; c < dim; c += 16) {
                float *to = acc + i * dim + c;
                const float *from = p + i * p_stride;
                if (n == 4)
                    mix_16(4, from, p_stride, values + c, nt, dim, to);
                else if (n == 2)
                    mix_16(2, from, p_stride, values + c, nt, dim, to);
                else
                    mix_16(1, from, p_stride, values + c, nt, dim, to);
            }
            i += n;
        }
    mix_body(p + i * p_stride, p_stride, nq - i, values, nt, dim, acc + i * dim);
}

/* exp_negative of eight values; the compiler does not find this form by itself. */
AVX2_INLINE __m256 exp_eight(__m256 x) {
    const __m256 round = _mm256_set1_ps(12582912.0f);
    x = _mm256_max_ps(x, _mm256_set1_ps(-87.0f));
    __m256 n = _mm256_sub_ps(_mm256_fmadd_ps(x, _mm256_set1_ps(1.44269504f), round), round);
    __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(2.12194440e-4f), r);
    __m256 p = _mm256_set1_ps(1.0f / 5040);
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 720));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 120));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 24));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f / 6));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(0.5f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.0f));
    __m256i exponent = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), exponent));
}

AVX2 static float exp_row(float *row, int n, float top) {
    __m256 sum = _mm256_setzero_ps();
    int i = 0;
    for (; i + 8 <= n; i += 8) {
        __m256 e = exp_eight(_mm256_sub_ps(_mm256_loadu_ps(row + i), _mm256_set1_ps(top)));
        _mm256_storeu_ps(row + i, e);
        sum = _mm256_add_ps(sum, e);
    }
    return sum_256(sum) + exp_row_body(row + i, n - i, top);
}

static const code_path AVX2_PATH = {
    "avx2", rms_norm, quantise, ds4_avx2_row_dot, NULL, tile, ds4_avx2_float_tile, half_to_float,
    scores, mix, exp_row,
};

const code_path *ds4_avx2(void) {
    __builtin_cpu_init();
    int usable = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    /* every chip with AVX2 has the half-precision conversions; not every compiler can ask */
    return usable ? &AVX2_PATH : NULL;
}

#else

const code_path *ds4_avx2(void) { return NULL; }

#endif
