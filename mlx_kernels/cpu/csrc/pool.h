/* A small persistent pool of threads that shares out the numbered chunks of one job. */
#ifndef DS4_POOL_H
#define DS4_POOL_H

#include <stdint.h>

typedef void (*chunk_function)(void *context, int64_t chunk);

/* One call into the library at a time: jobs and the scratch buffer belong to the lock's holder. */
void pool_lock(void);
void pool_unlock(void);

/* Runs function(context, 0 .. n_chunks - 1) and returns when all are done. Needs the lock. */
void pool_run(chunk_function function, void *context, int64_t n_chunks);

void pool_set_threads(int n_threads);
int pool_threads(void);

#endif
