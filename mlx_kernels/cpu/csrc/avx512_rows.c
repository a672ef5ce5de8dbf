/* AVX-512: a run of weight rows times one activation row, the K types in integers.
 *
 * Two threads that share a core are limited by the number of instructions as much as by memory. A
 * weight's scale times the activations' (see `steps` of activations) is an integer of 16 bits. So 32
 * products cost two instructions: pairs of bytes are multiplied and added to 16 bits, pairs of those
 * take their scale and join a sum of 32 bits. Floats come in once for 256 products.
 *
 * Nothing overflows. For Q4_K, with 15 * 127 * 2 in a pair, 63 * 255 as scale, and 16 pairs in a sum:
 * 15 * 127 * 2 * 63 * 255 * 16 = 9.8e8. Q5_K: 2.02e9. A Q6_K sum has 4 pairs:
 * 63 * 127 * 2 * 128 * 255 * 4 = 2.09e9. All are below 2^31 = 2.147e9.
 */
#include "internal.h"

#if defined(__x86_64__)

#include "avx512_internal.h"

#define AHEAD 4096 /* bytes that are fetched before their block is due, across the ends of rows */

AVX512_INLINE void fetch_ahead(const uint8_t *block, const int bytes) {
    for (int at = 0; at < bytes; at += 64)
        _mm_prefetch((const char *)block + AHEAD + at, _MM_HINT_T0);
}

AVX512_INLINE __m256i pairs(__m256i u, const int8_t *q) {
    return _mm256_maddubs_epi16(u, load256(q));
}

/* Eight sums of eight: register i holds the parts of sum i. */
AVX512_INLINE __m256 sums_of_eight(const __m256 v[8]) {
    __m256 a = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    __m256 b = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}

/* Q4_K, Q5_K; the parts of one row's sum. */
AVX512_INLINE __m256 row_by_32(const int type, const uint8_t *b, const activations *a) {
    const int bytes = type == T_Q5_K ? 176 : 144;
    const uint8_t *end = b + a->k / SUPER * bytes;
    const int8_t *q = a->q;
    const float *s32 = a->s32, *d256 = a->d256;
    const int16_t *steps = a->steps;
    /* The head: two halves, then the words of six_bit_pairs. */
    const __m128i words = _mm_setr_epi8(4, 5, 6, 7, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m128i tops = _mm_setr_epi8(-1, -1, -1, -1, 4, 5, 6, 7, -1, -1, -1, -1, 8, 9, 10, 11);
    const __m128i masks = _mm_setr_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f);
    __m256 sum = _mm256_setzero_ps(), offsets = _mm256_setzero_ps();
    for (; b < end; b += bytes, q += SUPER, s32 += 8, steps += 8, d256++) {
        int32_t twice[8] __attribute__((aligned(32)));
        fetch_ahead(b, bytes);
        __m128i head = _mm_loadu_si128((const __m128i *)b);
        __m128 factors = _mm_cvtph_ps(head);
        __m128i low = _mm_srlv_epi32(_mm_shuffle_epi8(head, words), _mm_setr_epi32(0, 0, 0, 4));
        __m128i high = _mm_srli_epi16(_mm_shuffle_epi8(head, tops), 2);
        __m128i both = _mm_or_si128(_mm_and_si128(low, masks),
                                    _mm_and_si128(high, _mm_set1_epi8(0x30)));
        __m128i scales = _mm_mullo_epi16(_mm_cvtepu8_epi16(both),
                                         _mm_loadu_si128((const __m128i *)steps));
        _mm_store_si128((__m128i *)twice, _mm_unpacklo_epi16(scales, scales));
        _mm_store_si128((__m128i *)twice + 1, _mm_unpackhi_epi16(scales, scales));
        __m256 mins = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(both, 8)));
        offsets = _mm256_fmadd_ps(_mm256_mul_ps(mins, _mm256_loadu_ps(s32)),
                                  _mm256_broadcastss_ps(_mm_movehdup_ps(factors)), offsets);
        const uint8_t *quants = b + (type == T_Q5_K ? 48 : 16);
        __m256i fifth = type == T_Q5_K ? load256(b + 16) : _mm256_setzero_si256();
        __m256i even = _mm256_setzero_si256(), odd = even;
