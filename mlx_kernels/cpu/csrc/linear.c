/* Products of float32 activations with packed weights: prepares the activations once, then shares
 * out weight rows among the threads.
 *
 * One activation row is multiplied row by row (row_dot), up to 16 by tiles of integers, more by
 * tiles of floats. Measured with one thread of a 2.4 GHz Zen 3, Q4_K [4096, 1536], milliseconds:
 *
 *     activation rows                       1     2     4     8    16    24    64   256
 *     row by row                         0.29  0.55  1.08  2.16  4.35
 *     tiles of integers                  0.35  0.41  0.50  0.75  1.23  1.74  4.5    18
 *     tiles of floats                    1.46  1.44  1.45  2.29  3.10  4.1   9.6    35
 *     dense float32 product by OpenBLAS                                6.0  10.9    36
 *
 * Integers stay faster, but round the activations: over the 512 recorded positions of the tests
 * they change the likeliest token at 2 % of them, and floats at none. So a long prompt takes
 * floats; a few positions take integers, because a person waits for them one by one.
 */
#include <math.h>
#include <stdlib.h>

#include "internal.h"
#include "pool.h"

/* Packed weights that a thread takes at once when decoding. Long runs read memory faster: 262144 gave
 * 29.1 GB/s with two threads, 65536 gave 27.3. Small matrices are cut finer, so that none waits. */
#define MOST_CHUNK_BYTES 262144
#define LEAST_CHUNK_BYTES 32768
#define CHUNKS_A_THREAD 4
#define ROW_RUN 256 /* rows of one matrix in a run when decoding: gates and ups take turns */
#define MAX_TILE_M 16     /* activation rows above which products are exact */

typedef struct {
    const ds4_linear_args *args;
    const ds4_matrix *matrices;
    const code_path *path;
    activations a;
    float *x;
    float *interleaved; /* as float_tile reads it */
    int8_t *q;
    float *d, *s32, *s16, *d256;
    int16_t *steps;
    int64_t m0, m;    /* the activation rows of this pass */
    int needs_quants; /* some matrix is packed integers */
    int needs_floats; /* some matrix holds floats, or the rows are normalised first */
    int method;       /* DS4_BY_... */
    int n_parts;      /* matrices shared out: all, or the one gate-and-up pair */
    int64_t chunk_rows[DS4_MAX_MATRICES], first_chunk[DS4_MAX_MATRICES + 1];
    int not_finite;
} linear_job;

/* One scratch buffer for the process; the pool's lock owns it. It only grows. */
static char *scratch;
static size_t scratch_bytes;

static int reserve_scratch(size_t bytes) {
    if (bytes <= scratch_bytes) return 1;
    char *grown = NULL;
    if (posix_memalign((void **)&grown, 64, bytes) != 0) return 0;
    free(scratch);
    scratch = grown;
    scratch_bytes = bytes;
    return 1;
}

static int all_finite(const float *x, int64_t k) {
    uint32_t top = 0;
    for (int64_t i = 0; i < k; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        bits &= 0x7fffffffu;
        top = bits > top ? bits : top;
    }
    return top < 0x7f800000u;
}

/* Writes row j of block `block` of the float tiles; zeros if x is NULL. */
static void interleave(const linear_job *job, int64_t block, int j, const float *x) {
    const int64_t k = job->a.k, m = whole_blocks(job->m);
    for (int64_t at = 0; at < k; at += SUPER) {
        const int64_t n = k - at < SUPER ? k - at : SUPER;
        float *to = job->interleaved + at * m + block * FLOAT_ROWS * n + j;
        for (int64_t c = 0; c < n; c++) to[c * FLOAT_ROWS] = x ? x[at + c] : 0.0f;
    }
}

