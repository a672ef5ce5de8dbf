/* The thread pool. Why it looks like this:
 *
 * - Chunks are claimed one by one from an atomic counter. A thread that loses its core to another
 *   process delays only the chunk it holds; the others, the caller first, take the rest.
 * - The caller never waits for a sleeping worker to wake, only for chunks that were claimed.
 * - Decoding calls the pool every few tens of microseconds, and waking a sleeping thread costs
 *   about as much as a small product. So a worker looks for new work for SPIN_NS before it sleeps
 *   on a condition variable. An idle process therefore costs nothing.
 *
 * The claim word holds the job's number in its upper and the next chunk in its lower 32 bits. A
 * compare-and-swap on both at once makes it impossible to take a chunk of a job that ended.
 */
#define _GNU_SOURCE
#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

#define MAX_THREADS 64
#define STACK_BYTES (1 << 20) /* a chunk needs 100 KB; some systems give a thread only 128 */
#define SPIN_NS 100000 /* NumPy work between two calls of a decode step: 10 - 60 us measured */

static pthread_mutex_t call_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static atomic_int n_sleeping;
static int n_started, n_wanted = 1;
static atomic_int n_active; /* workers with an index at or above this take no work */

static _Atomic uint64_t claim;
static _Atomic(chunk_function) job_function;
static _Atomic(void *) job_context;
static _Atomic int64_t job_chunks, job_done;

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static uint64_t job_number(void) { return atomic_load(&claim) >> 32; }

/* Works on the current job until no chunk is left to claim. */
static void work(void) {
    for (;;) {
        uint64_t seen = atomic_load_explicit(&claim, memory_order_acquire);
        chunk_function function = atomic_load_explicit(&job_function, memory_order_acquire);
        void *context = atomic_load_explicit(&job_context, memory_order_acquire);
        int64_t n = atomic_load_explicit(&job_chunks, memory_order_acquire);
        int64_t chunk = (int64_t)(seen & 0xffffffffu);
        if (chunk >= n) return;
        /* Success proves that the job read above is still the running one. */
        if (!atomic_compare_exchange_weak_explicit(&claim, &seen, seen + 1, memory_order_acq_rel,
                                                   memory_order_relaxed))
            continue;
        function(context, chunk);
        atomic_fetch_add_explicit(&job_done, 1, memory_order_release);
    }
}

static void *worker(void *index_pointer) {
    int index = (int)(intptr_t)index_pointer;
    uint64_t last = 0;
    for (;;) {
        int found = 0;
        if (index < atomic_load(&n_active)) {
            int64_t deadline = now_ns() + SPIN_NS;
            while (!found && now_ns() < deadline) {
                for (int i = 0; i < 32 && !found; i++) {
                    relax();
                    found = job_number() != last;
                }
            }
        }
        if (!found) {
            pthread_mutex_lock(&sleep_lock);
            /* Announced before the check: a caller that publishes later sees a sleeper. */
            atomic_fetch_add(&n_sleeping, 1);
            while (job_number() == last) pthread_cond_wait(&wake, &sleep_lock);
            atomic_fetch_sub(&n_sleeping, 1);
            pthread_mutex_unlock(&sleep_lock);
        }
        last = job_number();
        if (index < atomic_load(&n_active)) work();
    }
    return NULL;
}

/* A forked child has none of the threads: it starts its own when it first needs them. */
static void after_fork(void) {
    pthread_mutex_init(&call_lock, NULL);
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_cond_init(&wake, NULL);
    n_started = 0;
    atomic_store(&n_sleeping, 0);
}

static void start_workers(void) {
    static int registered;
    sigset_t all, old;
    pthread_attr_t attributes;
    if (!registered) {
        pthread_atfork(NULL, NULL, after_fork);
        registered = 1;
    }
    /* Signals belong to Python's threads, so workers are born with all of them blocked. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (n_started < n_wanted - 1) { /* fewer than wanted is fine: the rest do their work */
        pthread_t thread;
        if (pthread_create(&thread, &attributes, worker, (void *)(intptr_t)n_started) != 0) break;
        n_started++;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

void pool_lock(void) { pthread_mutex_lock(&call_lock); }
void pool_unlock(void) { pthread_mutex_unlock(&call_lock); }

void pool_set_threads(int n_threads) {
    pool_lock();
    n_wanted = n_threads < 1 ? 1 : n_threads > MAX_THREADS ? MAX_THREADS : n_threads;
    atomic_store(&n_active, n_wanted - 1);
    pool_unlock();
}

int pool_threads(void) { return n_wanted; }

void pool_run(chunk_function function, void *context, int64_t n_chunks) {
    if (n_wanted == 1 || n_chunks <= 1) {
        for (int64_t i = 0; i < n_chunks; i++) function(context, i);
        return;
    }
    if (n_started < n_wanted - 1) start_workers();
    uint64_t next = job_number() + 1;
    /* Closed first: nobody may take a chunk of the old job while the fields change. */
    atomic_fetch_or(&claim, 0xffffffffu);
    atomic_store(&job_function, function);
    atomic_store(&job_context, context);
    atomic_store(&job_chunks, n_chunks);
    atomic_store(&job_done, 0);
    atomic_store(&claim, (next & 0xffffffffu) << 32);
    if (atomic_load(&n_sleeping)) {
        pthread_mutex_lock(&sleep_lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&sleep_lock);
    }
    work();
    /* A claimed chunk takes microseconds unless its thread lost the core; then give ours away. */
    for (int i = 0; atomic_load_explicit(&job_done, memory_order_acquire) < n_chunks; i++) {
        relax();
        if (i > 2000) sched_yield();
    }
}
