/* What the C files share: packed formats, quantised activations, and the table of a code path. */
#ifndef DS4_INTERNAL_H
#define DS4_INTERNAL_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "ds4_native.h"

#define GROUP 32      /* values that share one activation scale */
#define SUPER 256     /* values of a K-type block */
#define MAX_STEPS 255 /* of an activation scale, in units of its run's; see activations */
#define TILE_ROWS 16  /* weight rows that a tile computes together */
#define FLOAT_ROWS 6  /* activation rows that lie interleaved for the float tiles */
#define MAX_M 516     /* activation rows of one pass, a multiple of 6; bounds the scratch memory */

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#else
#define INLINE static inline
#endif

enum { /* GGUF tensor type numbers */
    T_F32 = 0, T_F16 = 1, T_Q4_0 = 2, T_Q4_1 = 3, T_Q5_0 = 6, T_Q5_1 = 7, T_Q8_0 = 8,
    T_Q2_K = 10, T_Q3_K = 11, T_Q4_K = 12, T_Q5_K = 13, T_Q6_K = 14, T_IQ2_XXS = 16,
    T_BF16 = 30, T_MXFP4 = 39, T_END = 40
};

/* Activations of m rows, quantised per group: x = d * q, with |q| <= 127.
 * s32 and s16 hold d * sum(q) over runs of 32 and 16 values: a weight w = s * u + o with an
 * unsigned u then costs one integer product for s and one float product for the offset o. */
typedef struct {
    const float *x;   /* [m, k] after the norm; read by float weights only */
    const int8_t *q;  /* [m, k] */
    const float *d;   /* [m, k / 32] */
    const float *s32; /* [m, k / 32] */
    const float *s16; /* [m, k / 16] */
    /* Filled by the paths that have rows_dot: a whole run of SUPER values has one float scale, and
     * the scales of its groups are integer multiples of it, d = steps * d256. */
    const int16_t *steps; /* [m, k / 32] */
    const float *d256;    /* [m, k / 256] */
    int64_t k;
} activations;

/* One instruction set's version of the work. */
typedef struct {
    const char *name;
    /* Normalises one row in place of a copy: y = x * norm / rms(x). */
    void (*rms_norm)(const float *x, const float *norm, float eps, int64_t k, float *y);
    /* Fills one row of q, d, s32, s16, and perhaps steps and d256. Returns 0 when x holds NaN or
     * infinity. */
    int (*quantise)(const float *x, int64_t k, int8_t *q, float *d, float *s32, float *s16,
                    int16_t *steps, float *d256);
    /* One weight row times one activation row. */
    float (*row_dot)(int type, const uint8_t *row, const activations *a, int64_t m_idx);
    /* Weight rows times the first activation row; y has room for n_rows in whole eights. Returns
     * 0, and does nothing, for types whose rows go one by one. NULL: all do. */
    int (*rows_dot)(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                    const activations *a, float *y);
    /* n_rows <= TILE_ROWS weight rows times m activation rows; y: [m, TILE_ROWS]. */
    void (*tile)(int type, const uint8_t *rows, int64_t row_bytes, int n_rows,
                 const activations *a, int64_t m, float *y);
    /* The same without rounding; y has whole_blocks(m) rows. x is interleaved, so that it is read
     * from end to end: for each SUPER inputs, for each FLOAT_ROWS rows, [inputs, FLOAT_ROWS]. */
    void (*float_tile)(int type, const uint8_t *rows, int64_t row_bytes, int n_rows, const float *x,
                       int64_t k, int64_t m, float *y);
    void (*half_to_float)(const uint16_t *src, int64_t n, float *dst);
    /* scores[nq, nt] = q[nq, dim] . keys[nt, dim]; score rows are `score_stride` apart. */
    void (*scores)(const float *q, int nq, const float *keys, int nt, int dim, float *scores,
                   int score_stride);
    /* acc[nq, dim] += p[nq, nt] . values[nt, dim] */
    void (*mix)(const float *p, int p_stride, int nq, const float *values, int nt, int dim,
                float *acc);
    /* row[i] = exp(row[i] - top); returns the sum. */
    float (*exp_row)(float *row, int n, float top);
} code_path;

extern const code_path ds4_portable;
const code_path *ds4_avx512(void); /* NULL where the machine cannot run it */
const code_path *ds4_avx2(void);
const code_path *ds4_neon(void);
const code_path *ds4_path(void); /* the one in use */