#pragma GCC unroll 4
        for (int g = 0; g < 4; g++) {
            __m256i v = load256(quants + 32 * g), u0 = FIELD(v, 0, 15), u1 = FIELD(v, 4, 15);
            if (type == T_Q5_K) {
                u0 = _mm256_or_si256(u0, moved_bit(fifth, 2 * g, 4));
                u1 = _mm256_or_si256(u1, moved_bit(fifth, 2 * g + 1, 4));
            }
            even = _mm256_dpwssd_epi32(even, pairs(u0, q + 64 * g), _mm256_set1_epi32(twice[2 * g]));
            odd = _mm256_dpwssd_epi32(odd, pairs(u1, q + 64 * g + 32),
                                      _mm256_set1_epi32(twice[2 * g + 1]));
        }
        __m256 products = _mm256_cvtepi32_ps(_mm256_add_epi32(even, odd));
        __m128 scale = _mm_mul_ss(factors, _mm_load_ss(d256));
        sum = _mm256_fmadd_ps(products, _mm256_broadcastss_ps(scale), sum);
    }
    return _mm256_sub_ps(sum, offsets);
}

/* Q6_K. Its integers are 0 to 63, and 32 is subtracted through the sums of the activations. */
AVX512_INLINE __m256 row_q6(const uint8_t *b, const activations *a) {
    const uint8_t *end = b + a->k / SUPER * 210;
    const int8_t *q = a->q;
    const float *s16 = a->s16, *d256 = a->d256;
    const int16_t *steps = a->steps;
    const __m256i halves = _mm256_setr_epi16(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    __m256 sum = _mm256_setzero_ps();
    for (; b < end; b += 210, q += SUPER, s16 += 16, steps += 8, d256++) {
        fetch_ahead(b, 210);
        __m256i scales = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(b + 192)));
        __m256i step = _mm256_permutexvar_epi16(
            halves, _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)steps)));
        __m512 offsets = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi16_epi32(scales)),
                                       _mm512_loadu_ps(s16));
        scales = _mm256_mullo_epi16(scales, step);
        __m256 total = _mm256_setzero_ps();
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            __m256i low = load256(b + 64 * h), next = load256(b + 64 * h + 32);
            __m256i high = load256(b + 128 + 32 * h), u[4];
            u[0] = _mm256_or_si256(FIELD(low, 0, 15), _mm256_slli_epi16(FIELD(high, 0, 3), 4));
            u[1] = _mm256_or_si256(FIELD(next, 0, 15), _mm256_slli_epi16(FIELD(high, 2, 3), 4));
            u[2] = _mm256_or_si256(FIELD(low, 4, 15), FIELD(high, 0, 48));
            u[3] = _mm256_or_si256(FIELD(next, 4, 15), FIELD(high, 2, 48));
#pragma GCC unroll 2
            for (int j = 0; j < 2; j++) {
                __m256i part = _mm256_setzero_si256();
#pragma GCC unroll 2
                for (int i = 2 * j; i < 2 * j + 2; i++) {
                    const short s = (short)(8 * h + 2 * i), t = s + 1;
                    const __m256i pick =
                        _mm256_setr_epi16(s, s, s, s, s, s, s, s, t, t, t, t, t, t, t, t);
                    part = _mm256_dpwssd_epi32(part, pairs(u[i], q + 128 * h + 32 * i),
                                               _mm256_permutexvar_epi16(pick, scales));
                }
                total = _mm256_add_ps(total, _mm256_cvtepi32_ps(part));
            }
        }
        float d = half_at(b + 208);
        __m256 offset = _mm256_add_ps(_mm512_castps512_ps256(offsets),
                                      _mm512_extractf32x8_ps(offsets, 1));
        sum = _mm256_fmadd_ps(total, _mm256_set1_ps(d * *d256), sum);
        sum = _mm256_fmadd_ps(offset, _mm256_set1_ps(-32.0f * d), sum);
    }
    return sum;
}

AVX512_INLINE void some_rows(const int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                             const activations *a, float *y) {
    for (int r = 0; r < n_rows; r += 8) {
        __m256 parts[8];
        for (int i = 0; i < 8; i++) {
            const uint8_t *row = rows + (r + i) * row_bytes;
            if (r + i >= n_rows)
                parts[i] = _mm256_setzero_ps();
            else
                parts[i] = type == T_Q6_K ? row_q6(row, a) : row_by_32(type, row, a);
        }
        _mm256_storeu_ps(y + r, sums_of_eight(parts));
    }
}

AVX512 int ds4_avx512_rows_dot(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                               const activations *a, float *y) {
    switch (type) {
    case T_Q4_K: some_rows(T_Q4_K, rows, row_bytes, n_rows, a, y); return 1;
    case T_Q5_K: some_rows(T_Q5_K, rows, row_bytes, n_rows, a, y); return 1;
    case T_Q6_K: some_rows(T_Q6_K, rows, row_bytes, n_rows, a, y); return 1;
    default: return 0;
    }
}

#endif
