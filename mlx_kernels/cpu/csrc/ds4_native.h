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

#if defined(__GNUC__) /* everything else stays inside the library */
#define DS4_API __attribute__((visibility("default")))
#else
#define DS4_API
#endif

#define DS4_OK 0
#define DS4_NOT_FINITE 1 /* an activation is NaN or infinite; outputs are unspecified */
#define DS4_NO_MEMORY 2  /* the scratch buffer could not grow; outputs are untouched */
#define DS4_NO_PATH 3    /* this machine cannot run the requested code path */

#define DS4_MAX_MATRICES 64
#define DS4_MAX_GROUP 64 /* most query heads that share a key head in ds4_attention */

/* Changes whenever a signature or a struct below changes; the loader compares it. */
#define DS4_INTERFACE 3

/* Ways to multiply (linear.c). The first two round activations to 8 bits, the last one does not. */
#define DS4_BY_ROWS 1
#define DS4_BY_TILES 2
#define DS4_BY_FLOATS 3

/* One packed weight. Several of the same width may be stacked: they read the same activations,
 * and each writes its own columns of the output. */
typedef struct {
    const void *data;     /* first block of the first row */
    int64_t rows;
    int64_t cols;
    int64_t first_output; /* column of the output, bias and residual where its rows begin */
    int32_t type;         /* GGUF tensor type number */
    int32_t reserved;
} ds4_matrix;

typedef struct {
    const float *x;        /* [m, cols] with row stride x_stride */
    const float *norm;     /* [cols] RMS-norm weight applied to x first, or NULL */
    const float *bias;     /* [outputs], or NULL */
    const float *residual; /* [m, outputs] added to the product, or NULL */
    float *out;            /* [m, outputs], contiguous like residual; may be residual itself */
    int64_t m;
    int64_t x_stride;
    int64_t outputs;       /* sum of the matrices' rows; half of it if gated */
    float eps;             /* RMS-norm epsilon */
    int32_t gated;         /* 1: matrices 0 and 1 are gate and up, and out = silu(gate) * up */
    int32_t n_matrices;    /* at most DS4_MAX_MATRICES */
    int32_t method;        /* DS4_BY_...; 0 chooses by m */
} ds4_linear_args;

/* Causal attention of m queries over the rows of a key/value cache (grouped-query layout). */
typedef struct {
    const float *q;   /* [m, n_heads, dim], contiguous */
    const void *keys; /* row t of head h at t * position_stride + h * head_stride */
    const void *values;
    float *out;       /* [m, n_heads, dim], contiguous */
    int64_t m;        /* query i sees cache rows 0 .. n_kv - m + i */
    int64_t n_heads, n_kv_heads, dim, n_kv;
    int64_t position_stride, head_stride; /* of keys and of values */
    const float *sinks; /* [n_heads] logits that take attention and give no value, or NULL */
    int64_t window;   /* a query sees at most this many rows, itself included; 0 = all */
    float scale;
    int32_t half;     /* 1: rows are float16; 0: float32 */
} ds4_attention_args;

DS4_API int ds4_interface(void);

/* out = x times each matrix transposed; prepares the activations once. */
DS4_API int ds4_linear(const ds4_linear_args *args, const ds4_matrix *matrices);

DS4_API int ds4_attention(const ds4_attention_args *args);

/* Threads that compute, the caller included; takes effect with the next call. */
DS4_API void ds4_set_threads(int n_threads);

/* Choose the code path by name ("avx512", "avx2", "neon", "portable"), or the best one with "auto". */
DS4_API int ds4_set_path(const char *name);
DS4_API const char *ds4_path_name(void);

#endif
