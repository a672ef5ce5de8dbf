/* The interface between Python and the CPU kernels. Read this file first.
 *
 * The kernels multiply float32 activations with weights that stay in the packed blocks of a GGUF
 * file, so a model runs from its mapped file without an expanded copy. Python checks every shape,
 * type and length before a call (mlx_kernels/cpu/native.py); the functions here trust them.
 *
 * Weights are row-major: `rows` outputs, each a run of `cols` packed inputs. Activations are
 * float32 rows. All strides are counted in elements of the array they belong to.
 */
#ifndef DS4_NATIVE_H
#define DS4_NATIVE_H

#include <stdint.h>

#define DS4_OK 0
#define DS4_NOT_FINITE 1 /* an activation is NaN or infinite; outputs are unspecified */
#define DS4_NO_MEMORY 2  /* the scratch buffer could not grow; outputs are untouched */
#define DS4_NO_PATH 3    /* this machine cannot run the requested code path */

/* Changes whenever a signature or a struct below changes; the loader compares it. */
#define DS4_INTERFACE 1

/* One packed weight and the place its product goes to. */
typedef struct {
    const void *data;   /* first block of the first row */
    const float *bias;  /* [rows], or NULL */
    float *out;         /* [m, rows] with row stride out_stride */
    int64_t rows;
    int64_t cols;
    int64_t out_stride;
    int32_t type;       /* GGUF tensor type number */
    int32_t reserved;
} ds4_matrix;

/* What one call multiplies: the same activations with several matrices. */
typedef struct {
    const float *x;        /* [m, cols] with row stride x_stride */
    const float *norm;     /* [cols] RMS-norm weight applied to x first, or NULL */
    const float *residual; /* [m, rows] added to the first matrix's product, or NULL */
    int64_t m;
    int64_t x_stride;
    int64_t residual_stride;
    float eps;             /* RMS-norm epsilon */
    int32_t gated;         /* 1: matrices 0 and 1 are gate and up; out[0] = silu(gate) * up */
    int32_t n_matrices;
    int32_t direct_rows;   /* debug: largest m that multiplies row by row; -1 = measured default */
} ds4_linear_args;

/* Causal attention of m queries over the rows of a key/value cache (grouped-query layout). */
typedef struct {
    const float *q;   /* [m, n_heads, dim], contiguous */
    const void *keys; /* [n_kv, n_kv_heads, dim] with the two strides below */
    const void *values;
    float *out;       /* [m, n_heads, dim], contiguous */
    int64_t m;        /* query i sees cache rows 0 .. n_kv - m + i */
    int64_t n_heads, n_kv_heads, dim, n_kv;
    int64_t position_stride, head_stride; /* of keys and of values */
    int64_t window;   /* a query sees at most this many rows, itself included; 0 = all */
    float scale;
    int32_t half;     /* 1: rows are float16; 0: float32 */
} ds4_attention_args;

int ds4_interface(void);

/* Product of activations with each matrix; quantises the activations once. */
int ds4_linear(const ds4_linear_args *args, const ds4_matrix *matrices);

int ds4_attention(const ds4_attention_args *args);

/* Expand rows `ids` of a packed matrix to float32: out[i] = row ids[i]. */
int ds4_take_rows(const void *data, int32_t type, int64_t cols, const int64_t *ids, int64_t n_ids,
                  float *out);

/* Threads that compute, the caller included; takes effect with the next call. */
void ds4_set_threads(int n_threads);

/* Choose the code path by name ("avx2", "neon", "portable"), or the best one with "auto". */
int ds4_set_path(const char *name);
const char *ds4_path_name(void);

#endif
