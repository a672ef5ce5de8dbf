/* The code path for 64-bit ARM: the portable loops with the vector dot product of the machine. */
#include "internal.h"

#if defined(__aarch64__)

#include <arm_neon.h>

#include "float_kernels.h"
#include "portable_body.h"

#if defined(__linux__)
#include <sys/auxv.h>
#define HAS_DOTPROD ((getauxval(AT_HWCAP) >> 20) & 1) /* HWCAP_ASIMDDP */
#elif defined(__APPLE__)
#define HAS_DOTPROD 1 /* every Apple chip that runs a 64-bit macOS has it */
#else
#define HAS_DOTPROD 0
#endif

/* Clang before 16 declares the dot intrinsics only where the whole file may use them. */
#if defined(__ARM_FEATURE_DOTPROD)
#define DOTPROD
#elif defined(__clang__) && __clang_major__ >= 16
#define DOTPROD __attribute__((target("dotprod")))
#elif !defined(__clang__)
#define DOTPROD __attribute__((target("arch=armv8.2-a+dotprod")))
#endif

/* 16 products as four sums: the form that the dot instruction yields. */
#if defined(DOTPROD)
DOTPROD INLINE int32x4_t products_dotprod(const int8_t *u, const int8_t *q) {
    return vdotq_s32(vdupq_n_s32(0), vld1q_s8(u), vld1q_s8(q));
}
#endif

INLINE int32x4_t products_plain(const int8_t *u, const int8_t *q) {
    int8x16_t a = vld1q_s8(u), b = vld1q_s8(q);
    int16x8_t low = vmull_s8(vget_low_s8(a), vget_low_s8(b)), high = vmull_high_s8(a, b);
    return vaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)); /* widened before they are added */
}

/* One weight row times activation rows m0 .. m0 + m, unpacked once for all of them. The body is a
 * macro because each copy must carry the instruction set of its products. */
#define ROWS(name, attribute, products)                                                        \
    attribute static void name(int type, const uint8_t *row, const activations *a, int64_t m0, \
                               int64_t m, float *y, int64_t y_stride) {                        \
        const int values = ds4_block_values(type), bytes = ds4_block_bytes(type);              \
        const int64_t k = a->k;                                                                \
        int8_t u[SUPER];                                                                       \
        float s[16], o[16];                                                                    \
        for (int64_t i = 0; i < m; i++) y[i * y_stride] = 0;                                   \
        for (int64_t at = 0; at < k; at += values, row += bytes) {                             \
            ds4_unpack(type, row, u, s, o);                                                    \
            for (int64_t i = 0; i < m; i++) {                                                  \
                const int8_t *q = a->q + (m0 + i) * k + at;                                    \
                const float *d = a->d + ((m0 + i) * k + at) / 32;                              \
                const float *sums = a->s16 + ((m0 + i) * k + at) / 16;                         \
                float32x4_t acc[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};                         \
                float offsets = 0;                                                             \
                for (int r = 0; r < values / 16; r++) {                                        \
                    float32x4_t p = vcvtq_f32_s32(products(u + 16 * r, q + 16 * r));           \
                    acc[r & 1] = vfmaq_n_f32(acc[r & 1], p, s[r] * d[r / 2]);                  \
                    offsets += o[r] * sums[r];                                                 \
                }                                                                              \
                y[i * y_stride] += vaddvq_f32(vaddq_f32(acc[0], acc[1])) + offsets;            \
            }                                                                                  \
        }                                                                                      \
    }

ROWS(rows_plain, , products_plain)
#if defined(DOTPROD)
ROWS(rows_dotprod, DOTPROD, products_dotprod)
#else
#define rows_dotprod rows_plain
#endif

static int has_dotprod;

static void rows(int type, const uint8_t *row, const activations *a, int64_t m0, int64_t m,
                 float *y, int64_t y_stride) {
    if (is_float_type(type))
        float_rows_body(type, row, a, m0, m, y, y_stride);
    else if (has_dotprod)
        rows_dotprod(type, row, a, m0, m, y, y_stride);
    else
        rows_plain(type, row, a, m0, m, y, y_stride);
}

static float row_dot(int type, const uint8_t *row, const activations *a, int64_t m_idx) {
    float y;
    rows(type, row, a, m_idx, 1, &y, 1);
    return y;
}

static void tile(int type, const uint8_t *data, int64_t row_bytes, int n_rows,
                 const activations *a, int64_t m, float *y) {
    for (int r = 0; r < n_rows; r++) rows(type, data + r * row_bytes, a, 0, m, y + r, TILE_ROWS);
}

static void half_to_float(const uint16_t *src, int64_t n, float *dst) {
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        vst1q_f32(dst + i, vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(src + i))));
    for (; i < n; i++) dst[i] = half_bits(src[i]);
}

static code_path neon_path;

const code_path *ds4_neon(void) {
    if (!neon_path.name) {
        has_dotprod = HAS_DOTPROD;
        neon_path = ds4_portable; /* the plain float loops already become vector code here */
        neon_path.row_dot = row_dot;
        neon_path.tile = tile;
        neon_path.half_to_float = half_to_float;
        neon_path.name = "neon";
    }
    return &neon_path;
}

#else

const code_path *ds4_neon(void) { return NULL; }

#endif
