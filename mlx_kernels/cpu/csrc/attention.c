/* Causal attention over a key/value cache, computed block by block with a running softmax.
 *
 * The queries of one position that share a key head (grouped-query attention) are handled
 * together, so every cache row is read and widened once for all of them. One query position is
 * also split along the cache, because few key heads would otherwise leave threads idle; the
 * pieces are joined by their maxima and sums.
 */
#include <math.h>
#include <stdlib.h>

#include "internal.h"
#include "pool.h"

#define BLOCK_T 64   /* cache rows of a step: 64 x 128 floats fill a first-level cache */
#define MAX_QUERIES DS4_MAX_GROUP /* query rows of a chunk */
#define PIECE_T 256  /* cache rows of a piece when one position is split */

typedef struct {
    const ds4_attention_args *args;
    const code_path *path;
    int64_t group, positions, n_blocks, n_pieces;
    float *partial; /* [n_heads, n_pieces, dim + 2]: sum of values, maximum, sum of weights */
    int failed;
} attention_job;

/* Widens cache rows t0 .. t0 + nt of one head to float32, [nt, dim]. */
static void load_rows(const attention_job *job, const void *rows, int64_t head, int64_t t0, int nt,
                      float *out) {
    const ds4_attention_args *args = job->args;
    for (int t = 0; t < nt; t++) {
        int64_t at = (t0 + t) * args->position_stride + head * args->head_stride;
        if (args->half)
            job->path->half_to_float((const uint16_t *)rows + at, args->dim, out + t * args->dim);
        else
            memcpy(out + t * args->dim, (const float *)rows + at, sizeof(float) * args->dim);
    }
}

/* Lane by lane: a single running maximum would wait for every comparison. */
static float largest(const float *row, int n, float start) {
    float part[8];
    int i = 0;
    for (int j = 0; j < 8; j++) part[j] = start;
    for (; i + 8 <= n; i += 8)
        for (int j = 0; j < 8; j++) part[j] = row[i + j] > part[j] ? row[i + j] : part[j];
    for (; i < n; i++) part[0] = row[i] > part[0] ? row[i] : part[0];
    for (int j = 1; j < 8; j++) part[0] = part[j] > part[0] ? part[j] : part[0];
    return part[0];
}

/* Adds a weight without a value to a running softmax. */
static void add_sink(float sink, float *top, float *total, float *acc, int64_t dim) {
    float best = sink > *top ? sink : *top;
    float shrink = *top == -INFINITY ? 0.0f : expf(*top - best);
    *total = *total * shrink + expf(sink - best);
    *top = best;
    for (int64_t c = 0; c < dim; c++) acc[c] *= shrink;
}

