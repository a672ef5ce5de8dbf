/* Choice of the code path, and the small entry points. */
#include "internal.h"
#include "pool.h"

static const code_path *chosen;

static const code_path *best_path(void) {
    if (ds4_avx512()) return ds4_avx512();
    if (ds4_avx2()) return ds4_avx2();
    if (ds4_neon()) return ds4_neon();
    return &ds4_portable;
}

const code_path *ds4_path(void) {
    if (!chosen) chosen = best_path();
    return chosen;
}

int ds4_set_path(const char *name) {
    const code_path *candidates[] = {ds4_avx512(), ds4_avx2(), ds4_neon(), &ds4_portable};
    if (strcmp(name, "auto") == 0) {
        chosen = best_path();
        return DS4_OK;
    }
    for (int i = 0; i < 4; i++)
        if (candidates[i] && strcmp(candidates[i]->name, name) == 0) {
            chosen = candidates[i];
            return DS4_OK;
        }
    return DS4_NO_PATH;
}

const char *ds4_path_name(void) { return ds4_path()->name; }

int ds4_interface(void) { return DS4_INTERFACE; }

void ds4_set_threads(int n_threads) { pool_set_threads(n_threads); }