/* Prepares a block of FLOAT_ROWS activation rows: the norm, then rounding or interleaving. */
static void prepare_chunk(void *context, int64_t chunk) {
    linear_job *job = context;
    const ds4_linear_args *args = job->args;
    const int64_t k = job->a.k;
    const int is_exact = job->method == DS4_BY_FLOATS;
    for (int j = 0; j < FLOAT_ROWS; j++) {
        const int64_t i = chunk * FLOAT_ROWS + j;
        int finite;
        if (i >= job->m) {
            if (is_exact) interleave(job, chunk, j, NULL);
            continue;
        }
        const float *x = args->x + (job->m0 + i) * args->x_stride;
        if (args->norm) {
            job->path->rms_norm(x, args->norm, args->eps, k, job->x + i * k);
            x = job->x + i * k;
        } else if (job->needs_floats && !is_exact) {
            memcpy(job->x + i * k, x, sizeof(float) * (size_t)k);
        }
        if (job->needs_quants && !is_exact)
            finite = job->path->quantise(x, k, job->q + i * k, job->d + i * (k / 32),
                                         job->s32 + i * (k / 32), job->s16 + i * (k / 16),
                                         job->steps + i * (k / 32), job->d256 + i * (k / SUPER));
        else
            finite = all_finite(x, k);
        if (!finite) __atomic_store_n(&job->not_finite, 1, __ATOMIC_RELAXED);
        if (is_exact) interleave(job, chunk, j, x);
    }
}

/* gate = silu(gate) * up. The exponential is that of -|gate|, which cannot overflow. */
static void gate_row(const linear_job *job, const float *gate, const float *up, int n, float *out) {
    float e[ROW_RUN];
    for (int r = 0; r < n; r++) e[r] = -fabsf(gate[r]);
    job->path->exp_row(e, n, 0.0f);
    for (int r = 0; r < n; r++) out[r] = gate[r] * (gate[r] < 0 ? e[r] : 1.0f) / (1.0f + e[r]) * up[r];
}

/* y: [m, TILE_ROWS] = n_rows rows of one matrix, from row `row`, times all activation rows. */
static void product(const linear_job *job, const ds4_matrix *w, int64_t row, int n_rows, float *y) {
    int64_t bytes = row_bytes_of(w->type, w->cols);
    const uint8_t *data = (const uint8_t *)w->data + row * bytes;
    if (job->method == DS4_BY_FLOATS) {
        job->path->float_tile(w->type, data, bytes, n_rows, job->interleaved, w->cols, job->m, y);
    } else if (job->method == DS4_BY_ROWS && job->m == 1 && job->path->rows_dot &&
               job->path->rows_dot(w->type, data, bytes, n_rows, &job->a, y)) {
        /* done */
    } else if (job->method == DS4_BY_ROWS) {
        for (int r = 0; r < n_rows; r++)
            for (int64_t i = 0; i < job->m; i++)
                y[i * TILE_ROWS + r] =
                    job->path->row_dot(w->type, data + r * bytes, &job->a, i);
    } else {
        job->path->tile(w->type, data, bytes, n_rows, &job->a, job->m, y);
    }
    if (job->args->bias) {
        const float *bias = job->args->bias + w->first_output + row;
        for (int64_t i = 0; i < job->m; i++)
            for (int r = 0; r < n_rows; r++) y[i * TILE_ROWS + r] += bias[r];
    }
}

static void multiply_chunk(void *context, int64_t chunk) {
    const linear_job *job = context;
    const ds4_linear_args *args = job->args;
    float y[MAX_M * TILE_ROWS], up[MAX_M * TILE_ROWS];
    int part = 0;
    while (chunk >= job->first_chunk[part + 1]) part++;
    const ds4_matrix *w = job->matrices + part;
    int64_t row = (chunk - job->first_chunk[part]) * job->chunk_rows[part];
    int64_t end = row + job->chunk_rows[part] < w->rows ? row + job->chunk_rows[part] : w->rows;
    const int run = job->method == DS4_BY_ROWS && job->m == 1 ? ROW_RUN : TILE_ROWS;
    for (; row < end; row += run) {
        int n_rows = end - row < run ? (int)(end - row) : run;
        product(job, w, row, n_rows, y);
        if (args->gated) product(job, w + 1, row, n_rows, up);
        for (int64_t i = 0; i < job->m; i++) {
            const int64_t at = (job->m0 + i) * args->outputs + w->first_output + row;
            const float *from = y + i * TILE_ROWS;
            float *out = args->out + at;
            if (args->gated) {
                gate_row(job, from, up + i * TILE_ROWS, n_rows, out);
            } else if (args->residual) {
                for (int r = 0; r < n_rows; r++) out[r] = args->residual[at + r] + from[r];
            } else {
                for (int r = 0; r < n_rows; r++) out[r] = from[r];
            }
        }
    }
}

