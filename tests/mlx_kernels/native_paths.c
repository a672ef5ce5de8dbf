/* Compares a code path with the portable one on random weights of every format.
 *
 * usage: native_paths PATH. Exits 0 if the path exists and agrees. Runs under an emulator for
 * processors that the tests' machine does not have.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "internal.h"

enum { COLS = 512, ROWS = 21, M = 8, HEADS = 4, KV_HEADS = 2, DIM = 64, N_KV = 300 };

static const int TYPES[] = {T_F32,  T_F16,  T_BF16, T_Q4_0, T_Q4_1, T_Q5_0, T_Q5_1,
                            T_Q8_0, T_Q2_K, T_Q3_K, T_Q4_K, T_Q5_K, T_Q6_K,
                            T_IQ2_XXS, T_MXFP4};

static uint16_t small_half(void) { return (uint16_t)(0x2000 + rand() % 512); } /* about 0.008 */

/* Random bits everywhere, small finite numbers where a format keeps floats. */
static uint8_t *random_weights(int type) {
    int64_t n_bytes = ROWS * row_bytes_of(type, COLS), block = ds4_block_bytes(type);
    uint8_t *w = malloc((size_t)n_bytes);
    for (int64_t i = 0; i < n_bytes; i++) w[i] = (uint8_t)(rand() >> 5);
    for (uint8_t *b = w; b < w + n_bytes; b += block) {
        uint16_t half = small_half();
        uint32_t word = 0x3c000000u + (uint32_t)(rand() % 0x800000);
        switch (type) {
        case T_F32: memcpy(b, &word, 4); break;
        case T_BF16: memcpy(b, (char *)&word + 2, 2); break; /* upper half, little-endian */
        case T_Q2_K: memcpy(b + 80, &half, 2); memcpy(b + 82, &half, 2); break;
        case T_Q3_K: memcpy(b + 108, &half, 2); break;
        case T_Q6_K: memcpy(b + 208, &half, 2); break;
        case T_MXFP4: b[0] = (uint8_t)(118 + rand() % 4); break;
        case T_Q4_1: case T_Q5_1: case T_Q4_K: case T_Q5_K: memcpy(b + 2, &half, 2); /* fallthrough */
        default: memcpy(b, &half, 2);
        }
    }
    return w;
}

static void fill(float *x, int n) {
    for (int i = 0; i < n; i++) x[i] = (float)(rand() % 2001 - 1000) / 500.0f;
}

static int differs(const char *what, int type, const float *a, const float *b, int n) {
    double error = 0, size = 0;
    for (int i = 0; i < n; i++) {
        if (!(fabs(a[i] - b[i]) <= error)) error = fabs(a[i] - b[i]);
        if (fabs(a[i]) > size) size = fabs(a[i]);
    }
    /* The integers are the same; only float32 additions come in another order. */
    if (error <= 4e-6 * size) return 0;
    printf("%s of type %d: off by %g of %g\n", what, type, error, size);
    return 1;
}

int main(int argc, char **argv) {
    const char *paths[2] = {"portable", argc > 1 ? argv[1] : "auto"};
    static float x[M * COLS], y[2][M * ROWS], q[M * HEADS * DIM], mixed[2][M * HEADS * DIM];
    static uint16_t cache[KV_HEADS * N_KV * DIM];
    int wrong = 0;
    ds4_set_threads(2);
    for (size_t i = 0; i < sizeof TYPES / sizeof *TYPES; i++) {
        uint8_t *w = random_weights(TYPES[i]);
        fill(x, M * COLS);
        for (int way = DS4_BY_ROWS; way <= DS4_BY_FLOATS; way++) {
            const int m = way == DS4_BY_ROWS ? 1 : M;
            for (int p = 0; p < 2; p++) {
                ds4_matrix matrix = {w, ROWS, COLS, 0, TYPES[i], 0};
                ds4_linear_args args = {.x = x, .out = y[p], .m = m, .x_stride = COLS,
                                        .outputs = ROWS, .n_matrices = 1, .method = way};
                if (ds4_set_path(paths[p]) || ds4_linear(&args, &matrix)) return 2;
            }
            wrong |= differs("product", TYPES[i], y[0], y[1], m * ROWS);
        }
        free(w);
    }
    for (int i = 0; i < KV_HEADS * N_KV * DIM; i++) cache[i] = small_half() + 0x1800;
    fill(q, M * HEADS * DIM);
    for (int m = 1; m <= M; m += M - 1) {
        for (int p = 0; p < 2; p++) {
            ds4_attention_args args = {
                .q = q, .keys = cache, .values = cache, .out = mixed[p], .m = m,
                .n_heads = HEADS, .n_kv_heads = KV_HEADS, .dim = DIM, .n_kv = N_KV,
                .position_stride = DIM, .head_stride = N_KV * DIM, .scale = 0.125f, .half = 1};
            if (ds4_set_path(paths[p]) || ds4_attention(&args)) return 2;
        }
        wrong |= differs("attention", 0, mixed[0], mixed[1], m * HEADS * DIM);
    }
    return wrong;
}