/* Formats (formats.c). */
int ds4_block_values(int type);
int ds4_block_bytes(int type);
INLINE int64_t row_bytes_of(int type, int64_t cols) {
    return cols / ds4_block_values(type) * ds4_block_bytes(type);
}
/* m, rounded up to whole blocks of interleaved activation rows. */
INLINE int64_t whole_blocks(int64_t m) { return (m + FLOAT_ROWS - 1) / FLOAT_ROWS * FLOAT_ROWS; }
INLINE int is_float_type(int type) { return type == T_F32 || type == T_F16 || type == T_BF16; }
/* Formats whose integers have a sign; they have no offset. */
INLINE int is_signed_type(int type) {
    return type == T_Q8_0 || type == T_IQ2_XXS || type == T_MXFP4;
}
/* Formats with a scale for each 16 values; the others have one for each 32. */
INLINE int has_runs_of_16(int type) {
    return type == T_Q2_K || type == T_Q3_K || type == T_Q6_K;
}

/* Unpacks one block: value i is s[i / 16] * u[i] + o[i / 16]. u fits a signed byte for every
 * format. s and o have one entry for each 16 values. */
void ds4_unpack(int type, const uint8_t *block, int8_t *u, float *s, float *o);

/* The 256 octets of magnitudes that an IQ2_XXS byte stands for, value i in byte i. */
extern const uint64_t ds4_iq2_grid[256];

/* The eight signs that 7 bits stand for: bytes of 0xff where negative. The eighth is their parity:
 * an even number of the eight is negative. */
extern const uint64_t ds4_iq2_signs[128];

/* A power of two, 2^(e - 128): half the MXFP4 scale, for integers of twice the value. */
INLINE float mxfp4_scale(uint8_t e) {
    uint32_t bits = e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23; /* below: subnormal */
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Expands one row of any type to float32. */
void ds4_expand_row(int type, const uint8_t *row, int64_t cols, float *out);

INLINE uint16_t load_u16(const uint8_t *p) {
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}

INLINE uint32_t load_u32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}

/* float16 bits to float32 without hardware support, subnormals and infinities included. */
INLINE float half_bits(uint16_t h) {
    uint32_t magnitude = (uint32_t)(h & 0x7fffu) << 13, bits;
    float f;
    if (magnitude >= 0x0f800000u) { /* infinity or NaN: widen the exponent */
        bits = magnitude | 0x7f800000u;
        memcpy(&f, &bits, 4);
    } else { /* scaling by 2^112 moves the exponent bias and renormalises subnormals */
        memcpy(&f, &magnitude, 4);
        f *= 0x1p112f;
        memcpy(&bits, &f, 4);
    }
    bits |= (uint32_t)(h & 0x8000u) << 16;
    memcpy(&f, &bits, 4);
    return f;
}

INLINE float bfloat_bits(uint16_t h) {
    uint32_t bits = (uint32_t)h << 16;
    float f;
    memcpy(&f, &bits, 4);
    return f;
}

/* Six-bit scales and mins of Q4_K and Q5_K, four bytes at a time: out[0..7] scales, [8..15] mins.
 * Bytes 0-3 and 4-7 hold the low six bits of entries 0-3; their two top bits and the nibbles of
 * bytes 8-11 make up entries 4-7. */
INLINE void six_bit_pairs(const uint8_t *p, uint8_t out[16]) {
    uint32_t a = load_u32(p), b = load_u32(p + 4), c = load_u32(p + 8), w[4];
    w[0] = a & 0x3f3f3f3fu;
    w[1] = (c & 0x0f0f0f0fu) | ((a >> 2) & 0x30303030u);
    w[2] = b & 0x3f3f3f3fu;
    w[3] = ((c >> 4) & 0x0f0f0f0fu) | ((b >> 2) & 0x30303030u);
    memcpy(out, w, 16);
}

/* Six-bit scales of Q3_K, still biased by 32: nibbles in bytes 0-7, two top bits in bytes 8-11. */
INLINE void six_bit_scales(const uint8_t *p, uint8_t out[16]) {
    uint32_t a = load_u32(p), b = load_u32(p + 4), c = load_u32(p + 8), w[4];
    w[0] = (a & 0x0f0f0f0fu) | ((c << 4) & 0x30303030u);
    w[1] = (b & 0x0f0f0f0fu) | ((c << 2) & 0x30303030u);
    w[2] = ((a >> 4) & 0x0f0f0f0fu) | (c & 0x30303030u);
    w[3] = ((b >> 4) & 0x0f0f0f0fu) | ((c >> 2) & 0x30303030u);
    memcpy(out, w, 16);
}

#endif