/* Splits the rows of every matrix into chunks, in multiples of a tile. */
static void plan_chunks(linear_job *job) {
    const ds4_matrix *matrices = job->matrices;
    int64_t chunk_bytes = 0;
    for (int p = 0; p < job->n_parts; p++)
        chunk_bytes += row_bytes_of(matrices[p].type, matrices[p].cols) * matrices[p].rows;
    chunk_bytes /= CHUNKS_A_THREAD * pool_threads();
    if (chunk_bytes < LEAST_CHUNK_BYTES) chunk_bytes = LEAST_CHUNK_BYTES;
    if (chunk_bytes > MOST_CHUNK_BYTES) chunk_bytes = MOST_CHUNK_BYTES;
    job->first_chunk[0] = 0;
    for (int p = 0; p < job->n_parts; p++) {
        const ds4_matrix *w = matrices + p;
        int64_t bytes = row_bytes_of(w->type, w->cols) * TILE_ROWS;
        int64_t tiles = job->method == DS4_BY_ROWS && bytes < chunk_bytes ? chunk_bytes / bytes : 1;
        job->chunk_rows[p] = tiles * TILE_ROWS;
        job->first_chunk[p + 1] =
            job->first_chunk[p] + (w->rows + job->chunk_rows[p] - 1) / job->chunk_rows[p];
    }
}

/* Carves the activation arrays out of the scratch buffer. */
static int place_activations(linear_job *job, int64_t m, int64_t k) {
    m = whole_blocks(m);
    size_t floats = (size_t)(m * k); /* of job->x */
    size_t others = job->method == DS4_BY_FLOATS ? floats * 4
                                                 : (size_t)(m * (k / 32 * 4 + k / SUPER)) * 4 +
                                                       (size_t)(m * (k / 32)) * 2 + floats;
    if (!reserve_scratch(floats * 4 + others + 64)) return 0;
    job->x = (float *)scratch;
    job->interleaved = job->d = job->x + floats;
    job->s32 = job->d + m * (k / 32);
    job->s16 = job->s32 + m * (k / 32);
    job->d256 = job->s16 + m * (k / 16);
    job->steps = (int16_t *)(job->d256 + m * (k / SUPER));
    job->q = (int8_t *)(job->steps + m * (k / 32));
    job->a = (activations){job->x,   job->q,     job->d,    job->s32,
                           job->s16, job->steps, job->d256, k};
    return 1;
}

int ds4_linear(const ds4_linear_args *args, const ds4_matrix *matrices) {
    linear_job job = {.args = args, .matrices = matrices, .path = ds4_path()};
    const int64_t k = matrices[0].cols;
    job.n_parts = args->gated ? 1 : args->n_matrices;
    for (int i = 0; i < args->n_matrices; i++)
        *(is_float_type(matrices[i].type) ? &job.needs_floats : &job.needs_quants) = 1;
    job.method = args->method      ? args->method
                 : args->m == 1    ? DS4_BY_ROWS
                 : args->m <= MAX_TILE_M ? DS4_BY_TILES
                                   : DS4_BY_FLOATS;
    pool_lock();
    int64_t pass = args->m < MAX_M ? args->m : MAX_M;
    if (!place_activations(&job, pass, k)) {
        pool_unlock();
        return DS4_NO_MEMORY;
    }
    for (job.m0 = 0; job.m0 < args->m && !job.not_finite; job.m0 += pass) {
        job.m = args->m - job.m0 < pass ? args->m - job.m0 : pass;
        pool_run(prepare_chunk, &job, whole_blocks(job.m) / FLOAT_ROWS);
        if (job.not_finite) break;
        plan_chunks(&job);
        pool_run(multiply_chunk, &job, job.first_chunk[job.n_parts]);
    }
    pool_unlock();
    return job.not_finite ? DS4_NOT_FINITE : DS4_OK;
}