static void attention_chunk(void *context, int64_t chunk) {
    attention_job *job = context;
    const ds4_attention_args *args = job->args;
    const int64_t dim = args->dim, group = job->group;
    int64_t piece = chunk % job->n_pieces, rest = chunk / job->n_pieces;
    int64_t block = rest % job->n_blocks, head = rest / job->n_blocks;
    int64_t first = block * job->positions;
    int64_t n_pos = args->m - first < job->positions ? args->m - first : job->positions;
    int nq = (int)(n_pos * group);
    float top[MAX_QUERIES], total[MAX_QUERIES], scores[MAX_QUERIES * BLOCK_T];
    float *buffer = malloc(sizeof(float) * (size_t)dim * (2 * MAX_QUERIES + BLOCK_T));
    if (!buffer) {
        __atomic_store_n(&job->failed, 1, __ATOMIC_RELAXED);
        return;
    }
    float *q = buffer, *acc = q + MAX_QUERIES * dim, *rows = acc + MAX_QUERIES * dim;
    for (int i = 0; i < nq; i++) {
        const float *from =
            args->q + ((first + i / group) * args->n_heads + head * group + i % group) * dim;
        for (int64_t c = 0; c < dim; c++) q[i * dim + c] = from[c] * args->scale;
        top[i] = -INFINITY;
        total[i] = 0;
    }
    memset(acc, 0, sizeof(float) * (size_t)(nq * dim));
    int64_t past = args->n_kv - args->m; /* rows before the first query's own */
    int64_t begin = args->window ? past + first + 1 - args->window : 0, end = past + first + n_pos;
    if (begin < 0) begin = 0;
    if (job->n_pieces > 1) {
        begin = begin > piece * PIECE_T ? begin : piece * PIECE_T;
        end = end < (piece + 1) * PIECE_T ? end : (piece + 1) * PIECE_T;
    }
    for (int64_t t0 = begin; t0 < end; t0 += BLOCK_T) {
        int nt = (int)(end - t0 < BLOCK_T ? end - t0 : BLOCK_T);
        load_rows(job, args->keys, head, t0, nt, rows);
        job->path->scores(q, nq, rows, nt, (int)dim, scores, BLOCK_T);
        for (int i = 0; i < nq; i++) {
            float *row = scores + i * BLOCK_T, best = top[i];
            int64_t position = past + first + i / group;
            int seen = position + 1 - t0 < nt ? (int)(position + 1 - t0) : nt;
            int hidden = args->window && position + 1 - args->window > t0
                             ? (int)(position + 1 - args->window - t0) : 0;
            if (hidden > nt) hidden = nt;
            if (seen < hidden) seen = hidden;
            for (int t = 0; t < hidden; t++) row[t] = 0;
            for (int t = seen; t < nt; t++) row[t] = 0;
            if (seen == hidden) continue;
            best = largest(row + hidden, seen - hidden, best);
            float shrink = top[i] == -INFINITY ? 0.0f : expf(top[i] - best);
            float sum = job->path->exp_row(row + hidden, seen - hidden, best);
            total[i] = total[i] * shrink + sum;
            top[i] = best;
            if (shrink != 1.0f)
                for (int64_t c = 0; c < dim; c++) acc[i * dim + c] *= shrink;
        }
        load_rows(job, args->values, head, t0, nt, rows);
        job->path->mix(scores, BLOCK_T, nq, rows, nt, (int)dim, acc);
    }
    for (int i = 0; i < nq; i++) {
        int64_t q_head = head * group + i % group;
        if (args->sinks && piece == 0) /* a sink joins once, with the first piece */
            add_sink(args->sinks[q_head], top + i, total + i, acc + i * dim, dim);
        if (job->n_pieces > 1) {
            float *to = job->partial + (q_head * job->n_pieces + piece) * (dim + 2);
            memcpy(to, acc + i * dim, sizeof(float) * (size_t)dim);
            to[dim] = top[i];
            to[dim + 1] = total[i];
        } else {
            float *to = args->out + ((first + i / group) * args->n_heads + q_head) * dim;
            for (int64_t c = 0; c < dim; c++) to[c] = acc[i * dim + c] / total[i];
        }
    }
    free(buffer);
}

/* Joins the pieces of one position. */
static void join_pieces(const attention_job *job) {
    const ds4_attention_args *args = job->args;
    const int64_t dim = args->dim, n = job->n_pieces;
    for (int64_t head = 0; head < args->n_heads; head++) {
        const float *pieces = job->partial + head * n * (dim + 2);
        float *to = args->out + head * dim, top = -INFINITY, total = 0;
        for (int64_t p = 0; p < n; p++)
            top = pieces[p * (dim + 2) + dim] > top ? pieces[p * (dim + 2) + dim] : top;
        memset(to, 0, sizeof(float) * (size_t)dim);
        for (int64_t p = 0; p < n; p++) {
            const float *piece = pieces + p * (dim + 2);
            float weight = expf(piece[dim] - top);
            total += weight * piece[dim + 1];
            for (int64_t c = 0; c < dim; c++) to[c] += weight * piece[c];
        }
        for (int64_t c = 0; c < dim; c++) to[c] /= total;
    }
}

int ds4_attention(const ds4_attention_args *args) {
    attention_job job = {.args = args, .path = ds4_path()};
    job.group = args->n_heads / args->n_kv_heads;
    job.positions = MAX_QUERIES / job.group;
    job.n_blocks = (args->m + job.positions - 1) / job.positions;
    job.n_pieces = args->m == 1 ? (args->n_kv + PIECE_T - 1) / PIECE_T : 1;
    if (job.n_pieces > 1) {
        size_t floats = (size_t)(args->n_heads * job.n_pieces * (args->dim + 2));
        job.partial = malloc(sizeof(float) * floats);
        if (!job.partial) return DS4_NO_MEMORY;
    }
    pool_lock();
    pool_run(attention_chunk, &job, args->n_kv_heads * job.n_blocks * job.n_pieces);
    pool_unlock();
    if (job.n_pieces > 1 && !job.failed) join_pieces(&job);
    free(job.partial);
    return job.failed ? DS4_NO_MEMORY : DS4_OK;
}
