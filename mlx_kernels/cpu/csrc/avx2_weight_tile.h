/* AVX2: a slice of 16 packed weight rows, unpacked side by side. Both tile kernels start from it.
 *
 * For every four inputs (a step) the bytes of the 16 rows lie next to each other, so that a register
 * holds four inputs of 8 rows.
 */
#ifndef DS4_AVX2_WEIGHT_TILE_H
#define DS4_AVX2_WEIGHT_TILE_H

#include "avx2_unpack.h"

#define SLICE 1024 /* inputs of a tile: 16 KB of weights in a first-level cache of 32 KB */
#define SLICE_GROUPS (SLICE / GROUP)

typedef struct {
    uint8_t u[SLICE_GROUPS][8][TILE_ROWS][4] __attribute__((aligned(64))); /* [group][step] */
    float s[SLICE_GROUPS][2][TILE_ROWS] __attribute__((aligned(64)));      /* two runs of 16 */
    float o[SLICE_GROUPS][2][TILE_ROWS] __attribute__((aligned(64)));
} weight_tile;

/* Transposes 8 rows of 8 four-byte elements; column i goes to to + i * stride bytes. */
AVX2_INLINE void transpose_8x8(const __m256i r[8], uint8_t *to, int64_t stride) {
    __m256i pair[8], quad[8];
    for (int i = 0; i < 4; i++) {
        pair[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        pair[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        quad[4 * i] = _mm256_unpacklo_epi64(pair[4 * i], pair[4 * i + 2]);
        quad[4 * i + 1] = _mm256_unpackhi_epi64(pair[4 * i], pair[4 * i + 2]);
        quad[4 * i + 2] = _mm256_unpacklo_epi64(pair[4 * i + 1], pair[4 * i + 3]);
        quad[4 * i + 3] = _mm256_unpackhi_epi64(pair[4 * i + 1], pair[4 * i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_si256((__m256i *)(to + i * stride),
                            _mm256_permute2x128_si256(quad[i], quad[4 + i], 0x20));
        _mm256_storeu_si256((__m256i *)(to + (i + 4) * stride),
                            _mm256_permute2x128_si256(quad[i], quad[4 + i], 0x31));
    }
}

/* Unpacks 8 groups of 8 rows, from group g of the tile on, into its rows first .. first + 8. */
AVX2_INLINE void fill_eight(const int type, const uint8_t *const rows[8], int64_t offset,
                            weight_tile *t, int g, int first) {
    const int by16 = has_runs_of_16(type);
    __m256i u[8][8]; /* [row][group] */
    __m256 s[2][8], o[2][8];
    for (int r = 0; r < 8; r++) {
        if (by16) {
            __m256 s2[2], o2[2];
            unpack256_by_16(type, rows[r] + offset, u[r], s2, o2);
            for (int h = 0; h < 2; h++) {
                s[h][r] = s2[h];
                o[h][r] = o2[h];
            }
        } else if (type == T_Q4_K || type == T_Q5_K || type == T_IQ2_XXS) {
            unpack256_by_32(type, rows[r] + offset, u[r], &s[0][r], &o[0][r]);
        } else {
            unpack8x32(type, rows[r] + offset, u[r], &s[0][r], &o[0][r]);
        }
    }
    for (int i = 0; i < 8; i++) {
        __m256i column[8];
        for (int r = 0; r < 8; r++) column[r] = u[r][i];
        transpose_8x8(column, &t->u[g + i][0][first][0], TILE_ROWS * 4);
    }
    /* Eight scales of a row cover eight groups, or four groups of two runs each. */
    const int64_t stride = by16 ? sizeof t->s[0][0] : sizeof t->s[0];
    for (int h = 0; h < 1 + by16; h++) {
        transpose_8x8((const __m256i *)s[h], (uint8_t *)t->s[g + 4 * h][0] + 4 * first, stride);
        transpose_8x8((const __m256i *)o[h], (uint8_t *)t->o[g + 4 * h][0] + 4 * first, stride);
    }
}

/* The same for one group: rows of small blocks need not be a multiple of 8 groups long. */
AVX2_INLINE void fill_one(const int type, const uint8_t *const rows[8], int64_t offset,
                          weight_tile *t, int g, int first) {
    __m256i u[8];
    for (int r = 0; r < 8; r++)
        u[r] = unpack32(type, rows[r] + offset, &t->s[g][0][first + r], &t->o[g][0][first + r]);
    transpose_8x8(u, &t->u[g][0][first][0], TILE_ROWS * 4);
}

AVX2_INLINE void fill_half(const int type, const uint8_t *const rows[8], int n_groups,
                           weight_tile *t, int first) {
    const int is_small = ds4_block_values(type) == GROUP, bytes = ds4_block_bytes(type);
    int g = 0;
    for (; g + 8 <= n_groups; g += 8)
        fill_eight(type, rows, (int64_t)(is_small ? g : g / 8) * bytes, t, g, first);
    if (is_small)
        for (; g < n_groups; g++) fill_one(type, rows, (int64_t)g * bytes, t, g, first);
}

#endif
